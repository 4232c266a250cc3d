"""Entries of the catalog as objects. They are admitted as everywhere else; the API adds only its manners."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure.engine.decision_threads import SMALL, ShortTurns, done_aside
from perdure.engine.random_ids import new_uid
from perdure.engine.resources.catalog import ResourceNotFound, key_of
from perdure.engine.resources.catalog_changes import Finding, Rejected, VersionConflict, version_conflict
from perdure.engine.resources.field_managers import (
    APPLY,
    UPDATE,
    FieldManager,
    Path,
    applied,
    leaves,
    managers_json,
    read_managers,
    stored_managers,
    updated,
    value_of,
)
from perdure.engine.resources.lookup_answers import document, to_second
from perdure.engine.resources.resource_usage import with_usage
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.problems import Severity
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.server.kubernetes.selectors import ObjectSelection, check_behind
from perdure.server.kubernetes.statuses import AlreadyExists
from perdure.stores.protocol import ResourceRow, Store
from perdure.views.resources.document_check import NotApplied
from perdure.views.resources.resource_changes import delete_resource
from perdure.views.times import iso

if TYPE_CHECKING:
    from perdure.server.calls import ApiCall
    from perdure.server.kubernetes.discovery import ApiResource

Object = dict[str, Any]
KUBECTL = "kubectl"  # the field manager of its server-side apply
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
READ_AT_ONCE = 500
LARGEST_MANAGERS = 4 << 20  # bytes: each reader of the object reads them
OWN_METADATA = ("name", "namespace", "labels", "annotations")
"""What a writer says; all other members of `metadata` are the server's."""


def not_found(resource: "ApiResource", name: str) -> ResourceNotFound:
    return ResourceNotFound(f'{resource.title} "{name}" not found', hint="List what there is with `kubectl get`.")


def already_exists(resource: "ApiResource", name: str) -> AlreadyExists:
    return AlreadyExists(f'{resource.title} "{name}" already exists')


def check_metadata(body: Object) -> None:
    """What nothing here would act on is refused rather than kept."""
    metadata = body.get("metadata")
    for name in ("finalizers", "ownerReferences"):
        if isinstance(metadata, dict) and metadata.get(name):
            raise UnfitInput(f"metadata.{name}: not supported", hint=f"Leave out metadata.{name}.")
    for name in ("labels", "annotations"):
        texts = metadata.get(name) if isinstance(metadata, dict) else None
        if texts and not (isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values())):
            raise UnfitInput(f"metadata.{name}: must be an object of strings")


async def page_of_rows(
    store: Store,
    kind: str,
    namespace: str | None,
    selection: ObjectSelection,
    matches: Callable[[ResourceRow], bool],
    limit: int,
    behind: Sequence[Any],
) -> tuple[list[ResourceRow], list[Any] | None]:
    """Those that match, in order of namespace and name, and where the next page begins."""
    check_behind(behind, str, str)
    place = (str(behind[0]), str(behind[1])) if behind else ("", "")
    page: list[ResourceRow] = []
    count = min(limit + 1, READ_AT_ONCE) if limit else READ_AT_ONCE
    turns = ShortTurns()
    while True:
        rows = await store.list_resources(kind, namespace, selection.labels.equal, (place, count))
        for row in rows:
            await turns.pause()
            if not matches(row):
                continue
            if limit and len(page) == limit:
                return page, [page[-1].key.namespace, page[-1].key.name]
            page.append(row)
        if len(rows) < count:
            return page, None
        place = (rows[-1].key.namespace, rows[-1].key.name)


