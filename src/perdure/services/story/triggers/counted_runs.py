"""StoryRuns that are applied and name an Impulse are counted for it, each once (STY-158).

    mark ──▶ the run ──one commit──▶ counters of the Impulse, and no mark

The mark stands among the requests that nobody has answered yet: whoever opens the store next counts what a crash left.
"""

import asyncio

from perdure.dialects.story.resources.resource import Resource, name_of, namespace_of
from perdure.dialects.story.triggers import impulse_counts
from perdure.engine.catalog_entries import pending_mark
from perdure.engine.client import Client
from perdure.engine.random_ids import new_uid, run_id_for_name
from perdure.kernel import jsontext
from perdure.kernel.lookups import ResourceKey
from perdure.kernel.values import SECOND, Instant
from perdure.services.story.triggers.entry_status import TRIES, impulse_of, rewritten, status_in
from perdure.stores.protocol import ResourceRemoval, ResourceWrite

ABOUT_TO_BEGIN: Instant = 60 * SECOND  # so long a mark without its run may be one of a process that lives
_PREFIX = "storyrun/"  # what no StoryTrigger is called


async def mark(client: Client, run: Resource) -> ResourceKey | None:
    """Note that the run is about to begin; None for one that names no Impulse."""
    impulse = impulse_of(run)
    if impulse is None:
        return None
    key = pending_mark(ResourceKey("StoryTrigger", namespace_of(run), _PREFIX + name_of(run)))
    said = jsontext.encode({"impulse": [impulse.namespace, impulse.name]})
    await client.store.write_catalog([ResourceWrite(key, new_uid(), 1, said, b"", {}, None, 0)])
    return key


def is_of_a_run(key: ResourceKey) -> bool:
    return key.name.startswith(_PREFIX)


async def count(client: Client, key: ResourceKey) -> None:
    """Count the run, if it has come to be, and take the mark away."""
    for attempt in range(TRIES):
        found = (await client.store.resources([key])).get(key)
        if found is None:
            return
        impulse = ResourceKey("Impulse", *jsontext.decode(found.body)["impulse"])
        row = (await client.store.resources([impulse])).get(impulse)
        run = run_id_for_name("story", key.namespace, key.name.removeprefix(_PREFIX))
        has_begun = await client.store.find(run) is not None
        if not has_begun and client.clock.now() - found.created_at < ABOUT_TO_BEGIN:
            return
        changes: list[ResourceWrite | ResourceRemoval] = [ResourceRemoval(key, found.version)]
        if has_begun and row is not None:
            changes.append(rewritten(row, impulse_counts.count_decision(status_in(row), True, client.clock.now())))
        if await client.store.write_catalog(changes) is None:
            return
        await asyncio.sleep(0.001 * min(attempt, 20))
