"""Namespaces, ConfigMaps and Secrets. Values of Secrets are encrypted before they are stored, and never told."""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure.engine.random_ids import new_uid
from perdure.engine.resources.catalog import key_of
from perdure.engine.resources.catalog_changes import version_conflict
from perdure.engine.resources.field_managers import (
    APPLY,
    FieldManager,
    Path,
    leaves,
    managers_json,
    stored_managers,
    value_of,
)
from perdure.engine.resources.lookup_answers import document, to_second
from perdure.engine.secrets.kept_secrets import SECRET_KIND, KeptSecrets
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict, UnfitInput
from perdure.kernel.ids import DEFAULT_NAMESPACE, namespace_problem
from perdure.kernel.json_values import jsontext
from perdure.server.kubernetes.catalog_objects import (
    KUBECTL,
    LAST_APPLIED,
    already_exists,
    apply_fields,
    changed_managers,
    manager_of,
    managers_text,
    not_found,
    own_metadata,
    page_of_rows,
)
from perdure.server.kubernetes.selectors import check_behind
from perdure.stores.protocol import ResourceRemoval, ResourceRow, ResourceWrite

if TYPE_CHECKING:
    from perdure.server.calls import ApiCall
    from perdure.server.kubernetes.discovery import ApiResource
    from perdure.server.kubernetes.selectors import ObjectSelection

Object = dict[str, Any]
KEYS = "perdure.dev/keys"
LARGEST = 1 << 20  # bytes of an object's data
MEMBERS = {
    "ConfigMap": ("data", "binaryData", "immutable"),
    SECRET_KIND: ("data", "stringData", "type", "immutable"),
    "Namespace": ("spec",),
}

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


class CoreObjects:
    """ConfigMaps and Secrets, for one request."""

    def __init__(self, call: "ApiCall", resource: "ApiResource") -> None:
        self._call = call
        self._resource = resource
        self._kind = resource.kind
        self._store = call.engine.store

    async def get(self, namespace: str, name: str) -> Object:
        return _managed(await self._row(namespace, name))

    async def _row(self, namespace: str, name: str) -> ResourceRow:
        key = key_of(self._kind, name, namespace)
        row = (await self._store.resources([key])).get(key)
        if row is None:
            raise not_found(self._resource, name)
        return row

    async def page(
        self, namespace: str | None, selection: "ObjectSelection", limit: int, behind: Sequence[Any]
    ) -> tuple[list[Object], list[Any] | None]:
        sees = self._call.caller.sees

        def matches(row: ResourceRow) -> bool:
            return sees(row.key.namespace) and selection.matches(told_object(row))

        page, last = await page_of_rows(self._store, self._kind.name, namespace, selection, matches, limit, behind)
        return [_managed(row) for row in page], last

    async def create(self, body: Object, *, dry: bool) -> tuple[Object, list[str]]:
        _check_members(self._kind.name, body)
        managers = await changed_managers(self._call, self._kind, {}, _fields(body))
        return await self._write(body, None, managers, dry=dry), []

    async def replace(
        self, before: Object, body: Object, *, part: str, dry: bool, version: int | None
    ) -> tuple[Object, list[str]]:
        metadata = body["metadata"]
        row = await self._row(metadata.get("namespace", ""), metadata["name"])
        if version is not None and version != row.version:
            raise version_conflict(self._kind, row.key)
        _check_members(self._kind.name, body)
        managers = await changed_managers(
            self._call, self._kind, self._compared(row, before), self._compared(row, body)
        )
        return await self._write(body, row, managers, dry=dry), []

    async def apply(self, body: Object, *, dry: bool, force: bool) -> tuple[Object, list[str], bool]:
        """Server-side apply; whether it was created."""
        _check_members(self._kind.name, body)
        manager = manager_of(self._call, self._kind, APPLY)
        key = key_of(self._kind, body["metadata"]["name"], body["metadata"].get("namespace", ""))
        row = (await self._store.resources([key])).get(key)
        if row is None:
            managers = managers_json([manager.with_fields(leaves(_fields(body)))])
            return await self._write(body, None, managers, dry=dry), [], True
        before = _managed(row)
        live, asked = self._compared(row, before), self._compared(row, body)
        changed = await apply_fields(live, asked, manager, force=force, free=_applied_by_client(live, manager))
        if changed is None:
            return before, [], False
        return await self._write(changed[0], row, changed[1], dry=dry), [], False

    def _compared(self, row: ResourceRow, body: Object) -> Object:
        """As its fields are compared: a value of a Secret that is shown or given back empty is the one that is kept.

        The values stay in this request: who owns a field is told by its name.
        """
        fields = _fields(body)
        if self._kind.name != SECRET_KIND or not fields.get("data"):
            return fields
        kept = self._kept().values(row)
        return {**fields, "data": {name: text or kept.get(name, "") for name, text in fields["data"].items()}}

    def _kept(self) -> KeptSecrets:
        return KeptSecrets(self._store, self._call.engine.credentials.keys)

    async def _write(self, body: Object, row: ResourceRow | None, managers: list[Object], *, dry: bool) -> Object:
        metadata = own_metadata(body)
        name = metadata["name"]
        if not _NAME.fullmatch(name):
            raise UnfitInput(
                f"metadata.name: {name[:80]!r} is not a name (expected lower-case letters, digits, - and .)"
            )
        key = key_of(self._kind, name, metadata.get("namespace", ""))
        stored, status = self._stored(key, body, metadata, row)
        text = jsontext.encode(stored)
        if row is not None:
            if document(row).get("immutable") and jsontext.canonical(stored) != _canonical(row.body):
                raise UnfitInput("immutable: what this object says can not be changed", hint="Delete it first.")
            is_same = jsontext.canonical(stored) == _canonical(row.body) and status in (None, row.status)
            if is_same and _owners(managers) == _owners(_managed(row)["metadata"].get("managedFields", [])):
                return _managed(row)
        labels = {label: str(value) for label, value in (metadata.get("labels") or {}).items()}
        uid, version = (new_uid(), 0) if row is None else (row.uid, row.version)
        head = (key, uid, 1, text, b"", labels, status or (row.status if row else None), version)
        write = ResourceWrite(*head, True, managers_text(managers))
        if dry:
            facts = {"uid": uid, "creationTimestamp": to_second(self._call.engine.clock.now())}
            return blanked({**stored, "metadata": {**stored["metadata"], **facts, "managedFields": managers}})
        if await self._store.write_catalog([write]) is not None:
            raise already_exists(self._resource, name) if row is None else version_conflict(self._kind, key)
        return await self.get(key.namespace, key.name)

    def _stored(
        self, key: ResourceKey, body: Object, metadata: Object, row: ResourceRow | None
    ) -> tuple[Object, bytes | None]:
        """The object without values, and what is kept of those; None: what there is."""
        stored: Object = {"apiVersion": "v1", "kind": self._kind.name, "metadata": metadata}
        if self._kind.name != SECRET_KIND:
            return {**stored, **{name: body[name] for name in MEMBERS[self._kind.name] if body.get(name)}}, None
        notes = {
            name: text for name, text in (metadata.get("annotations") or {}).items() if name not in (LAST_APPLIED, KEYS)
        }
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        if notes:
            metadata["annotations"] = notes
        kept = self._kept()
        before = {} if row is None else kept.values(row)
        values = dict(body.get("data") or {})
        for name, text in (body.get("stringData") or {}).items():
            values[name] = base64.b64encode(text.encode()).decode()
        values = {name: before.get(name, "") if text == "" else text for name, text in values.items()}
        stored |= {
            "metadata": metadata,
            "type": body.get("type") or "Opaque",
            "data": dict.fromkeys(sorted(values), ""),
        }
        if body.get("immutable"):
            stored["immutable"] = True
        return stored, None if row is not None and values == before else kept.status(key, values)

    async def delete(self, item: Object, *, version: int | None) -> Object | None:
        metadata = item["metadata"]
        row = await self._row(metadata.get("namespace", ""), metadata["name"])
        if await self._store.write_catalog([ResourceRemoval(row.key, version or row.version)]) is not None:
            raise version_conflict(self._kind, row.key)
        return None