class CatalogObjects:
    """The objects of one kind, for one request."""

    def __init__(self, call: "ApiCall", resource: "ApiResource") -> None:
        self._call = call
        self._resource = resource
        self._kind = resource.kind

    async def get(self, namespace: str, name: str) -> Object:
        return (await self._shown([await self._row(namespace, name)]))[0]

    async def _row(self, namespace: str, name: str) -> ResourceRow:
        key = key_of(self._kind, name, namespace)
        row = (await self._call.engine.store.resources([key])).get(key)
        if row is None:
            raise not_found(self._resource, name)
        return row

    async def _shown(self, rows: Sequence[ResourceRow]) -> list[Object]:
        return await with_usage(self._call.engine, self._kind, [entry_object(row) for row in rows])

    async def page(
        self, namespace: str | None, selection: ObjectSelection, limit: int, behind: Sequence[Any]
    ) -> tuple[list[Object], list[Any] | None]:
        """Objects in order of namespace and name, and where the next page begins."""
        within = namespace if self._kind.has_namespace else None
        has_namespace, sees = self._kind.has_namespace, self._call.caller.sees

        def matches(row: ResourceRow) -> bool:
            return (not has_namespace or sees(row.key.namespace)) and selection.matches(entry_object(row))

        page, last = await page_of_rows(
            self._call.engine.store, self._kind.name, within, selection, matches, limit, behind
        )
        return await self._shown(page), last

    async def create(self, body: Object, *, dry: bool) -> tuple[Object, list[str]]:
        key = self._key(body)
        try:
            return await self._write(
                key, body, 0, None, await changed_managers(self._call, self._kind, {}, body), dry=dry
            )
        except VersionConflict:
            raise already_exists(self._resource, key.name) from None

    async def replace(
        self, before: Object, body: Object, *, part: str, dry: bool, version: int | None
    ) -> tuple[Object, list[str]]:
        """`before`: what is there; `version`: the one that the writer has seen, if it said so."""
        key = self._key(body)
        row = await self._row(key.namespace, key.name)
        if version is not None and version != row.version:
            raise version_conflict(self._kind, key)
        if part == "status":
            body = {**before, "metadata": {**before["metadata"], **_own(body)["metadata"]}}
        return await self._write(
            key, body, row.version, row, await changed_managers(self._call, self._kind, before, body), dry=dry
        )

    async def apply(self, body: Object, *, dry: bool, force: bool) -> tuple[Object, list[str], bool]:
        """Server-side apply; whether it was created. What changes nothing is not written."""
        key = self._key(body)
        manager = manager_of(self._call, self._kind, APPLY)
        body = await self._normal(key, body)
        row = (await self._call.engine.store.resources([key])).get(key)
        if row is None:
            managers = managers_json([manager.with_fields(leaves(body))])
            try:
                item, warnings = await self._write(key, body, 0, None, managers, dry=dry)
            except VersionConflict:
                raise already_exists(self._resource, key.name) from None
            return item, warnings, True
        before = await self.get(key.namespace, key.name)
        free = await self._applied_by_client(key, before) if manager.name == KUBECTL else ()

        changed = await apply_fields(before, body, manager, force=force, free=free)
        if changed is None:
            return before, [], False
        item, warnings = await self._write(key, changed[0], row.version, row, changed[1], dry=dry)
        return item, warnings, False

    async def _applied_by_client(self, key: ResourceKey, live: Object) -> frozenset[Path]:
        """What kubectl has applied itself and nobody has changed since: its server-side apply takes that over."""
        try:
            text = jsontext.decode((live["metadata"].get("annotations") or {}).get(LAST_APPLIED, "{}").encode())
        except ValueError:
            return frozenset()
        if not isinstance(text, dict) or not isinstance(text.get("metadata"), dict):
            return frozenset()
        before = leaves(await self._normal(key, text))
        return frozenset(path for path, value in before.items() if value_of(live, path) == value)

    async def _normal(self, key: ResourceKey, body: Object) -> Object:
        """As the catalog would keep it: fields are compared with those that it has."""
        texts = [AppliedDocument(key.name, jsontext.encode(_own(body)).decode())]
        entries, _ = await self._call.documents.catalog.declared(texts, key.namespace)
        return jsontext.decode(entries[0].body) if entries else body

    def _key(self, body: Object) -> ResourceKey:
        metadata = body["metadata"]
        return key_of(self._kind, metadata["name"], metadata.get("namespace", ""))

    async def _write(
        self,
        key: ResourceKey,
        body: Object,
        version: int,
        row: ResourceRow | None,
        managers: list[Object],
        *,
        dry: bool,
    ) -> tuple[Object, list[str]]:
        engine = self._call.documents
        declared = _own(body)
        texts = [AppliedDocument(key.name, jsontext.encode(declared).decode(), managers=managers_text(managers))]
        try:
            if self._kind.is_request and not dry:
                if row is None and await self._exists(key):
                    raise version_conflict(self._kind, key)
                _, findings = await engine.apply(texts, key.namespace)
            else:
                _, findings = await engine.catalog.apply(texts, key.namespace, versions={key: version}, dry_run=dry)
        except Rejected as rejected:
            raise NotApplied(rejected.findings) from None
        if dry:
            foreseen = self._foreseen(declared, row)
            foreseen["metadata"]["managedFields"] = managers
            return (await with_usage(engine, self._kind, [foreseen]))[0], warnings_of(findings)
        if engine.runtime is not None:
            await engine.runtime.read_inbox()
        return await self.get(key.namespace, key.name), warnings_of(findings)

    async def _exists(self, key: ResourceKey) -> bool:
        return bool(await self._call.engine.store.resources([key]))

    def _foreseen(self, declared: Object, row: ResourceRow | None) -> Object:
        """What would be there."""
        if row is None:
            now = iso(self._call.engine.clock.now())
            facts: Object = {"uid": new_uid(), "generation": 1, "creationTimestamp": f"{str(now)[:19]}Z"}
            return {**declared, "metadata": {**declared["metadata"], **facts}}
        before = document(row)
        is_same = _content(before) == _content(declared)
        facts = {name: before["metadata"][name] for name in ("uid", "creationTimestamp", "resourceVersion")}
        facts["generation"] = row.generation + (not is_same)
        shown = {**declared, "metadata": {**declared["metadata"], **facts}}
        return {**shown, "status": before["status"]} if "status" in before else shown

    async def delete(self, item: Object, *, version: int | None) -> Object | None:
        """None: it is gone."""
        metadata = item["metadata"]
        await delete_resource(self._call.engine, self._kind, metadata.get("namespace", ""), metadata["name"], version)
        return None


