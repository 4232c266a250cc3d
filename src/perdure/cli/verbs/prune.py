"""`prune`: remove runs that ended long ago, whole trees only."""

import argparse
from collections.abc import Sequence

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_engine, open_observer
from perdure.cli.stdout import give_json
from perdure.kernel.values import Instant, RunId
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.times import iso, local

EXAMPLES = """\
examples:
  perdure prune --older-than 30d --dry-run      how many would go
  perdure prune --older-than 30d
  perdure prune                                 what has been kept as long as its own language says

Without --older-than Stories are cleaned and removed by their own policy: StepRuns and sub-runs after
`ttlSecondsAfterFinished`, the run after `storyRunRetentionSeconds`. Flows and Playbooks have no such policy.
Open runs are never removed, nor is a run whose parent or children are still wanted, or one that was told something
that is not decided yet.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--older-than", metavar="DURATION", type=a.duration, help="ended longer ago than this, as in 30d"
    )
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, only count")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    if asked.older_than is None and asked.dry_run:
        raise BadUsage("--dry-run counts what --older-than would remove")
    return complete(_prune(asked, talk) if asked.older_than is not None else _sweep(asked, talk))


async def _sweep(asked: argparse.Namespace, talk: Console) -> int:
    """By the policies of the runs themselves; in batches, until there is nothing left to do."""
    from perdure.engine.retention import Sweeper

    asked.detach = True
    asked.load = []
    cleaned = removed = 0
    async with open_engine(asked, talk, must_exist=True) as engine:
        sweeper = Sweeper(engine)
        while (swept := await sweeper.sweep()).cleaned or swept.removed:
            cleaned, removed = cleaned + swept.cleaned, removed + swept.removed
    if asked.json:
        give_json({"cleaned": cleaned, "removed": removed})
    talk.say(f"{removed} run{'' if removed == 1 else 's'} removed, {cleaned} cleaned of StepRuns and sub-runs")
    return Exit.OK


async def _prune(asked: argparse.Namespace, talk: Console) -> int:
    async with open_observer(asked, talk) as observer:
        before = observer.clock.now() - asked.older_than
        if asked.dry_run:
            count = len(_ripe(await observer.search(RunFilter()), before))
        else:
            count = await observer.prune(before)
        if asked.json:
            give_json({"removed": 0 if asked.dry_run else count, "ripe": count, "ended_before": iso(before)})
        what = "would be removed" if asked.dry_run else "removed"
        talk.say(f"{count} run{'' if count == 1 else 's'} {what} (ended before {local(before)})")
        return Exit.OK


def _ripe(rows: Sequence[RunRow], before: Instant) -> set[RunId]:
    """What a store would remove: ended runs under ended parents, once nothing descends from them any more."""
    old = {row.id for row in rows if row.ended_at is not None and row.ended_at < before}
    kept = {row.id for row in rows} - old
    ripe = {row.id for row in rows if row.id in old and row.parent not in kept and not row.has_control_messages}
    left = [row for row in rows if row.id not in ripe]
    while left:  # a run that stays keeps its ancestors
        keeping = {row.parent for row in left if row.parent is not None} & ripe
        ripe -= keeping
        left = [row for row in rows if row.id in keeping]
    return ripe
