"""Durable requests to start Stories (STY-148 to 153) and documents of other languages (SRV-041).

    submit ──one commit──▶ StoryTrigger, Pending ──start──▶ the run ──one commit──▶ decision and counters

A crash at any point leaves a request that the next process to open the store decides; it finds the run if it
started.
"""

import logging
import secrets
from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from perdure.dialects.story.language import Story
from perdure.dialects.story.resources import labels
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.resource import (
    Resource,
    ResourceIndex,
    annotations_of,
    name_of,
    namespace_of,
    read_reference,
    spec_of,
)
from perdure.dialects.story.triggers import impulse_counts
from perdure.dialects.story.triggers.decisions import (
    TriggerAnswer,
    TriggerDecision,
    TriggerReason,
    answer_of,
    compare,
    created,
    decide_document_run,
    has_to_offload,
    refuse_document_request,
    refuse_request,
    refuse_run,
    reject,
    status_of,
)
from perdure.dialects.story.triggers.requests import (
    LANGUAGE,
    Delivery,
    DocumentReference,
    RunStart,
    compose_run,
    compose_trigger,
    document_of,
    identity_of,
    impulse_of,
    is_same_request,
    read_start,
    target_of,
)
from perdure.engine.client import STARTED_ON_STORE, Client
from perdure.engine.handle import Handle
from perdure.engine.random_ids import run_id_for_name
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.catalog_changes import Rejected, pending_mark, retry_on_conflict
from perdure.engine.resources.lookup_answers import document
from perdure.engine.runs.message_sending import need_engine
from perdure.engine.runs.retention import REQUEST_ENTRY
from perdure.kernel.documents.lookups import Lookup, ResourceKey, ResourcesInNamespace
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import Conflict, InvalidDocument, StartRefused, UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.services.entry_status import rewritten, status_in
from perdure.services.failure_alerts import RunWatch, watch_write
from perdure.services.story.triggers import counted_runs, impulse_throttle
from perdure.stores.errors import StoreError
from perdure.stores.protocol import CatalogConflict, ResourceRemoval, ResourceRow, ResourceWrite, RunFilter

TRIGGER = RESOURCE_KINDS["StoryTrigger"]

_log = logging.getLogger("perdure.triggers")


