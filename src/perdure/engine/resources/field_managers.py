"""Who has set which field (`managedFields`), and what server-side apply makes of an object. Pure.

Fields are leaves: a list is one field, as in the original custom resources; members of maps are fields of their own.
"""

from collections.abc import Collection, Container, Iterable, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext

Object = dict[str, Any]
Path = tuple[str, ...]

APPLY, UPDATE = "Apply", "Update"
NOT_MANAGED = frozenset({"apiVersion", "kind", "status"})
MANAGED_METADATA = ("labels", "annotations")
MOST_TOLD = 1_000  # conflicts
_MISSING = object()
_MEMBERS = ("manager", "operation", "apiVersion", "time")


class FieldConflict(Conflict):
    """Another field manager owns fields that are applied with other values."""

    code = "FIELD-CONFLICT"
    hint = "Take the fields over with --force-conflicts, or leave them out."


class FieldManager(msgspec.Struct, frozen=True):
    name: str
    operation: str
    api_version: str
    time: str
    fields: frozenset[Path]

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.operation

    def with_fields(self, fields: Iterable[Path]) -> "FieldManager":
        return msgspec.structs.replace(self, fields=frozenset(fields))


def leaves(item: Object) -> dict[Path, Any]:
    """The fields of an object that somebody can own, with their values."""
    leaves_by_path: dict[Path, Any] = {}
    metadata = item.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for part in MANAGED_METADATA:
        _add_leaves(leaves_by_path, ("metadata", part), metadata.get(part) or {})
    for name, value in item.items():
        if name not in NOT_MANAGED and name != "metadata":
            _add_leaves(leaves_by_path, (name,), value)
    return leaves_by_path


def _add_leaves(leaves_by_path: dict[Path, Any], path: Path, value: Any) -> None:
    if isinstance(value, dict) and (value or path[0] == "metadata" or len(path) == 1):
        for name, member in value.items():
            _add_leaves(leaves_by_path, (*path, name), member)
    else:
        leaves_by_path[path] = value


def value_of(item: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(item, dict) or name not in item:
            return _MISSING
        item = item[name]
    return item


def _set(item: Object, path: Path, value: Any) -> None:
    for name in path[:-1]:
        below = item.get(name)
        if not isinstance(below, dict):
            below = item[name] = {}
        item = below
    item[path[-1]] = deepcopy(value)


def _remove(item: Object, path: Path) -> None:
    """With the maps around it that have nothing else."""
    parents = [item]
    for name in path[:-1]:
        below = parents[-1].get(name)
        if not isinstance(below, dict):
            return
        parents.append(below)
    parents[-1].pop(path[-1], None)
    for parent, name in zip(reversed(parents[:-1]), reversed(path[:-1]), strict=True):
        if parent[name] == {} and name not in ("spec", "metadata"):
            del parent[name]


class _Places:
    """Some fields, asked whether another one is among them, contains one of them, or is a part of one."""

    def __init__(self, fields: Collection[Path]) -> None:
        self._fields = fields
        self._above = {field[:length] for field in fields for length in range(1, len(field))}

    def touch(self, path: Path) -> bool:
        return path in self._above or any(path[:length] in self._fields for length in range(1, len(path) + 1))


def applied(
    live: Object,
    body: Object,
    managers: Sequence[FieldManager],
    manager: FieldManager,
    *,
    force: bool,
    free: Container[Path] = (),
) -> tuple[Object, list[FieldManager]]:
    """The object after an apply, and who owns what then. `FieldConflict`: others own fields, with other values.

    `free`: fields that are taken over without a conflict.
    """
    asked = leaves(body)
    others = [other for other in managers if other.key != manager.key]
    differing = _Places({field for field, value in asked.items() if value_of(live, field) != value})
    conflicts = [(other, path) for other in others for path in sorted(other.fields) if differing.touch(path)]
    refused = [] if force else [(other, path) for other, path in conflicts if path not in free]
    if refused:
        raise _conflict(refused)
    lost = {(other.key, path) for other, path in conflicts}
    kept = [other.with_fields(path for path in other.fields if (other.key, path) not in lost) for other in others]
    own = next((other for other in managers if other.key == manager.key), manager)
    result = deepcopy(live)
    owned, places = {path for other in kept for path in other.fields}, _Places(asked.keys())
    for path in own.fields - asked.keys():
        if path not in owned and not places.touch(path):
            _remove(result, path)
    for path, value in asked.items():
        _set(result, path, value)
    new = manager.with_fields(asked)
    if new.fields == own.fields:
        new = own
    return result, [other for other in [*kept, new] if other.fields]


def _conflict(conflicts: Sequence[tuple[FieldManager, Path]]) -> FieldConflict:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{other.name}" using {other.api_version}',
            "field": "." + ".".join(path),
        }
        for other, path in conflicts[:MOST_TOLD]
    ]
    count = f"{len(conflicts)} conflict" + ("s" if len(conflicts) > 1 else "")
    named = ", ".join(f'"{name}"' for name in dict.fromkeys(other.name for other, _ in conflicts))
    fields = ", ".join(cause["field"] for cause in causes)
    return FieldConflict(f"Apply failed with {count}: conflicts with {named}: {fields}", causes=causes)


def updated(
    before: Object, after: Object, managers: Sequence[FieldManager], manager: FieldManager
) -> list[FieldManager]:
    """Who owns what after any other write: what it changed is its own."""
    old, new = leaves(before), leaves(after)
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    gone = old.keys() - new.keys()
    if not changed and not gone:
        return list(managers)
    own = next((other for other in managers if other.key == manager.key), None)
    written = _Places(changed | gone)
    kept = [
        other.with_fields(path for path in other.fields if not written.touch(path))
        for other in managers
        if other.key != manager.key
    ]
    fields = {path for path in (own.fields if own is not None else ()) if path not in gone} | changed
    return [*(other for other in kept if other.fields), *([manager.with_fields(fields)] if fields else [])]


def updated_text(before: bytes | None, after: bytes, managers: bytes | None, manager: FieldManager) -> bytes:
    """The same of an entry as a store keeps it, before and after; None: it is new."""
    old: Object = {} if before is None else jsontext.decode(before)
    known = read_managers(stored_managers(managers))
    return jsontext.encode(managers_json(updated(old, jsontext.decode(after), known, manager)))


# As Kubernetes writes them.


def stored_managers(text: bytes | None) -> list[Object]:
    return [] if text is None else jsontext.decode(text)


def managers_json(managers: Iterable[FieldManager]) -> list[Object]:
    return [
        {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            "time": manager.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _tree(manager.fields),
        }
        for manager in managers
    ]


def _tree(fields: Iterable[Path]) -> Object:
    tree: Object = {}
    for path in sorted(fields):
        place = tree
        for name in path:
            place = place.setdefault(f"f:{name}", {})
    return tree


def read_managers(items: Any) -> list[FieldManager]:
    """Those that were written here, or that a client has rewritten; what cannot be read counts as nobody's."""
    managers = []
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get("fieldsV1"), dict):
            name, operation, version, time = (str(item.get(member) or "") for member in _MEMBERS)
            managers.append(FieldManager(name, operation, version, time, frozenset(_paths(item["fieldsV1"], ()))))
    return managers


def _paths(tree: Object, path: Path) -> Iterable[Path]:
    members = [(name, below) for name, below in tree.items() if name.startswith("f:") and isinstance(below, dict)]
    if not members and path:
        yield path
    for name, below in members:
        yield from _paths(below, (*path, name[2:]))
