"""Patches of objects: merge patch (RFC 7396) and JSON Patch (RFC 6902)."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from perdure.kernel.errors import UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.views.errors import BadRequest

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
MOST_OPERATIONS = 10_000
MOST_EFFORT = 200_000  # values that one patch copies or compares, long texts counted for more


def merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, member in patch.items():
        if member is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), member)
    return result


def check_strategic(patch: Any, path: str = "") -> None:
    """It is read as a merge patch: directives would be lost."""
    if isinstance(patch, dict):
        for name, member in patch.items():
            if name.startswith("$"):
                raise UnfitInput(
                    f"{path}{name}: directives of strategic merge patches are not supported",
                    hint="Send a merge patch: `kubectl patch --type merge`.",
                )
            check_strategic(member, f"{path}{name}.")
    elif isinstance(patch, list):
        for index, member in enumerate(patch):
            check_strategic(member, f"{path}{index}.")


def patched(value: Any, operations: Any) -> Any:
    """The value after a JSON Patch; a `test` that fails, or a path that is not there, refuses all of it."""
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise BadRequest("a JSON Patch is a list of operations")
    if len(operations) > MOST_OPERATIONS:
        raise BadRequest(f"a JSON Patch has at most {MOST_OPERATIONS} operations")
    root, effort = {"": deepcopy(value)}, _Effort()
    for operation in operations:
        verb, path = operation.get("op"), _pointer(operation.get("path"))
        effort.spend(len(path))
        match verb:
            case "add" | "replace" | "test" if "value" not in operation:
                raise BadRequest(f"the operation {verb} needs a value")
            case "add":
                _add(root, path, effort.copied(operation["value"]))
            case "remove":
                _remove(root, path)
            case "replace":
                _replace(root, path, effort.copied(operation["value"]))
            case "move":
                source = _pointer(operation.get("from"))
                if path[: len(source)] == source and path != source:
                    raise UnfitInput("a value cannot be moved into itself")
                _add(root, path, _remove(root, source))
            case "copy":
                _add(root, path, effort.copied(_get(root, _pointer(operation.get("from")))))
            case "test":
                effort.spend(jsontext.weigh(operation["value"], MOST_EFFORT))
                if not _same(_get(root, path), operation["value"]):
                    raise UnfitInput(f"the test of {operation['path']} failed; nothing was changed")
            case _:
                raise BadRequest(f"{str(verb)[:20]!r} is not an operation of a JSON Patch")
    return root[""]


class _Effort:
    """A few lines can ask for more copies than fit into memory: each copy of all so far doubles it."""

    def __init__(self) -> None:
        self._left = MOST_EFFORT

    def spend(self, weight: int) -> None:
        self._left -= weight
        if self._left < 0:
            raise BadRequest(f"a JSON Patch copies and compares at most {MOST_EFFORT:,} values")

    def copied(self, value: Any) -> Any:
        self.spend(1 + jsontext.weigh(value, self._left))
        return deepcopy(value)


def _same(value: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same(value[name], other[name]) for name in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    return bool(value == other)


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise BadRequest(f"{str(text)[:60]!r} is not a JSON Pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")]


def _missing(path: Sequence[str]) -> UnfitInput:
    return UnfitInput(f"there is nothing at {'/'.join(path) or 'the root'}; nothing was changed")


def _is_place(name: str) -> bool:
    """A place in a list: RFC 6901 has no leading zeros."""
    return name.isascii() and name.isdecimal() and len(name) < 10 and (name == "0" or name[0] != "0")


def _get(root: Any, path: Sequence[str]) -> Any:
    for number, name in enumerate(path, 1):
        if isinstance(root, dict) and name in root:
            root = root[name]
        elif isinstance(root, list) and _is_place(name) and int(name) < len(root):
            root = root[int(name)]
        else:
            raise _missing(path[:number])
    return root


def _add(root: Any, path: Sequence[str], value: Any) -> None:
    parent, name = _get(root, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[name] = value
    elif isinstance(parent, list) and name == "-":
        parent.append(value)
    elif isinstance(parent, list) and _is_place(name) and int(name) <= len(parent):
        parent.insert(int(name), value)
    else:
        raise _missing(path)


def _remove(root: Any, path: Sequence[str]) -> Any:
    parent, name = _get(root, path[:-1]), path[-1]
    value = _get(root, path)
    if len(path) == 1:
        parent[name] = None
    elif isinstance(parent, dict):
        del parent[name]
    else:
        del parent[int(name)]
    return value


def _replace(root: Any, path: Sequence[str], value: Any) -> None:
    parent, name = _get(root, path[:-1]), path[-1]
    _get(root, path)
    parent[name if isinstance(parent, dict) else int(name)] = value