def _weight(*items: Object) -> int:
    return SMALL + 1 if any(map(jsontext.is_large, items)) else 0


def managers_text(managers: list[Object]) -> bytes:
    text = jsontext.encode(managers)
    if len(text) > LARGEST_MANAGERS:
        raise UnfitInput(
            f"metadata.managedFields: has more than {LARGEST_MANAGERS} bytes: too many managers own fields",
            hint="Write the object with `metadata.managedFields: [{}]` once: then nobody owns any.",
        )
    return text


def _owned(managers: Sequence[FieldManager]) -> dict[tuple[str, str], frozenset[Path]]:
    return {manager.key: manager.fields for manager in managers}


def manager_of(call: "ApiCall", kind: ResourceKind, operation: str) -> FieldManager:
    name = call.query.field_manager or call.headers.get("user-agent", "").partition("/")[0]
    now = to_second(call.engine.clock.wall())
    return FieldManager((name or "unknown")[:128], operation, kind.api_version, now, frozenset())


async def changed_managers(call: "ApiCall", kind: ResourceKind, before: Object, body: Object) -> list[Object]:
    """After a write other than an apply; a client may also rewrite them itself."""
    shown = before.get("metadata", {}).get("managedFields")
    rewritten = body["metadata"].get("managedFields")

    def change() -> list[Object]:
        if rewritten is not None and shown is not None and rewritten != shown:
            return managers_json(read_managers(rewritten))
        return managers_json(updated(before, body, read_managers(shown), manager_of(call, kind, UPDATE)))

    return await done_aside(_weight(before, body), change)


async def apply_fields(
    before: Object, body: Object, manager: FieldManager, *, force: bool, free: Container[Path]
) -> tuple[Object, list[Object]] | None:
    """What an apply makes of an object, and who owns what then; None: it changes nothing. Raises `FieldConflict`."""

    def change() -> tuple[Object, list[Object]] | None:
        shown = read_managers(before["metadata"].get("managedFields"))
        result, after = applied(before, body, shown, manager, force=force, free=free)
        is_same = leaves(result) == leaves(before) and _owned(after) == _owned(shown)
        return None if is_same else (result, managers_json(after))

    return await done_aside(_weight(before, body), change)


def entry_object(row: ResourceRow) -> Object:
    """As the catalog has it, with who has set which of its fields; of what older versions wrote that is not known."""
    item = document(row)
    if row.managers is not None:
        item["metadata"]["managedFields"] = stored_managers(row.managers)
    return item


def own_metadata(body: Object) -> Object:
    return {name: value for name, value in body["metadata"].items() if name in OWN_METADATA and value}


def _own(body: Object) -> Object:
    """What the writer declares: without what the server says of an object."""
    metadata = own_metadata(body)
    return {**{name: value for name, value in body.items() if name != "status"}, "metadata": metadata}


def _content(item: Object) -> bytes:
    return jsontext.canonical({name: value for name, value in item.items() if name not in ("metadata", "status")})


def warnings_of(findings: Sequence[Finding]) -> list[str]:
    return [
        f"{finding.problem.path}: {finding.problem.message}" if finding.problem.path else finding.problem.message
        for finding in findings
        if finding.problem.severity is Severity.WARNING
    ]


def warning_header(warnings: Sequence[str]) -> Mapping[str, str]:
    """RFC 9110: code 299, the agent unknown; of texts that are too long the beginning."""
    if not warnings:
        return {}
    texts = [" ".join(text.split())[:400].replace("\\", "\\\\").replace('"', '\\"') for text in warnings[:20]]
    return {"Warning": ", ".join(f'299 - "{text.encode("ascii", "replace").decode()}"' for text in texts)}
