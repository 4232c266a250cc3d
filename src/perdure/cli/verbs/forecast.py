"""`forecast`: how long the steps of a document take, how often they fail, and when a run should end."""

import argparse
import sys
from typing import Any

from perdure.cli.console import Console, Paint, cut, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Cell, Column, table
from perdure.kernel.errors import RunNotFound
from perdure.kernel.json_values.values import SECOND
from perdure.views.access import Access, NoParameters
from perdure.views.runs.run_forecast import FORECAST, RUN_FORECAST, ForecastQuery
from perdure.views.runs.run_graph import short_span
from perdure.views.times import local, read_instant

EXAMPLES = """\
examples:
  perdure forecast 06g2k             when this run should end, after earlier runs of its document
  perdure forecast orders            what runs with this name take: quantiles, failures, critical path
  perdure forecast orders --json     the same for programs, in seconds

There is no forecast from fewer than 20 runs. Cancelled runs do not count.
"""

COLUMNS = (
    Column("STEP", may_shrink=True),
    Column("RUNS", may_go=True),
    Column("P50"),
    Column("P95"),
    Column("P99", may_go=True),
    Column("FAILED"),
    Column("CRITICAL"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("run", metavar="RUN|NAME", help="a run (id, its beginning, name, @latest), or the name of runs")
    parser.add_argument("-n", "--namespace", metavar="NS", help="only runs of this namespace, if NAME is given")
    parser.add_argument("--language", metavar="L", help="only runs of this language, if NAME is that of several")


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_forecast(args, talk))


async def _forecast(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        facts = await _ask(access, args)
    if args.json:
        give_json(facts)
        return Exit.OK
    give_text("\n".join(_lines(facts)))
    return Exit.OK


async def _ask(access: Access, args: argparse.Namespace) -> dict[str, Any]:
    """A run, if there is one; else the runs that have this name."""
    try:
        run = await access.resolve(args.run)
    except RunNotFound:
        query = ForecastQuery(name=args.run, language=args.language, namespace=args.namespace)
        return await access.ask(FORECAST, query)
    return await access.ask(RUN_FORECAST, NoParameters(), run)


def _lines(facts: dict[str, Any]) -> list[str]:
    paint = Paint(sys.stdout)
    versions = "the same version of the document" if facts["same_version"] else "several versions of the document"
    count = f"{facts['runs']} run{'' if facts['runs'] == 1 else 's'}"
    if not facts["is_enough"]:
        return [f"{facts['name']} ({facts['language']}): {count}, too few: {facts['needed']} must have ended"]
    lines = [
        f"{facts['name']} ({facts['language']}): {_spread(facts['seconds'])}; {_share(facts['failed'])} failed",
        paint(f"from {count} of {versions}", "dim"),
    ]
    if facts["expected"] is not None:
        lines = [*_expected(facts), "", *lines]
    lines += ["", *table(COLUMNS, [_row(step) for step in facts["steps"]])]
    if facts["critical_path"]:
        parts = [f"{part['step']} {short_span(int(part['seconds'] * SECOND))}" for part in facts["critical_path"]]
        lines += ["", cut(f"critical path: {' → '.join(parts)}", width_of(sys.stdout))]
    if len(facts["paths"]) > 1:
        lines += ["", "paths:"]
        for path in facts["paths"]:
            head = f"  {path['runs']:>4} runs, {_spread(path['seconds'])}: "
            lines.append(cut(head + " ".join(path["steps"]), width_of(sys.stdout)))
    return lines


def _row(step: dict[str, Any]) -> list[Cell]:
    return [
        (step["step"], ""),
        (str(step["runs"]), ""),
        *((_length(step["seconds"], name), "") for name in ("p50", "p95", "p99")),
        (_share(step["failed"]) if step["failed"] else "", "red"),
        (_share(step["critical"]) if step["critical"] else "", ""),
    ]


def _expected(facts: dict[str, Any]) -> list[str]:
    expected = facts["expected"]
    lasted = short_span(int(expected["seconds"] * SECOND))
    slower = f"slower than {int(expected['slower_than'] * 100)} of 100"
    if facts["is_over"]:
        return [f"run {facts['run']}: {facts['status']} after {lasted}, {slower}"]
    lines = [f"run {facts['run']}: under way for {lasted}, {slower}"]
    since = f"since {expected['since']!r} began" if expected["since"] else "since it started"
    ends = expected["ends_at"]
    if ends is None:
        lines.append(f"no end to expect: {since} it takes longer than all {expected['compared']} runs before it")
    else:
        p50, p95 = (local(read_instant(ends[name], 0)) for name in ("p50", "p95"))
        lines.append(f"should end by {p50} (half of the runs), by {p95} (95 of 100)")
        lines.append(f"after {expected['longer']} of {expected['compared']} runs that took longer {since}")
    return lines


def _spread(seconds: dict[str, float]) -> str:
    return f"half within {_length(seconds, 'p50')}, 95 of 100 within {_length(seconds, 'p95')}"


def _length(seconds: dict[str, float] | None, name: str) -> str:
    return "" if seconds is None else short_span(int(seconds[name] * SECOND))


def _share(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "< 1 %"
