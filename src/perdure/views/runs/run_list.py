"""Runs in a list: which have a live owner, which wait for a message, which were interrupted, which can be removed."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.engine.runs.dry_run import Pending
from perdure.kernel.errors import NewerRecord
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import OPEN_STATUSES
from perdure.stores.protocol import RunFilter, RunRow

if TYPE_CHECKING:
    from perdure.engine.client import Client

__all__ = [
    "Ownership",
    "PendingByRun",
    "RunFilter",
    "RunRow",
    "interrupted_runs",
    "removable_runs",
    "short_ids",
    "topmost",
    "with_pending_messages",
]


class Ownership:
    """Which runs are driven by a live process; asked once for all of them."""

    def __init__(self, live: frozenset[int]) -> None:
        self._live = live

    @classmethod
    async def of(cls, client: "Client", rows: Iterable[RunRow]) -> "Ownership":
        return cls(await client.store.owned({row.partition for row in rows if not row.status.is_final}))

    def is_live(self, row: RunRow) -> bool:
        return not row.status.is_final and row.partition in self._live


PendingByRun = Mapping[RunId, Sequence[Pending]]
"""Messages that are recorded and not decided yet."""


async def with_pending_messages(
    client: "Client", rows: Sequence[RunRow], owners: Ownership
) -> tuple[list[RunRow], PendingByRun]:
    """The rows as they would be after their pending messages. Only runs without a live owner are read, and only where
    their row says that a message waits, or that something may be due.
    """
    pending: dict[RunId, Sequence[Pending]] = {}
    shown = []
    now, wall = client.clock.now(), client.clock.wall()
    for row in rows:
        is_due = not row.status.is_final and (_has_come(row.due, now) or _has_come(row.on_wall, wall))
        if (row.has_control_messages or is_due) and not owners.is_live(row):
            with suppress(NewerRecord):  # its row says what is known of it here
                _, execution, pending[row.id] = await client.outlook(row.id)
                state = execution.state
                row = replace(row, status=state.activity, ended_at=state.ended_at)
        shown.append(row)
    return shown, pending


def _has_come(due: Instant | None, now: Instant) -> bool:
    return due is not None and due <= now


async def interrupted_runs(client: "Client") -> list[RunRow]:
    """Open runs without a live owner, and ended ones for which something lies in the inbox; eldest first."""
    open_runs = await client.search(RunFilter(statuses=OPEN_STATUSES))
    owners = await Ownership.of(client, open_runs)
    interrupted = {row.id: row for row in reversed(open_runs) if not owners.is_live(row)}
    for waiting in await client.store.inbox(await client.store.orphaned_partitions(), 1_000):
        run = waiting.message.to
        if run not in interrupted and (row := await client.store.find(run)) is not None:
            interrupted[run] = row
    return list(interrupted.values())


def topmost(rows: Iterable[RunRow]) -> list[RunId]:
    """Those of the runs whose parent is not among them."""
    rows = list(rows)
    ids = {row.id for row in rows}
    return [row.id for row in rows if row.parent not in ids]


async def removable_runs(client: "Client", before: Instant) -> set[RunId]:
    """What `prune` would remove: ended runs under ended parents, once nothing that stays descends from them."""
    rows = await client.search(RunFilter())
    old = {row.id for row in rows if row.ended_at is not None and row.ended_at < before}
    young = {row.id for row in rows} - old
    removable = {row.id for row in rows if row.id in old and row.parent not in young and not row.has_control_messages}
    staying = [row for row in rows if row.id not in removable]
    while staying:  # a run that stays keeps its ancestors
        ancestors = {row.parent for row in staying if row.parent is not None} & removable
        removable -= ancestors
        staying = [row for row in rows if row.id in ancestors]
    return removable


SHORT = 10  # letters of an id: the millisecond of its run's start
SHORT_END = 6
LONG = 24  # letters of a beginning that leaves no room for other columns
MOST_LOOKED_UP = 100


async def short_ids(client: "Client", rows: Sequence[RunRow]) -> dict[RunId, str]:
    """The shortest beginnings of ids, from ten letters on, by which each run can be named. A child's id stays whole.

    Ids that begin alike for long, as those of a schedule do, are shortened to `BEGINNING…END`.
    """
    roots = sorted(row.id for row in rows if "." not in row.id)
    shorter: dict[RunId, str] = {}
    for before, run, after in zip(["", *roots], roots, [*roots[1:], ""], strict=False):
        shared = max(_shared(before, run), _shared(run, after))
        length = max(SHORT, shared + 1)
        if len(roots) > MOST_LOOKED_UP:
            length += 3
        else:
            while length < len(run):
                others = [other for other in await client.store.find_by_prefix(run[:length]) if other != run]
                if not others:
                    break
                length = min(len(run), max(_shared(other, run) for other in others) + 1)  # nothing shorter will do
        if length > LONG:
            end = SHORT if len(roots) > MOST_LOOKED_UP else await _end_of(client, run)
            shorter[run] = f"{run[:SHORT]}…{run[-end:]}"
        else:
            shorter[run] = run[:length]
    return {row.id: shorter.get(row.id, row.id) for row in rows}


async def _end_of(client: "Client", run: RunId) -> int:
    """How many letters of its end tell a run from others that begin like it."""
    letters = SHORT_END
    while letters < len(run) - SHORT and len(await client.store.find_by_prefix(f"{run[:SHORT]}…{run[-letters:]}")) > 1:
        letters += 1
    return letters


def _shared(left: str, right: str) -> int:
    count = 0
    for first, second in zip(left, right, strict=False):
        if first != second:
            break
        count += 1
    return count
