"""Runs in a list: as JSON data, by owner, by family."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from perdure.engine.client import Client
from perdure.engine.dry_run import Pending
from perdure.kernel.errors import NewerRecord
from perdure.kernel.outcomes import Status
from perdure.kernel.values import Instant, RunId
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.times import iso


class Ownership:
    """Which runs are driven by a live process; asked once for all of them."""

    def __init__(self, live: frozenset[int]) -> None:
        self._live = live

    @classmethod
    async def of(cls, client: Client, rows: Iterable[RunRow]) -> "Ownership":
        return cls(await client.store.owned({row.partition for row in rows if not row.status.is_final}))

    def is_live(self, row: RunRow) -> bool:
        return not row.status.is_final and row.partition in self._live


PendingByRun = Mapping[RunId, Sequence[Pending]]
"""Messages that are recorded and not decided yet."""


async def with_pending_messages(
    client: Client, rows: Sequence[RunRow], owners: Ownership
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


def run_json(row: RunRow, owners: Ownership, words: PendingByRun) -> dict[str, Any]:
    return {
        "id": row.id,
        "status": row.status,
        "language": row.language,
        "name": row.name,
        "parent": row.parent,
        "labels": row.labels,
        "created_at": iso(row.created_at),
        "ended_at": iso(row.ended_at),
        "live": owners.is_live(row),
        "stuck": row.stuck or None,
        "pending": [one.plain() for one in words.get(row.id, ())],
    }


async def run_list_json(client: Client, query: RunFilter) -> list[dict[str, Any]]:
    """The runs that a query finds, the latest first, with what is pending for those without a live owner."""
    rows = await client.search(query)
    owners = await Ownership.of(client, rows)
    rows, pending = await with_pending_messages(client, rows, owners)
    return [run_json(row, owners, pending) for row in rows]


async def interrupted_runs(client: Client) -> list[RunRow]:
    """Open runs without a live owner, and ended ones for which something lies in the inbox; eldest first."""
    open_runs = await client.search(RunFilter(statuses=(Status.RUNNING, Status.WAITING)))
    owners = await Ownership.of(client, open_runs)
    found = {row.id: row for row in reversed(open_runs) if not owners.is_live(row)}
    for letter in await client.store.inbox(await client.store.orphaned_partitions(), 1_000):
        run = letter.message.to
        if run not in found and (row := await client.store.find(run)) is not None:
            found[run] = row
    return list(found.values())


def topmost(rows: Iterable[RunRow]) -> list[RunId]:
    """Those of the runs whose parent is not among them."""
    rows = list(rows)
    here = {row.id for row in rows}
    return [row.id for row in rows if row.parent not in here]
