"""Runs as objects, where their language shows them so: read from their records, changed by control messages."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.decision_threads import ShortTurns
from perdure.engine.random_ids import run_id_for_name
from perdure.engine.resources.catalog_changes import Finding, Rejected, VersionConflict, version_conflict
from perdure.engine.runs.retention import Sweeper, delete_run
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import Conflict, UnfitInput
from perdure.kernel.execution import Execution
from perdure.kernel.ids import reserved_label
from perdure.kernel.input_recording import CHANGED
from perdure.kernel.instants import format_instant
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.server.kubernetes.catalog_objects import OWN_METADATA, already_exists, not_found, warnings_of
from perdure.server.kubernetes.run_resources import events_seen, is_before
from perdure.server.kubernetes.selectors import ObjectSelection, check_behind
from perdure.stores.protocol import RunFilter, RunRow, StoredRun
from perdure.views.api_errors import NotReady
from perdure.views.resources.document_check import NotApplied
from perdure.views.resources.resource_changes import sent_by

if TYPE_CHECKING:
    from perdure.server.calls import ApiCall
    from perdure.server.kubernetes.discovery import ApiResource
    from perdure.server.kubernetes.run_resources import RunViews

Object = dict[str, Any]
LOADED_AT_ONCE = 200
MOST_LISTED = 10_000  # in an answer that was asked for without a limit


class RunObjects:
    """The objects of one kind, for one request."""

    def __init__(self, call: "ApiCall", resource: "ApiResource", views: "RunViews") -> None:
        self._call = call
        self._resource = resource
        self._kind: ResourceKind = resource.kind
        self._views = views
        self._client: Client = call.engine
        self._language = call.engine.catalog.language_of(resource.kind)

    async def get(self, namespace: str, name: str) -> Object:
        view = await self._find(namespace, name)
        if view is None:
            raise not_found(self._resource, name)
        return view[1]

    async def _find(self, namespace: str, name: str) -> tuple[RunRow, Object] | None:
        for row in await self._holders(namespace, name):
            for item in await self._objects([row.id]):
                if item[1]["kind"] == self._kind.name and item[1]["metadata"]["name"] == name:
                    return item
        return None

    async def renewed_version(self, namespace: str, name: str, version: int) -> int:
        """The present version of a run, if nothing that is shown has changed since this one."""
        view = await self._find(namespace, name)
        if view is None:
            return version
        run, current = view[0].id, int(view[1]["metadata"]["resourceVersion"])
        if version == current or not is_before(run, events_seen(version, 0), current):
            return version
        rows = await self._client.store.history(run, events_seen(version, 0))
        turns = [turn for _, row in rows for turn in decode_turns(self._language, row)]
        shown = self._language.shown_events
        return current if all(shown.isdisjoint(map(type, events)) for _, events in turns) else version

    async def _row(self, metadata: Mapping[str, Any]) -> RunRow:
        view = await self._find(metadata["namespace"], metadata["name"])
        if view is None:
            raise not_found(self._resource, metadata["name"])
        return view[0]

    async def _holders(self, namespace: str, name: str) -> list[RunRow]:
        """The runs that may show it, by their own names."""
        rows: dict[RunId, RunRow] = {}
        for called in self._language.holders(self._kind.name, name):
            row = await self._client.store.find(run_id_for_name(self._language.name, namespace, called))
            holders = [row] if row is not None else []
            holders += await self._client.named(self._language.name_label, called, [namespace])
            rows |= {row.id: row for row in holders if row.namespace == namespace}
        return list(rows.values())

    async def _objects(self, runs: Sequence[RunId]) -> list[tuple[RunRow, Object]]:
        stored = await self._client.store.load(list(runs))
        return [(run.row, item) for run in stored for item in await self._shown(run)]

    async def _shown(self, run: StoredRun) -> list[Object]:
        return await self._views.of(self._client, run, with_parts=not self._kind.is_request)

    async def page(
        self, namespace: str | None, selection: ObjectSelection, limit: int, behind: Sequence[Any]
    ) -> tuple[list[Object], list[Any] | None]:
        """Those of the latest runs first, and the run behind which the next page begins, with how many of its parts."""
        most = limit or MOST_LISTED
        listed: list[Object] = []
        named = selection.fields.equal.get("metadata.name")
        if named is not None and namespace is not None:
            view = await self._find(namespace, named)
            return ([view[1]] if view is not None and selection.matches(view[1]) else []), None
        check_behind(behind, int, str, int)
        last: tuple[Any, Any, int] | None = None
        at_once = min(most + 1, LOADED_AT_ONCE) if self._kind.is_request else LOADED_AT_ONCE
        async for row, items in self._latest(namespace, self._labels(selection), behind, at_once):
            skipped = int(behind[2]) if behind and row.id == behind[1] else 0
            for number, item in enumerate(items, 1):
                if number <= skipped or item["kind"] != self._kind.name or not selection.matches(item):
                    continue
                if len(listed) == most:
                    assert last is not None
                    return listed, list(last)
                listed.append(item)
                last = (row.created_at, row.id, number)
        return listed, None

    def _labels(self, selection: ObjectSelection) -> dict[str, str]:
        """Those by which runs are found: of parts of runs, and those of the engine, only the run's name."""
        return {
            name: value
            for name, value in selection.labels.equal.items()
            if name == self._language.name_label or (self._kind.is_request and not reserved_label([name]))
        }

    async def _latest(
        self, namespace: str | None, labels: dict[str, str], behind: Sequence[Any], at_once: int
    ) -> AsyncIterator[tuple[RunRow, list[Object]]]:
        """Runs page by page; the one that a page ended with is looked at again, for its further parts."""
        names = self._call.caller.narrowed(namespace)
        place = (int(behind[0]), RunId(str(behind[1]))) if behind else None
        turns = ShortTurns()
        if place is not None:
            for run in await self._client.store.load([place[1]]):
                is_visible = names is None or run.row.namespace in names
                if is_visible and (run.row.created_at, run.row.language) == (place[0], self._language.name):
                    yield run.row, await self._shown(run)
        while True:
            among = RunFilter(
                language=self._language.name, labels=labels, namespaces=names, limit=at_once, behind=place
            )
            rows = await self._client.search(among)
            for run in await self._client.store.load([row.id for row in rows]):
                yield run.row, await self._shown(run)
                await turns.pause()
            if len(rows) < at_once:
                return
            place = (rows[-1].created_at, rows[-1].id)

    # Changing.

    async def create(self, body: Object, *, dry: bool) -> tuple[Object, list[str]]:
        metadata = body["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        if await self._find(namespace, name) is not None:
            raise already_exists(self._resource, name)
        own = {member: value for member, value in metadata.items() if member in OWN_METADATA and value}
        declared = {**{member: value for member, value in body.items() if member != "status"}, "metadata": own}
        texts = [AppliedDocument(name, jsontext.encode(declared).decode())]
        engine = self._call.documents
        findings: list[Finding]
        try:
            if dry:
                _, findings = await engine.catalog.apply(texts, namespace, dry_run=True)
            else:
                _, findings = await engine.apply(texts, namespace)
        except Rejected as rejected:
            raise NotApplied(rejected.findings) from None
        if dry:
            created = format_instant(self._client.clock.now())
            return {**declared, "metadata": {**own, "generation": 1, "creationTimestamp": created}}, warnings_of(
                findings
            )
        return await self.get(namespace, name), warnings_of(findings)

    async def replace(
        self, before: Object, body: Object, *, part: str, dry: bool, version: int | None
    ) -> tuple[Object, list[str]]:
        metadata = before["metadata"]
        if version is not None and str(version) != metadata["resourceVersion"]:
            raise self._conflict(metadata["name"])
        changes = _status_changes(before, body) if part == "status" else _changes(before, body)
        if not changes:
            return before, []
        run = (await self._row(metadata)).id
        execution = await self._client.execution(run)
        try:
            messages = self._language.patched(execution, self._kind.name, changes)
        except ValueError as error:
            raise UnfitInput(f"{next(iter(changes))}: {error}") from None
        if dry:
            return self._foreseen(execution, before, body, messages), []
        if messages and isinstance(messages[0], i.Cancel | i.Steer | i.Reopen):  # the owner compares, when it decides
            seen = events_seen(version, execution.state.seq)
            messages = [msgspec.structs.replace(messages[0], seen=seen), *messages[1:]]
        for message in messages:
            try:
                sent = await self._client.tell(run, sent_by(message, self._call.caller.identity))
            except Conflict as refusal:
                raise self._conflict(metadata["name"]) if CHANGED in str(refusal) else refusal from None
            if not sent.is_decided:
                raise NotReady(f"run {run} has not decided yet")
        return await self.get(metadata["namespace"], metadata["name"]), []

    def _conflict(self, name: str) -> VersionConflict:
        return version_conflict(self._kind, self._client.catalog.key(self._kind, name))

    def _foreseen(self, execution: Execution, before: Object, body: Object, messages: Sequence[i.Input]) -> Object:
        for message in messages:
            if not isinstance(message, i.Signal | i.Steer | i.Reopen):
                continue
            if refusal := self._language.refusal(execution, message):
                raise Conflict(refusal, hint="Look at the run's status.")
        return {**body, "metadata": {**before["metadata"], **body["metadata"]}}

    async def delete(self, item: Object, *, version: int | None) -> Object | None:
        """An ended run goes at once; an open one is cancelled, and goes once it has ended."""
        metadata = item["metadata"]
        row = await self._row(metadata)
        if row.status.is_final:
            result = await delete_run(self._client, row.id)
            return None if result.is_decided else self._going(item)
        if item["metadata"].get("deletionTimestamp"):
            return item
        state = (await self._client.execution(row.id)).state
        if not state.cancel_requested:
            seen = events_seen(version, state.seq)
            await self._client.tell(row.id, i.Cancel("it was deleted", self._call.caller.identity, seen=seen))
        await Sweeper(self._client).disown(row.id)
        if self._client.runtime is not None:
            await self._client.runtime.read_inbox()
        left = await self._find(metadata["namespace"], metadata["name"])
        return None if left is None else self._going(left[1])

    def _going(self, item: Object) -> Object:
        now = format_instant(self._client.clock.now())
        return {**item, "metadata": {"deletionTimestamp": now, **item["metadata"]}}


def _difference(before: Any, after: Any) -> Object:
    """A merge patch from one object to another, one level deep."""
    old = before if isinstance(before, dict) else {}
    new = after if isinstance(after, dict) else {}
    changed = {name: value for name, value in new.items() if name not in old or old[name] != value}
    return {**changed, **{name: None for name in old if name not in new}}


def _changes(before: Object, body: Object) -> Object:
    """What a writer of the main resource changes; the status is not its business."""
    changes: Object = {}
    if spec := _difference(_with_default(before.get("spec")), _with_default(body.get("spec"))):
        changes["spec"] = spec
    metadata = {
        part: difference
        for part in ("labels", "annotations")
        if (difference := _difference(before["metadata"].get(part), body["metadata"].get(part)))
    }
    if metadata:
        changes["metadata"] = metadata
    if unknown := [name for name in body if name not in ("apiVersion", "kind", "metadata", "spec", "status")]:
        raise UnfitInput(f"{unknown[0]}: unknown field")
    return changes


def _with_default(spec: Any) -> Any:
    return {name: value for name, value in spec.items() if value is not False} if isinstance(spec, dict) else spec


def _status_changes(before: Object, body: Object) -> Object:
    """Of the status only decisions of gates can change."""
    changed = _difference(before.get("status"), body.get("status"))
    gates = changed.pop("gates", None)
    if changed:
        raise UnfitInput(f"status.{next(iter(changed))}: only status.gates can be changed")
    if gates is None:
        return {}
    old: Mapping[str, Any] = before["status"].get("gates") or {}
    decisions = {step: decision for step, decision in _difference(old, gates).items() if decision is not None}
    return {"status": {"gates": {step: _decision(old.get(step) or {}, new) for step, new in decisions.items()}}}


def _decision(before: Mapping[str, Any], after: Any) -> Any:
    """What is said anew. Who decides is who the token is: a name that is given stands behind the message."""
    if not isinstance(after, dict):
        return after
    decision = {name: value for name, value in after.items() if name not in ("updatedAt", "updatedBy")}
    name = after.get("updatedBy")
    if name and name != before.get("updatedBy"):
        decision["message"] = f"{decision.get('message') or ''} (givenBy: {str(name)[:200]})".strip()
    return decision
