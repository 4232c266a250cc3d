"""The JSON of `perdure ps`: one object per run. `resume` gives the same shape for the runs that it followed."""

from typing import Any

from perdure.engine.client import Client
from perdure.views.run_list import Ownership, PendingByRun, RunFilter, RunRow, with_pending_messages
from perdure.views.times import iso


def run_json(row: RunRow, owners: Ownership, pending: PendingByRun) -> dict[str, Any]:
    return {
        "id": row.id,
        "status": row.status,
        "language": row.language,
        "name": row.name,
        "namespace": row.namespace,
        "parent": row.parent,
        "labels": row.labels,
        "created_at": iso(row.created_at),
        "ended_at": iso(row.ended_at),
        "live": owners.is_live(row),
        "stuck": row.stuck or None,
        "pending": [message.plain() for message in pending.get(row.id, ())],
    }


async def run_list_json(client: Client, query: RunFilter) -> list[dict[str, Any]]:
    """The runs that a query finds, the latest first, with what is pending for those without a live owner."""
    rows = await client.search(query)
    owners = await Ownership.of(client, rows)
    rows, pending = await with_pending_messages(client, rows, owners)
    return [run_json(row, owners, pending) for row in rows]
