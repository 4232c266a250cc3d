"""`migrate`: open runs go on with another version of their document, by a plan that `impact` has written."""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, cut, width_of
from perdure.cli.document_files import read
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_observer
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text
from perdure.engine.client import Client
from perdure.kernel.json_values.values import RunId
from perdure.views.administration.audit_log import audited
from perdure.views.errors import BadRequest
from perdure.views.runs.run_migration import MOST_MOVED, MigrationPlan, migrate, read_plan, undo
from perdure.wiring import load_sources

EXAMPLES = """\
examples:
  perdure impact orders.json --plan plan.json      first: which runs are safe to move, and the plan
  perdure migrate --plan plan.json --dry-run       what would happen now; nothing is changed
  perdure migrate --plan plan.json                 each run of the plan decides: it is moved, or refuses
  perdure migrate --undo 06g2k                     back to the document that the run had before

A move is an event in the history of the run. It can be undone until the run has done something that the former document
does not know. A run without a live owner is moved when it is resumed. The exit code is 9 if a run refuses.
"""

COLOURS = {"moved": "green", "safe": "green", "recorded": "yellow", "refused": "red"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("runs", metavar="RUN", nargs="*", help="with --undo: the runs; else only these of the plan")
    parser.add_argument("--plan", metavar="FILE", help="what `perdure impact --plan` has written: JSON, or YAML")
    parser.add_argument("--dry-run", action="store_true", help="show what each run would answer; change nothing")
    parser.add_argument("--undo", action="store_true", help="undo the last move of these runs, or of those of the plan")
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    if not args.plan and not (args.undo and args.runs):
        raise BadUsage("give --plan FILE, or --undo with the runs")
    load_sources(() if args.choice is not None else args.load)
    return complete(_migrate(args, talk))


async def _migrate(args: argparse.Namespace, talk: Console) -> int:
    plan = _read(args.plan) if args.plan else None
    if args.choice is not None:
        async with server_access(args, talk.say) as server:
            named = [await server.resolve(name) for name in args.runs]
            pieces = [await server.migrate(body) for body in _bodies(plan, named, args)]
    else:
        async with open_observer(args, talk) as observer:
            named = [await observer.resolve(name) for name in args.runs]
            pieces = [await _migrate_here(observer, body) for body in _bodies(plan, named, args)]
    answer = {
        "dry_run": args.dry_run,
        "counts": {name: sum(piece["counts"][name] for piece in pieces) for name in pieces[0]["counts"]},
        "runs": [run for piece in pieces for run in piece["runs"]],
    }
    if args.json:
        give_json(answer)
    else:
        give_text("\n".join(_lines(answer)))
    return Exit.CONFLICT if answer["counts"]["refused"] else Exit.OK


async def _migrate_here(observer: Client, body: dict[str, Any]) -> dict[str, Any]:
    async def acting(run: RunId) -> Client:
        return await audited(observer, "migrate_runs", f"run/{run}", run=run)

    if "undo" in body:
        return await undo(observer, body["undo"], acting, dry_run=body["dry_run"], by="")
    plan = msgspec.convert(body["plan"], MigrationPlan)
    return await migrate(observer, plan, acting, dry_run=body["dry_run"], by="")


def _read(path: str) -> MigrationPlan:
    try:
        return read_plan(read(path)[1])
    except BadRequest as error:
        raise BadUsage(f"{path}: {error}", hint=error.hint) from None


def _bodies(plan: MigrationPlan | None, named: list[RunId], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is asked for, in pieces."""
    dry_run = {"dry_run": args.dry_run}
    moves = [] if plan is None else [(move, run) for move in plan.moves for run in move.runs]
    if named and plan is not None:
        moves = [(move, run) for move, run in moves if run in named]
        if missing := [run for run in named if run not in [run for _, run in moves]]:
            raise BadUsage(f"the plan does not have run {missing[0]}")
    if args.undo:
        runs = [run for _, run in moves] if plan is not None else named
        for first in range(0, max(len(runs), 1), MOST_MOVED):
            yield {"undo": runs[first : first + MOST_MOVED], **dry_run}
        return
    assert plan is not None
    for first in range(0, max(len(moves), 1), MOST_MOVED):
        piece = moves[first : first + MOST_MOVED]
        chosen = [
            msgspec.structs.replace(move, runs=[run for owner, run in piece if owner is move])
            for move in plan.moves
            if any(owner is move for owner, _ in piece)
        ]
        yield {"plan": msgspec.to_builtins(msgspec.structs.replace(plan, moves=chosen)), **dry_run}


def _lines(answer: dict[str, Any]) -> list[str]:
    paint, width = Paint(sys.stdout), width_of(sys.stdout)
    lines = []
    for run in answer["runs"]:
        reason = f": {run['reason']}" if run["reason"] else ""
        lines.append(cut(f"{run['id']}  {paint(run['outcome'], COLOURS.get(run['outcome'], ''))}{reason}", width))
    return [*lines, ", ".join(f"{count} {name}" for name, count in answer["counts"].items() if count) or "no runs"]