def _canonical(text: bytes) -> bytes:
    return jsontext.canonical(jsontext.decode(text))


def _managed(row: ResourceRow) -> Object:
    """With who has set which of its fields."""
    item = told_object(row)
    if row.managers is not None:
        item["metadata"] = {**item["metadata"], "managedFields": stored_managers(row.managers)}
    return item


def _owners(managers: list[Object]) -> list[Object]:
    return [{name: value for name, value in manager.items() if name != "time"} for manager in managers]


def _fields(body: Object) -> Object:
    """As its fields are owned: the names of values in one place, and nothing that the server adds."""
    metadata = body["metadata"]
    notes = {name: text for name, text in (metadata.get("annotations") or {}).items() if name != KEYS}
    fields = {name: value for name, value in body.items() if name != "stringData"}
    fields["metadata"] = {**metadata, "annotations": notes}
    if plain_values := body.get("stringData"):
        values = {name: base64.b64encode(text.encode()).decode() for name, text in plain_values.items()}
        fields["data"] = {**(body.get("data") or {}), **values}
    return fields


def _applied_by_client(live: Object, manager: FieldManager) -> frozenset[Path]:
    """What kubectl has applied itself and nobody has changed since: its server-side apply takes that over."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if manager.name != KUBECTL or not isinstance(text, str):
        return frozenset()
    try:
        before = leaves(jsontext.decode(text.encode()))
    except (ValueError, AttributeError):
        return frozenset()
    return frozenset(path for path, value in before.items() if value_of(live, path) == value)


def told_object(row: ResourceRow) -> Object:
    item = document(row)
    item.pop("status", None)
    return blanked(item)


def blanked(item: Object) -> Object:
    """A Secret has the names of its values in an annotation as well: its data look as if they were empty."""
    if item.get("kind") != SECRET_KIND:
        return item
    metadata = item["metadata"]
    notes = {**(metadata.get("annotations") or {}), KEYS: ",".join(sorted(item.get("data") or {}))}
    return {"type": "Opaque", **item, "metadata": {**metadata, "annotations": notes}}


def _check_members(kind: str, body: Object) -> None:
    allowed = MEMBERS[kind]
    if unknown := [name for name in body if name not in (*allowed, "apiVersion", "kind", "metadata", "status")]:
        raise UnfitInput(f"{unknown[0]}: unknown field of a {kind}")
    size = 0
    for name in ("data", "binaryData", "stringData"):
        values = body.get(name)
        if values is None:
            continue
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise UnfitInput(f"{name}: must be an object of strings")
        for key, value in values.items():
            if not _KEY.fullmatch(key):
                raise UnfitInput(f"{name}: {key[:80]!r} is not a key (expected letters, digits, -, _ and .)")
            size += len(value)
            if (kind == SECRET_KIND and name == "data") or name == "binaryData":
                _check_base64(f"{name}.{key}", value)
    if size > LARGEST:
        raise UnfitInput(f"data: more than {LARGEST} bytes")


def _check_base64(path: str, value: str) -> None:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise UnfitInput(f"{path}: is not Base64", hint="Write plain text under stringData.") from None


class NamespaceObjects(CoreObjects):
    """A namespace exists if it was created, or if something is in it; `default` always does."""

    async def get(self, namespace: str, name: str) -> Object:
        key = key_of(self._kind, name)
        row = (await self._store.resources([key])).get(key)
        if row is None and not await self._is_used(name):
            raise not_found(self._resource, name)
        return complete_namespace(name, row)

    async def apply(self, body: Object, *, dry: bool, force: bool) -> tuple[Object, list[str], bool]:
        name = _checked_name(body)
        if not dry and await self._is_used(name):
            await self._row("", name)
        item, warnings, is_new = await super().apply(body, dry=dry, force=force)
        return complete_namespace(name, None, item), warnings, is_new

    async def _row(self, namespace: str, name: str) -> ResourceRow:
        """An implicit one becomes an entry when it is changed."""
        key = key_of(self._kind, name)
        row = (await self._store.resources([key])).get(key)
        if row is None:
            body = jsontext.encode({"apiVersion": "v1", "kind": self._kind.name, "metadata": {"name": name}})
            await self._store.write_catalog([ResourceWrite(key, new_uid(), 1, body, b"", {}, None, 0, True)])
            row = (await self._store.resources([key])).get(key)
        if row is None:
            raise not_found(self._resource, name)
        return row

    async def _is_used(self, name: str) -> bool:
        return name == DEFAULT_NAMESPACE or name in await self._store.namespaces()

    async def page(
        self, namespace: str | None, selection: "ObjectSelection", limit: int, behind: Sequence[Any]
    ) -> tuple[list[Object], list[Any] | None]:
        rows: Mapping[str, ResourceRow] = {
            row.key.name: row for row in await self._store.list_resources(self._kind.name)
        }
        names = {DEFAULT_NAMESPACE, *rows, *await self._store.namespaces()}
        items = [complete_namespace(name, rows.get(name)) for name in sorted(names) if self._call.caller.sees(name)]
        items = [item for item in items if selection.matches(item)]
        check_behind(behind, str, str)
        if behind:
            items = [item for item in items if item["metadata"]["name"] > behind[1]]
        page = items[:limit] if limit else items
        last = ["", page[-1]["metadata"]["name"]] if len(page) < len(items) else None
        return page, last

    async def create(self, body: Object, *, dry: bool) -> tuple[Object, list[str]]:
        name = _checked_name(body)
        item, warnings = await super().create(body, dry=dry)
        return complete_namespace(name, None, item), warnings

    async def delete(self, item: Object, *, version: int | None) -> Object | None:
        name = item["metadata"]["name"]
        if await self._is_used(name):
            raise Conflict(f"the namespace {name!r} is not empty", hint="Delete what is in it first.")
        key = key_of(self._kind, name)
        row = (await self._store.resources([key])).get(key)
        if row is not None and await self._store.write_catalog([ResourceRemoval(key, row.version)]) is not None:
            raise version_conflict(self._kind, key)
        return None


def _checked_name(body: Object) -> str:
    name: str = body["metadata"]["name"]
    if problem := namespace_problem(name):
        raise UnfitInput(f"metadata.name: {problem}")
    return name


def complete_namespace(name: str, row: ResourceRow | None, written: Object | None = None) -> Object:
    """With what every Namespace has, also one that nobody has created."""
    item = written or (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} if row is None else _managed(row)
    )
    labels = {"kubernetes.io/metadata.name": name, **(item["metadata"].get("labels") or {})}
    metadata = {"uid": f"namespace-{name}", "creationTimestamp": None, **item["metadata"], "labels": labels}
    return {**item, "metadata": metadata, "spec": item.get("spec") or {}, "status": {"phase": "Active"}}