class Requests:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._language = cast(Story, client.languages[LANGUAGE])

    async def trigger(
        self,
        story: str | Mapping[str, Any] | None,
        inputs: dict[str, Any] | None = None,
        *,
        token: str | None = None,
        key: str | None = None,
        impulse: Mapping[str, Any] | None = None,
        namespace: str = "default",
        annotations: Mapping[str, str] | None = None,
        document: Mapping[str, Any] | None = None,
    ) -> Resource:
        """Request a run and return the decided StoryTrigger. With a token or a key, the same request is made once.

        Instead of a Story, `document` names a document of any language: `{language, name}`.
        """
        members = {"documentRef": document} if story is None else {"storyRef": story}
        target = target_of(members)
        mode = "token" if token is not None else "key" if key is not None else "none"
        identity = (secrets.token_hex(16), mode, token or key or "", impulse)
        delivery = Delivery(target.get("storyRef"), inputs, *identity, target.get("documentRef"))
        resource = compose_trigger(delivery, namespace)
        if annotations:
            resource["metadata"]["annotations"] = dict(annotations)
        return await self.submit(resource)

    async def submit(self, resource: Resource) -> Resource:
        """Store a request durably and decide it. A request that was made before is not made again."""
        key, _ = await self.admit(resource)
        return await self.settle(key)

    async def admit(self, resource: Resource) -> tuple[ResourceKey, bool]:
        """Store a request durably; whether it is a new one."""
        key = ResourceKey(TRIGGER.name, namespace_of(resource), name_of(resource))
        row = await self._row(key)
        if row is None:
            await need_engine(self._client)
            return key, await self._store(resource, key)
        if not is_same_request(document(row), resource):
            raise Conflict(
                f"{TRIGGER.title(key.name)}: the token was used before with another Story or other inputs",
                hint=f"See `perdure get storytrigger {key.name} -n {key.namespace} -o yaml`.",
            )
        return key, False

    async def _store(self, resource: Resource, key: ResourceKey) -> bool:
        text = jsontext.encode(resource).decode()
        try:
            await self._client.catalog.apply([AppliedDocument(f"storytrigger/{key.name}", text)], key.namespace)
        except Rejected:
            row = await self._row(key)  # the same request was submitted concurrently
            if row is None:
                raise
            if not is_same_request(document(row), resource):
                raise Conflict(
                    f"{TRIGGER.title(key.name)}: the token is in use with another Story or other inputs"
                ) from None
            return False
        return True

    # Deciding.

    async def settle_pending(self) -> list[Resource]:
        """Decide all undecided requests. One that cannot be decided neither blocks others nor stops the engine."""
        if self._client.runtime is not None and self._client.runtime.is_guest:
            return []  # the servers that drive runs do
        waiting = await self._client.store.list_keys(pending_mark(ResourceKey(TRIGGER.name, "", "")).kind)
        decided = []
        for mark, _ in waiting:
            if counted_runs.is_run_mark(mark):
                await counted_runs.count(self._client, mark)
                continue
            key = ResourceKey(TRIGGER.name, mark.namespace, mark.name)
            try:
                resource = await self.settle(key, missing_ok=True)
            except StoreError:
                raise
            except Exception as error:  # logged; the request stays pending
                _log.warning("%s cannot be decided: %s: %s", TRIGGER.title(key.name), type(error).__name__, error)
                continue
            if resource:
                decided.append(resource)
        return decided

    async def settle(self, key: ResourceKey, *, missing_ok: bool = False) -> Resource:
        """The request with its decision; still Pending if nothing can be started from here."""

        async def attempt() -> Resource | CatalogConflict:
            row = await self._row(key)
            if row is None:
                if missing_ok:
                    await self._forget_mark(key)
                    return {}
                raise ResourceNotFound(f"there is no {TRIGGER.title(key.name)}")
            trigger = document(row)
            if answer_of(trigger) is not TriggerAnswer.PENDING or self._client.runtime is None:
                return trigger
            if not await impulse_throttle.enter(self._client, trigger):
                return trigger
            try:
                decision = await self._decide(trigger)
                conflict = await self._record(row, decision)
            finally:
                await impulse_throttle.leave(self._client, impulse_throttle.throttling_impulse(trigger), key.name)
            return conflict or document(await self._client.catalog.row(TRIGGER, key.name, key.namespace))

        failure = Conflict(
            f"{TRIGGER.title(key.name)} keeps being changed by others", hint="It is stored and will be decided later."
        )
        return await retry_on_conflict(attempt, failure)

    async def _decide(self, trigger: Resource) -> TriggerDecision:
        document, resources = document_of(trigger), await self._referenced_resources(trigger)
        settings = self._language.settings
        refusal = refuse_request if document is None else refuse_document_request
        refused = refusal(trigger, resources, settings)
        if refused is not None:
            return refused
        if document is not None:
            return await self._decide_document(trigger, document)
        run = compose_run(trigger)
        existing = await self.find_run(run)
        if existing is not None:
            return compare(run, existing)
        refused = refuse_run(run, resources, settings)
        if refused is not None:
            return refused
        try:
            start = read_start(run, is_offloaded=has_to_offload(run, settings))
            start = replace(start, system_labels={**start.system_labels, **run_labels(trigger)})
            handle = await self.start(start, requester(trigger))
        except Conflict:
            existing = await self.find_run(run)
            if existing is None:
                raise
            return compare(run, existing)
        started = await self._resource(handle.id)
        return created(started) if compare(run, started).answer is TriggerAnswer.CREATED else compare(run, started)

    async def _decide_document(self, trigger: Resource, document: DocumentReference) -> TriggerDecision:
        """Start a document of another language, as it is in the catalog now."""
        client, namespace = self._client, namespace_of(trigger)
        entry = "/".join((TRIGGER.name, namespace, name_of(trigger)))
        for row in await client.search(RunFilter(labels={REQUEST_ENTRY: entry}, limit=1)):
            return decide_document_run(row.id, row.language, row.name, is_ours=True)  # decided after a crash
        kind = client.catalog.document_kind(document.language)
        if kind is None:
            return reject(TriggerReason.INVALID, f"{document.language!r} is not a language known here")
        try:
            version = int(document.version) if document.version else None
            text = await client.catalog.text(kind, document.name, namespace, version)
            entry_row = await client.catalog.row(kind, document.name, namespace)
        except ResourceNotFound as absent:
            return reject(TriggerReason.NO_DOCUMENT, str(absent))
        _, identity = identity_of(trigger)
        try:
            handle = await client.start(
                text,
                spec_of(trigger).get("inputs") or {},
                name=document.name,
                token=identity,
                system_labels={**run_labels(trigger), REQUEST_ENTRY: entry},
                namespace=namespace,
                started_by=requester(trigger),
                from_api=entry_row.from_api,
            )
        except Conflict as conflict:
            return reject(TriggerReason.DOCUMENT_RUN_CONFLICT, str(conflict))
        except (InvalidDocument, StartRefused, UnfitInput) as unfit:
            return reject(TriggerReason.INVALID, str(unfit))
        row = await client.find(handle.id)
        is_ours = row.labels.get(REQUEST_ENTRY) == entry
        return decide_document_run(row.id, row.language, row.name, is_ours=is_ours)

    async def _record(self, row: ResourceRow, decision: TriggerDecision) -> CatalogConflict | None:
        """Keep a decision, and count it for its Impulse, in one transaction."""
        client = self._client
        now = client.clock.now()
        body = status_of(decision, row.created_at, now)
        changes: list[ResourceWrite | ResourceRemoval] = [rewritten(row, body)]
        if not decision.is_final:
            if row.status == jsontext.encode(body):
                return None
            return await client.store.write_catalog(changes)
        mark = pending_mark(row.key)
        trigger = document(row)
        impulse = impulse_of(trigger)
        watch = None if impulse is None else await self._watch(trigger, impulse, body)
        keys = [mark, *([impulse] if impulse else []), *([watch.key] if watch else [])]
        rows = await client.store.resources(keys)
        if mark in rows:
            changes.append(ResourceRemoval(mark, rows[mark].version))
        if watch is not None and watch.key not in rows:
            changes.append(watch)
        if impulse is not None and impulse in rows:
            impulse_status = impulse_counts.count_decision(
                status_in(rows[impulse]), decision.answer is not TriggerAnswer.REJECTED, now
            )
            changes.append(rewritten(rows[impulse], impulse_status))
        return await client.store.write_catalog(changes)

    async def _watch(self, trigger: Resource, impulse: ResourceKey, status: Mapping[str, Any]) -> ResourceWrite | None:
        """The note that the created run is watched, where its Impulse says what to run if it fails."""
        if status["decision"] != TriggerAnswer.CREATED:
            return None
        row = await self._row(impulse)
        hook = None if row is None else failure_hook(document(row), trigger)
        run = run_of_status(status)
        if hook is None or run is None:
            return None
        schedule, scheduled_at = (annotations_of(trigger).get(name) for name in (labels.SCHEDULE, labels.SCHEDULED_AT))
        cause = {"impulse": impulse.name, "schedule": schedule, "scheduledAt": scheduled_at}
        target, inputs = target_of(hook), hook.get("inputs") or {}
        return watch_write(RunWatch(run, impulse.namespace, target, inputs, cause))

    async def _forget_mark(self, key: ResourceKey) -> None:
        mark = pending_mark(key)
        rows = await self._client.store.resources([mark])
        if mark in rows:
            await self._client.store.write_catalog([ResourceRemoval(mark, rows[mark].version)])

    # Runs.

    async def start(self, start: RunStart, started_by: tuple[str, str] = STARTED_ON_STORE) -> Handle:
        """Start the Story of a StoryRun, as it is in the catalog now."""
        client = self._client
        row = await client.catalog.row(RESOURCE_KINDS["Story"], start.story.name, start.story.namespace)
        return await client.start(
            row.source or row.body,
            start.inputs,
            token=start.token,
            labels=start.labels,
            system_labels=start.system_labels,
            options=start.options,
            name=start.story.name,
            namespace=start.namespace,
            started_by=started_by,
            from_api=row.from_api,
        )

    async def find_run(self, run: Resource) -> Resource | None:
        """The existing StoryRun with this name."""
        id = run_id_for_name(LANGUAGE, namespace_of(run), name_of(run))
        return None if await self._client.store.find(id) is None else await self._resource(id)

    async def _resource(self, run: RunId) -> Resource:
        return self._language.resources(await self._client.show(run))[0]

    async def _referenced_resources(self, trigger: Resource) -> ResourceIndex:
        """The Story, and the grants of its namespace and of the Impulse's."""
        own = namespace_of(trigger)
        references = [read_reference(spec_of(trigger).get(name), own) for name in ("storyRef", "impulseRef")]
        namespaces = {reference.namespace for reference in references if reference is not None} - {own}
        lookups: list[Lookup] = [ResourcesInNamespace("ReferenceGrant", namespace) for namespace in sorted(namespaces)]
        stories = [] if references[0] is None else [ResourceKey("Story", references[0].namespace, references[0].name)]
        resources = await self._client.validator.fetch([*stories, *lookups])
        grants = [grant for lookup in lookups for grant in resources[lookup]]
        return ResourceIndex([*(story for key in stories if (story := resources[key])), *grants])

    async def _row(self, key: ResourceKey) -> ResourceRow | None:
        return (await self._client.store.resources([key])).get(key)


