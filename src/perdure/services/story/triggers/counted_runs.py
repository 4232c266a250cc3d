"""Count applied StoryRuns for the Impulse that they name, each once (STY-158).

    mark ──▶ the run ──one commit──▶ counters of the Impulse, and no mark

The mark is stored among the undecided requests: after a crash, the next process that opens the store counts the
run.
"""

from contextlib import suppress

from perdure.dialects.story.resources.resource import Resource, name_of, namespace_of
from perdure.dialects.story.triggers import impulse_counts
from perdure.dialects.story.triggers.requests import impulse_of
from perdure.engine.client import Client
from perdure.engine.random_ids import new_uid, run_id_for_name
from perdure.engine.resources.catalog_changes import pending_mark, retry_on_conflict
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.services.entry_status import rewritten, status_in
from perdure.stores.protocol import CatalogConflict, ResourceRemoval, ResourceWrite

ABOUT_TO_BEGIN: Instant = 60 * SECOND  # a younger mark without a run may belong to a live process
_PREFIX = "storyrun/"  # no StoryTrigger has such a name


async def mark(client: Client, run: Resource) -> ResourceKey | None:
    """Record that the run is about to start; None if it does not name an Impulse."""
    impulse = impulse_of(run)
    if impulse is None:
        return None
    key = pending_mark(ResourceKey("StoryTrigger", namespace_of(run), _PREFIX + name_of(run)))
    body = jsontext.encode({"impulse": [impulse.namespace, impulse.name]})
    await client.store.write_catalog([ResourceWrite(key, new_uid(), 1, body, b"", {}, None, 0)])
    return key


def is_run_mark(key: ResourceKey) -> bool:
    return key.name.startswith(_PREFIX)


async def count(client: Client, key: ResourceKey) -> None:
    """Count the run if it has started, and remove the mark."""

    async def attempt() -> CatalogConflict | None:
        mark_row = (await client.store.resources([key])).get(key)
        if mark_row is None:
            return None
        impulse = ResourceKey("Impulse", *jsontext.decode(mark_row.body)["impulse"])
        row = (await client.store.resources([impulse])).get(impulse)
        run = run_id_for_name("story", key.namespace, key.name.removeprefix(_PREFIX))
        has_begun = await client.store.find(run) is not None
        if not has_begun and client.clock.now() - mark_row.created_at < ABOUT_TO_BEGIN:
            return None
        changes: list[ResourceWrite | ResourceRemoval] = [ResourceRemoval(key, mark_row.version)]
        if has_begun and row is not None:
            changes.append(rewritten(row, impulse_counts.count_decision(status_in(row), True, client.clock.now())))
        return await client.store.write_catalog(changes)

    with suppress(Conflict):  # the mark stays and is counted next time
        await retry_on_conflict(attempt, Conflict(f"others keep changing {key.name}"))
