"""`ps`: which runs there are, which are driven by a live process, and which were interrupted."""

import argparse
import sys

from msgspec.structs import replace

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, width_of
from perdure.cli.error_output import complain
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_observer
from perdure.cli.server_presence import is_served
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.engine.client import Client
from perdure.kernel.outcomes import Status
from perdure.kernel.values import Instant
from perdure.stores.errors import StoreMissing
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.progress_events import status_words
from perdure.views.run_list import Ownership, PendingByRun, run_list_json, with_pending_messages
from perdure.views.times import local, span

RECENT = 10  # ended runs that the table shows unless told otherwise
COUNTED = 1_000  # and how many more are counted

EXAMPLES = """\
examples:
  perdure ps                                  open runs, and the latest that have ended
  perdure ps --status failed --since 1d       what failed today
  perdure ps --label customer=17 --all
  perdure ps --json | jq '.[] | select(.live | not)'

The table leaves out children and all but the latest ended runs, and says how many; `--json` leaves out nothing.
"""

COLUMNS = (
    Column("ID"),
    Column("LANGUAGE"),
    Column("NAME", may_shrink=True),
    Column("STATUS"),
    Column("STARTED", may_go=True),
    Column("AGE"),
    Column("OWNER"),
)

_STYLES = {
    Status.SUCCEEDED: "green",
    Status.PARTIAL: "yellow",
    Status.FAILED: "red",
    Status.TIMED_OUT: "red",
    Status.CANCELLED: "yellow",
    Status.RUNNING: "cyan",
    Status.WAITING: "cyan",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--all", action="store_true", help="all ended runs, and children")
    parser.add_argument(
        "--status",
        metavar="S",
        action="append",
        default=[],
        choices=[status.value for status in Status],
        help=f"only runs in this status ({', '.join(status.value for status in Status)}); may be repeated",
    )
    parser.add_argument("--name", metavar="N", help="only runs of documents of this name")
    a.add_labels(parser, "only runs with this label")
    parser.add_argument("--since", metavar="T", type=a.instant, help="started at or after T: 2026-05-01T12:30, or 2h")
    parser.add_argument("--until", metavar="T", type=a.instant, help="started before T")
    parser.add_argument("--limit", metavar="N", type=int, help="at most N runs, the latest")
    parser.add_argument("--children", action="store_true", help="also runs that were started by other runs")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    try:
        return complete(_list(asked, talk))
    except StoreMissing as missing:
        if not asked.json:
            raise
        give_json([])  # a list, always: whoever polls for a run that is about to start reads one
        return complain(missing, talk, as_json=False)


async def _list(asked: argparse.Namespace, talk: Console) -> int:
    async with open_observer(asked, talk) as observer:
        wanted = RunFilter(
            statuses=[Status(status) for status in asked.status],
            name=asked.name,
            labels=dict(asked.label),
            created_after=asked.since,
            created_before=asked.until,
            roots_only=not (asked.all or asked.json or asked.children),
            limit=asked.limit,
        )
        if asked.json:
            give_json(await run_list_json(observer, wanted))
            return Exit.OK
        if asked.all or asked.status or asked.limit is not None:
            rows, hidden = await observer.search(wanted), 0
        else:
            rows, hidden = await _recent(observer, wanted)
        owners = await Ownership.of(observer, rows)
        shown, pending = await with_pending_messages(observer, rows, owners)
        if rows:
            cells = [_cells(row, owners, pending, observer.clock.now()) for row in shown]
            give_text("\n".join(table(COLUMNS, cells, width_of(sys.stdout), Paint(sys.stdout))))
        _tell_rest(rows, hidden, talk)
        for run, waiting in pending.items():
            for one in waiting:
                talk.say(f"run {run}: {one.text}")
        if any(not row.status.is_final and not owners.is_live(row) for row in rows):
            goes_on = (
                "will be resumed by a server" if await is_served(observer) else "can be resumed with `perdure resume`"
            )
            talk.say(f"interrupted runs {goes_on}")
        return Exit.OK


async def _recent(client: Client, wanted: RunFilter) -> tuple[list[RunRow], int]:
    """Open runs and the latest ended ones; how many more have ended. A large past is not read to be counted."""
    rows = await client.search(replace(wanted, statuses=[status for status in Status if not status.is_final]))
    ended_ones = replace(wanted, statuses=[status for status in Status if status.is_final], limit=RECENT + COUNTED)
    ended = await client.search(ended_ones)
    rows += ended[:RECENT]
    return sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True), len(ended) - len(ended[:RECENT])


def _cells(row: RunRow, owners: Ownership, pending: PendingByRun, now: Instant) -> list[tuple[str, str]]:
    age = span((row.ended_at or now) - row.created_at)
    if row.stuck:
        owner, style = f"stuck: {row.stuck}", "red"
    elif waiting := pending.get(row.id):
        owner, style = f"interrupted, {waiting[-1].kind} pending", "yellow"
    elif row.status.is_final:
        owner, style = "-", "dim"
    elif owners.is_live(row):
        owner, style = "live", "green"
    else:
        owner, style = "interrupted", "yellow"
    return [
        (row.id, ""),
        (row.language, ""),
        (row.name, ""),
        (status_words(row.status), _STYLES[row.status]),
        (local(row.created_at), ""),
        (age, ""),
        (owner, style),
    ]


def _tell_rest(shown: list[RunRow], hidden: int, talk: Console) -> None:
    if not shown:
        talk.say("no runs")
    if hidden:
        count = f"more than {hidden}" if hidden == COUNTED else str(hidden)
        talk.say(f"{count} ended run{'' if hidden == 1 else 's'} not shown (see --all)")
