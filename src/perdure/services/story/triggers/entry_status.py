"""The status of entries in the catalog that several write at once."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from perdure.dialects.story.resources.resource import Resource, namespace_of, read_reference, spec_of
from perdure.engine.client import Client
from perdure.kernel import jsontext
from perdure.kernel.errors import Conflict
from perdure.kernel.lookups import ResourceKey
from perdure.stores.protocol import ResourceRow, ResourceWrite

TRIES = 200  # against others who write the same entries; each round somebody gets on


def impulse_of(trigger: Resource) -> ResourceKey | None:
    target = read_reference(spec_of(trigger).get("impulseRef"), namespace_of(trigger))
    return None if target is None else ResourceKey("Impulse", target.namespace, target.name)


def status_in(row: ResourceRow) -> dict[str, Any]:
    found = None if row.status is None else jsontext.decode(row.status)
    return found if isinstance(found, dict) else {}


def rewritten(row: ResourceRow, status: Mapping[str, Any]) -> ResourceWrite:
    """An entry with another status, over the version that was read."""
    return ResourceWrite(
        row.key, row.uid, row.generation, row.body, row.source, row.labels, jsontext.encode(status), row.version
    )


async def change_status(client: Client, key: ResourceKey, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
    """Write what `change` makes of an entry's status, however many write it at once; False when it is gone."""
    for attempt in range(TRIES):
        row = (await client.store.resources([key])).get(key)
        if row is None:
            return False
        before = status_in(row)
        after = change(dict(before))
        if after == before or await client.store.write_catalog([rewritten(row, after)]) is None:
            return True
        await asyncio.sleep(0.001 * min(attempt, 20))
    raise Conflict(f"others keep changing {key.kind.lower()} {key.name}", hint="Try again.")
