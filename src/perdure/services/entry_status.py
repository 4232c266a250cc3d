"""The status of catalog entries that several processes write at once."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.engine.client import Client
from perdure.engine.resources.catalog_changes import retry_on_conflict
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.stores.protocol import CatalogConflict, ResourceRow, ResourceWrite


def status_in(row: ResourceRow) -> dict[str, Any]:
    status = None if row.status is None else jsontext.decode(row.status)
    return status if isinstance(status, dict) else {}


def rewritten(row: ResourceRow, status: Mapping[str, Any]) -> ResourceWrite:
    """An entry with another status, based on the version that was read."""
    return ResourceWrite(
        row.key, row.uid, row.generation, row.body, row.source, row.labels, jsontext.encode(status), row.version
    )


async def change_status(client: Client, key: ResourceKey, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
    """Apply `change` to the status of an entry, retrying on conflicts; False if the entry no longer exists."""

    async def attempt() -> bool | CatalogConflict:
        row = (await client.store.resources([key])).get(key)
        if row is None:
            return False
        before = status_in(row)
        after = change(dict(before))
        conflict = None if after == before else await client.store.write_catalog([rewritten(row, after)])
        return conflict or True

    failure = Conflict(f"{key.kind.lower()} {key.name} keeps being changed by others", hint="Try again.")
    return await retry_on_conflict(attempt, failure)
