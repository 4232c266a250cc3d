"""Durable requests to start Stories (STY-148 to 153).

    submit ──one commit──▶ StoryTrigger, Pending ──start──▶ the run ──one commit──▶ decision and counters

A crash anywhere leaves a request that whoever opens the store next decides, and which finds its run if it began.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Any, cast

from perdure.dialects.story.language import Story
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.resource import (
    Resource,
    ResourceIndex,
    name_of,
    namespace_of,
    read_reference,
    spec_of,
)
from perdure.dialects.story.triggers import impulse_counts
from perdure.dialects.story.triggers.decisions import (
    TriggerAnswer,
    TriggerDecision,
    answer_of,
    compare,
    created,
    has_to_offload,
    refuse_request,
    refuse_run,
    status_of,
)
from perdure.dialects.story.triggers.requests import (
    Delivery,
    RunStart,
    asks_the_same,
    compose_run,
    compose_trigger,
    read_start,
)
from perdure.engine.catalog import ResourceNotFound
from perdure.engine.catalog_entries import Rejected, pending_mark
from perdure.engine.client import Client
from perdure.engine.handle import Handle
from perdure.engine.lookup_answers import document
from perdure.engine.random_ids import run_id_for_name
from perdure.kernel import jsontext
from perdure.kernel.errors import Conflict
from perdure.kernel.lookups import Lookup, ResourceKey, ResourcesInNamespace
from perdure.kernel.validation import AppliedDocument
from perdure.kernel.values import RunId
from perdure.services.story.triggers import counted_runs
from perdure.services.story.triggers.entry_status import TRIES, impulse_of, rewritten, status_in
from perdure.stores.errors import StoreError
from perdure.stores.protocol import ResourceRemoval, ResourceRow, ResourceWrite

LANGUAGE = "story"
TRIGGER = RESOURCE_KINDS["StoryTrigger"]

_log = logging.getLogger("perdure.triggers")


class Requests:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._language = cast(Story, client.languages[LANGUAGE])

    async def trigger(
        self,
        story: str | Mapping[str, Any],
        inputs: dict[str, Any] | None = None,
        *,
        token: str | None = None,
        key: str | None = None,
        impulse: Mapping[str, Any] | None = None,
        namespace: str = "default",
        annotations: Mapping[str, str] | None = None,
    ) -> Resource:
        """Ask for a run and answer with the decided StoryTrigger. With a token, or a key, the same is asked once."""
        reference = {"name": story} if isinstance(story, str) else dict(story)
        mode = "token" if token is not None else "key" if key is not None else "none"
        delivery = Delivery(reference, inputs, secrets.token_hex(16), mode, token or key or "", impulse)
        resource = compose_trigger(delivery, namespace)
        if annotations:
            resource["metadata"]["annotations"] = dict(annotations)
        return await self.submit(resource)

    async def submit(self, resource: Resource) -> Resource:
        """Make a request durable and have it decided. One that was made before is not made again."""
        key = ResourceKey(TRIGGER.name, namespace_of(resource), name_of(resource))
        row = await self._row(key)
        if row is None:
            await self._admit(resource, key)
        elif not asks_the_same(document(row), resource):
            raise Conflict(
                f"{TRIGGER.title(key.name)}: the token was used before with another Story or other inputs",
                hint=f"See `perdure get storytrigger {key.name} -n {key.namespace} -o yaml`.",
            )
        return await self.settle(key)

    async def _admit(self, resource: Resource, key: ResourceKey) -> None:
        text = jsontext.encode(resource).decode()
        try:
            await self._client.catalog.apply([AppliedDocument(f"storytrigger/{key.name}", text)], key.namespace)
        except Rejected:
            row = await self._row(key)  # another submission of the same came first
            if row is None:
                raise
            if not asks_the_same(document(row), resource):
                raise Conflict(
                    f"{TRIGGER.title(key.name)}: the token is in use with another Story or other inputs"
                ) from None

    # Deciding.

    async def settle_pending(self) -> list[Resource]:
        """Decide whatever was asked and never answered. One that cannot be decided holds up no other, and no engine."""
        waiting = await self._client.store.list_resources(pending_mark(ResourceKey(TRIGGER.name, "", "")).kind)
        decided = []
        for mark in waiting:
            if counted_runs.is_of_a_run(mark.key):
                await counted_runs.count(self._client, mark.key)
                continue
            key = ResourceKey(TRIGGER.name, mark.key.namespace, mark.key.name)
            try:
                resource = await self.settle(key, missing_ok=True)
            except StoreError:
                raise
            except Exception as error:  # whatever it is, it is told, and the request waits
                _log.warning("%s cannot be decided: %s: %s", TRIGGER.title(key.name), type(error).__name__, error)
                continue
            if resource:
                decided.append(resource)
        return decided

    async def settle(self, key: ResourceKey, *, missing_ok: bool = False) -> Resource:
        """The request with its decision; still Pending where nothing can be started from here."""
        for attempt in range(TRIES):
            row = await self._row(key)
            if row is None:
                if missing_ok:
                    await self._forget_mark(key)
                    return {}
                raise ResourceNotFound(f"there is no {TRIGGER.title(key.name)}")
            trigger = document(row)
            if answer_of(trigger) is not TriggerAnswer.PENDING or self._client.runtime is None:
                return trigger
            decision = await self._decide(trigger)
            if await self._record(row, decision):
                return document(await self._client.catalog.row(TRIGGER, key.name, key.namespace))
            await asyncio.sleep(0.001 * min(attempt, 20))
        raise Conflict(f"others keep changing {TRIGGER.title(key.name)}", hint="It is durable and decided later.")

    async def _decide(self, trigger: Resource) -> TriggerDecision:
        known = await self._known(trigger)
        settings = self._language.settings
        refused = refuse_request(trigger, known, settings)
        if refused is not None:
            return refused
        run = compose_run(trigger)
        found = await self.find_run(run)
        if found is not None:
            return compare(run, found)
        refused = refuse_run(run, known, settings)
        if refused is not None:
            return refused
        try:
            handle = await self.start(read_start(run, is_offloaded=has_to_offload(run, settings)))
        except Conflict:
            found = await self.find_run(run)
            if found is None:
                raise
            return compare(run, found)
        shown = await self._resource(handle.id)
        return created(shown) if compare(run, shown).answer is TriggerAnswer.CREATED else compare(run, shown)

    async def _record(self, row: ResourceRow, decision: TriggerDecision) -> bool:
        """Keep a decision, and count it for its Impulse, in one transaction; False when somebody was quicker."""
        client = self._client
        now = client.clock.now()
        body = status_of(decision, row.created_at, now)
        changes: list[ResourceWrite | ResourceRemoval] = [rewritten(row, body)]
        if not decision.is_final:
            if row.status == jsontext.encode(body):
                return True
            return await client.store.write_catalog(changes) is None
        mark = pending_mark(row.key)
        impulse = impulse_of(document(row))
        rows = await client.store.resources([mark, *([impulse] if impulse else [])])
        if mark in rows:
            changes.append(ResourceRemoval(mark, rows[mark].version))
        if impulse is not None and impulse in rows:
            counted = impulse_counts.count_decision(
                status_in(rows[impulse]), decision.answer is not TriggerAnswer.REJECTED, now
            )
            changes.append(rewritten(rows[impulse], counted))
        return await client.store.write_catalog(changes) is None

    async def _forget_mark(self, key: ResourceKey) -> None:
        mark = pending_mark(key)
        rows = await self._client.store.resources([mark])
        if mark in rows:
            await self._client.store.write_catalog([ResourceRemoval(mark, rows[mark].version)])

    # Runs.

    async def start(self, start: RunStart) -> Handle:
        """Start the Story of a StoryRun, as it is in the catalog now."""
        client = self._client
        text = await client.catalog.text(RESOURCE_KINDS["Story"], start.story.name, start.story.namespace)
        return await client.start(
            text, start.inputs, token=start.token, labels=start.labels, options=start.options, name=start.story.name
        )

    async def find_run(self, run: Resource) -> Resource | None:
        """The StoryRun that has this name already."""
        id = run_id_for_name(LANGUAGE, namespace_of(run), name_of(run))
        return None if await self._client.store.find(id) is None else await self._resource(id)

    async def _resource(self, run: RunId) -> Resource:
        return self._language.resources(await self._client.show(run))[0]

    async def _known(self, trigger: Resource) -> ResourceIndex:
        target = read_reference(spec_of(trigger).get("storyRef"), namespace_of(trigger))
        if target is None:
            return ResourceIndex()
        asked: list[Lookup] = [
            ResourceKey("Story", target.namespace, target.name),
            ResourcesInNamespace("ReferenceGrant", target.namespace),
        ]
        found = await self._client.validator.fetch(asked)
        story, grants = (found[one] for one in asked)
        return ResourceIndex([*([story] if story else []), *grants])

    async def _row(self, key: ResourceKey) -> ResourceRow | None:
        return (await self._client.store.resources([key])).get(key)
