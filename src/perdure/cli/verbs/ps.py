"""`ps`: which runs there are, which are driven by a live process, and which were interrupted."""

import argparse
import sys
from collections.abc import Sequence

from perdure.cli import arguments as a
from perdure.cli.console import Console, width_of
from perdure.cli.error_output import complain
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_observer
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.engine.client import Client
from perdure.kernel.outcomes import Status
from perdure.kernel.values import Instant, RunId
from perdure.views.errors import StoreMissing
from perdure.views.progress_events import status_words
from perdure.views.run_list import (
    Ownership,
    PendingByRun,
    RunFilter,
    RunRow,
    recent_runs,
    short_ids,
    with_pending_messages,
)
from perdure.views.run_list_json import run_list_json
from perdure.views.run_overview import brief_reason
from perdure.views.server_presence import is_served
from perdure.views.times import local, span

RECENT = 10  # ended runs that the table shows unless told otherwise
COUNTED = 1_000  # and how many more are counted

EXAMPLES = """\
examples:
  perdure ps                                  open runs and the most recently ended ones
  perdure ps --status failed --since 1d       runs of the last 24 hours that failed
  perdure ps --label customer=17 --all
  perdure ps -n shop                          runs of namespace `shop`; -A shows the namespace of each
  perdure ps --json | jq '.[] | select(.live | not)'

The table omits children and older ended runs, and says how many. `--json` omits nothing.
"""

EXPLAINED = 30  # runs for which the table says why they failed or wait
NARROW = 120  # columns; in fewer ids are shortened

COLUMNS = (
    Column("ID"),
    Column("LANGUAGE", may_go=True),
    Column("NAME", may_shrink=True),
    Column("STATUS"),
    Column("STARTED", may_go=True),
    Column("AGE"),
    Column("OWNER"),
    Column("WHY", may_shrink=True),
)

_STYLES = {
    Status.SUCCEEDED: "green",
    Status.PARTIAL: "yellow",
    Status.FAILED: "red",
    Status.TIMED_OUT: "red",
    Status.CANCELLED: "yellow",
    Status.RUNNING: "cyan",
    Status.WAITING: "cyan",
    Status.PAUSED: "yellow",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--all", action="store_true", help="include all ended runs, and children")
    parser.add_argument(
        "--status",
        metavar="S",
        action="append",
        default=[],
        choices=[status.value for status in Status],
        help=f"only runs in this status ({', '.join(status.value for status in Status)}); may be repeated",
    )
    parser.add_argument("--name", metavar="N", help="only runs of documents with this name")
    a.add_labels(parser, "only runs with this label")
    namespaces = a.add_namespace(parser, "only runs of this namespace (default: of all)")
    namespaces.add_argument("-A", "--all-namespaces", action="store_true", help="of all, with their namespaces")
    parser.add_argument(
        "--since",
        metavar="T",
        type=a.instant,
        help="only runs started since T: 2026-05-01T12:30, or 2h",
    )
    parser.add_argument("--until", metavar="T", type=a.instant, help="only runs started before T")
    parser.add_argument("--limit", metavar="N", type=int, help="only the latest N runs")
    parser.add_argument("--children", action="store_true", help="include runs that were started by other runs")


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
        query = RunFilter(
            statuses=[Status(status) for status in asked.status],
            name=asked.name,
            labels=dict(asked.label),
            created_after=asked.since,
            created_before=asked.until,
            namespaces=None if asked.all_namespaces or not asked.namespace else [asked.namespace],
            roots_only=not (asked.all or asked.json or asked.children),
            limit=asked.limit,
        )
        if asked.json:
            give_json(await run_list_json(observer, query))
            return Exit.OK
        if asked.all or asked.status or asked.limit is not None:
            rows, hidden = await observer.search(query), 0
        else:
            rows, hidden = await recent_runs(observer, query, RECENT, COUNTED)
        owners = await Ownership.of(observer, rows)
        shown, pending = await with_pending_messages(observer, rows, owners)
        if rows:
            width = width_of(sys.stdout)
            ids = await short_ids(observer, shown) if width is not None and width < NARROW else {}
            reasons = await _reasons(observer, shown, pending)
            now = observer.clock.now()
            cells = [_cells(row, ids.get(row.id, row.id), owners, pending, reasons, now) for row in shown]
            columns: Sequence[Column] = COLUMNS
            if asked.all_namespaces:
                columns = (Column("NAMESPACE"), *COLUMNS)
                cells = [[(row.namespace, ""), *line] for row, line in zip(shown, cells, strict=True)]
            give_text("\n".join(table(columns, cells)))
        _tell_rest(rows, hidden, talk)
        for run, waiting in pending.items():
            for message in waiting:
                talk.say(f"run {run}: {message.text}")
        if any(not row.status.is_final and not owners.is_live(row) for row in rows):
            goes_on = (
                "will be resumed by a server" if await is_served(observer) else "can be resumed with `perdure resume`"
            )
            talk.say(f"interrupted runs {goes_on}")
        return Exit.OK


_EXPLAINED_STATUSES = (Status.FAILED, Status.TIMED_OUT, Status.CANCELLED, Status.WAITING, Status.RUNNING)


async def _reasons(observer: Client, rows: list[RunRow], pending: PendingByRun) -> dict[RunId, str]:
    """Of the first runs in the list that are worth a word."""
    asked = [row for row in rows if row.status in _EXPLAINED_STATUSES and not row.stuck and not pending.get(row.id)]
    return {row.id: await brief_reason(observer, row) for row in asked[:EXPLAINED]}


def _cells(
    row: RunRow, id: str, owners: Ownership, pending: PendingByRun, reasons: dict[RunId, str], now: Instant
) -> list[tuple[str, str]]:
    waiting = pending.get(row.id)
    why = reasons.get(row.id, "")
    if row.status.is_final and not waiting:
        owner, style = "-", "dim"
    elif owners.is_live(row):
        owner, style = "live", "green"
    else:
        owner, style = "interrupted", "yellow"
    if row.stuck:
        why = f"stuck: {row.stuck}"
    elif waiting:
        why = f"{waiting[-1].kind} pending"
    return [
        (id, ""),
        (row.language, ""),
        (row.name, ""),
        (status_words(row.status), _STYLES[row.status]),
        (local(row.created_at), ""),
        (span(now - row.created_at), ""),
        (owner, style),
        (why, "red" if row.stuck else ""),
    ]


def _tell_rest(shown: list[RunRow], hidden: int, talk: Console) -> None:
    if not shown:
        talk.say("no runs")
    if hidden:
        count = f"more than {hidden}" if hidden == COUNTED else str(hidden)
        talk.say(f"{count} ended run{'' if hidden == 1 else 's'} not shown (see --all)")
