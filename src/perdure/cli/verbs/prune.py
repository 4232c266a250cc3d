"""`prune`: remove runs that ended long ago, whole trees only."""

import argparse
import re

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_engine, open_observer
from perdure.cli.stdout import give_json
from perdure.kernel.json_values.values import Instant
from perdure.views.administration.audit_log import audited
from perdure.views.runs.run_list import removable_runs
from perdure.views.times import iso, local, read_span

EXAMPLES = """\
examples:
  perdure prune --older-than 30d --dry-run      count the runs that would be removed
  perdure prune --older-than 30d
  perdure prune                                 runs whose own retention time is over

Without --older-than, runs of every language are removed by the operator's rules ([[retention]] in the settings file).
A run of a Story that no rule matches is cleaned and removed by its own policy: StepRuns and sub-runs after
`ttlSecondsAfterFinished`, the run after `storyRunRetentionSeconds`.
Open runs are never removed, nor is a run whose parent or children stay, or one with a control message that
is not decided yet.
"""


def _read_age(text: str) -> Instant:
    """A bare number may be meant as days, and removed runs do not come back."""
    if re.fullmatch(r"\d+(\.\d+)?", text) and float(text) > 0:
        raise ValueError(f"{text!r} has no unit (expected e.g. {text}d)")
    return read_span(text)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--older-than",
        metavar="DURATION",
        type=a.checked(_read_age),
        help="remove runs that ended longer ago, e.g. 30d",
    )
    parser.add_argument("--dry-run", action="store_true", help="only count, remove nothing")


def perform(args: argparse.Namespace, talk: Console) -> int:
    if args.older_than is None and args.dry_run:
        raise BadUsage("--dry-run counts what --older-than would remove")
    return complete(_prune(args, talk) if args.older_than is not None else _sweep(args, talk))


async def _sweep(args: argparse.Namespace, talk: Console) -> int:
    """By the policies of the runs themselves; in batches, until there is nothing left to do."""
    import os

    from perdure.engine.runs.retention import Sweeper
    from perdure.views.administration.retention_rules import read_rules

    args.detach = True
    args.load = []
    cleaned = removed = 0
    async with open_engine(args, talk, must_exist=True) as engine:
        acting = await audited(engine, "prune_runs", "runs past their retention")
        sweeper = Sweeper(acting, read_rules(os.environ))
        while (swept := await sweeper.sweep()).cleaned or swept.removed:
            cleaned, removed = cleaned + swept.cleaned, removed + swept.removed
    if args.json:
        give_json({"cleaned": cleaned, "removed": removed})
    talk.say(f"{removed} run{'' if removed == 1 else 's'} removed, {cleaned} cleaned of StepRuns and sub-runs")
    return Exit.OK


async def _prune(args: argparse.Namespace, talk: Console) -> int:
    async with open_observer(args, talk) as observer:
        before = observer.clock.now() - args.older_than
        if args.dry_run:
            count = len(await removable_runs(observer, before))
        else:
            acting = await audited(observer, "prune_runs", f"runs that ended before {iso(before)}")
            count = await acting.prune(before)
        if args.json:
            give_json({"removed": 0 if args.dry_run else count, "ripe": count, "ended_before": iso(before)})
        action = "would be removed" if args.dry_run else "removed"
        talk.say(f"{count} run{'' if count == 1 else 's'} {action} (ended before {local(before)})")
        return Exit.OK