def failure_hook(impulse: Resource, trigger: Resource) -> Mapping[str, Any] | None:
    """What to run if the run of a request fails: as its schedule says, otherwise as its Impulse says."""
    schedule = annotations_of(trigger).get(labels.SCHEDULE)
    config = spec_of(impulse).get("with")
    entries = config.get("schedules") if isinstance(config, dict) and schedule else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == schedule and isinstance(entry.get("onFailure"), dict):
            return cast(Mapping[str, Any], entry["onFailure"])
    hook = spec_of(impulse).get("onFailure")
    return hook if isinstance(hook, dict) else None


async def start_alert(client: Client, watch: RunWatch, input: dict[str, Any], token: str) -> str:
    """Request the document that is run when a watched run has failed; what became of the request."""
    decided = await Requests(client).trigger(
        watch.target.get("storyRef"),
        input,
        token=token,
        namespace=watch.namespace,
        annotations={labels.ALERT_FOR: watch.run},
        document=watch.target.get("documentRef"),
    )
    status = decided["status"]
    return f"{status['decision']}, {status.get('message', '')}"


def run_of_status(status: Mapping[str, Any]) -> RunId | None:
    """The run that a decided StoryTrigger has started or found."""
    if "runRef" in status:
        return RunId(status["runRef"]["id"])
    run = status.get("storyRunRef")
    return None if run is None else run_id_for_name(LANGUAGE, run["namespace"], run["name"])


def requester(trigger: Resource) -> tuple[str, str]:
    """Who starts the run of a request: its Impulse, or whoever has written the request into the store."""
    impulse = impulse_of(trigger)
    return STARTED_ON_STORE if impulse is None else (f"{impulse.namespace}/{impulse.name}", "impulse")


def run_labels(trigger: Resource) -> dict[str, str]:
    """Labels by which the runs of an Impulse or a schedule are found, in every language."""
    kept_labels: dict[str, str] = {}
    impulse = impulse_of(trigger)
    if impulse is not None:
        kept_labels[labels.IMPULSE] = f"{impulse.namespace}/{impulse.name}"
    for name in (labels.SCHEDULE, labels.SCHEDULED_AT, labels.ALERT_FOR):
        value = annotations_of(trigger).get(name)
        if isinstance(value, str):
            kept_labels[name] = value
    return kept_labels
