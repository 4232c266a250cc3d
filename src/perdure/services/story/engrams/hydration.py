"""Resolve the references in an input just before the Engram sees it (STY-219, STY-220, STY-283).

    {"$bubuSecretRef": "api:token"}     {"$bubuConfigMapRef": {"name": "app", "key": "limits.json", "format":
    "json"}}

These two only count where the document has them: the task lists their paths. Data that looks like one stays data. A
storage reference counts everywhere, and leads to values of the same family of runs.

The key `limits.json` of the config map `app` is that of a ConfigMap in the catalog, else the file `app/limits.json` in
`PERDURE_CONFIG_DIR`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.kernel.ids import family_of
from perdure.kernel.json_values import jsontext
from perdure.providers.context import SecretSource
from perdure.providers.text import is_file_name
from perdure.services.story.engrams import storage
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.engrams.secrets import secret

SECRET = "$bubuSecretRef"
CONFIG_MAP = "$bubuConfigMapRef"

DEEPEST = 32  # STY-080

_CONTAINERS = (dict, list)


def hydrate_inputs(
    task: Mapping[str, Any], source: SecretSource, namespace: str, run: str, text: bytes = b""
) -> dict[str, Any]:
    """The input of a task as its code sees it. `text`: the task as JSON, where that is known."""
    inputs: dict[str, Any] = task.get("inputs") or {}
    if _is_plain(text):
        return inputs
    inputs = _with_stored_values(inputs, lambda: families_of(task, run), 0)
    for path in task.get("references") or ():
        inputs = _replaced(inputs, path, lambda reference: fill(reference, source, namespace))
    return inputs


def _is_plain(text: bytes) -> bool:
    """Whether the text alone shows that nothing is to be filled in, as of most tasks.

    The nesting is never deeper than the number of brackets.
    """
    if not text or len(text) > jsontext.PIECE or text.find(b"$bubu") >= 0:
        return False
    return text.count(b"{") + text.count(b"[") <= DEEPEST


def fill_stored_values(value: Any, families: frozenset[str]) -> Any:
    """The value with stored values of these families in place of references to them. Raises `EngramError`."""
    return _with_stored_values(value, lambda: families, 0)


def mentions_storage(value: Any) -> bool:
    """Whether something must be read from storage before the input is complete."""
    match value:
        case {"$bubuStorageRef": str()}:
            return True
        case dict():
            return any(map(mentions_storage, value.values()))
        case list():
            return any(map(mentions_storage, value))
    return False


def families_of(task: Mapping[str, Any], run: str) -> frozenset[str]:
    """The families whose stored values a task may read: its own, and those of the runs that it was forked from."""
    return frozenset({family_of(run), *(task.get("families") or ())})


def _with_stored_values(value: Any, families: Callable[[], frozenset[str]], depth: int) -> Any:
    """The value with stored values filled in; references inside these are not resolved."""
    if not isinstance(value, _CONTAINERS):
        return value
    if isinstance(value, dict) and isinstance(value.get(storage.REFERENCE), str):
        return storage.get(value, families())
    if depth == DEEPEST and value:
        raise EngramError(f"the input is nested more than {DEEPEST} levels deep", type="validation_error")
    filled: Any = None  # a copy, once something is filled in: most inputs have nothing stored
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in items:
        if isinstance(item, _CONTAINERS):
            complete = _with_stored_values(item, families, depth + 1)
            if complete is not item:
                filled = value.copy() if filled is None else filled
                filled[name] = complete
    return value if filled is None else filled


def _replaced(value: Any, path: Sequence[str | int], change: Callable[[Any], Any]) -> Any:
    """The value with the part at the end of a path changed. A path that does not exist changes nothing."""
    if not path:
        return change(value)
    step, remaining = path[0], path[1:]
    if isinstance(value, dict) and step in value:
        return {**value, step: _replaced(value[step], remaining, change)}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [*value[:step], _replaced(value[step], remaining, change), *value[step + 1 :]]
    return value


def fill(value: Any, source: SecretSource, namespace: str) -> Any:
    """The value of a reference; any other value is returned as it is."""
    match value:
        case {"$bubuSecretRef": reference} if len(value) == 1:
            name, key, form = _parts(SECRET, reference, namespace)
            return _parse_format(secret(source, name, key), form, f"secret {name!r}, key {key!r}")
        case {"$bubuConfigMapRef": reference} if len(value) == 1:
            name, key, form = _parts(CONFIG_MAP, reference, namespace)
            kept = source.config(name, key)
            text = _config(name, key) if kept is None else kept
            return _parse_format(text, form, f"config map {name!r}, key {key!r}")
        case _:
            return value


def _parts(kind: str, reference: Any, namespace: str) -> tuple[str, str, str]:
    parts: dict[str, Any] = {"namespace": None, "format": "auto", "name": "", "key": ""}
    if isinstance(reference, dict):
        parts.update(reference)
    elif isinstance(reference, str):
        path, _, parts["key"] = reference.partition(":")
        prefix, _, parts["name"] = path.rpartition("/")
        parts["namespace"] = prefix or None
    if parts["namespace"] not in (None, namespace):
        message = f"{kind}: {parts['namespace']!r} is another namespace; only {namespace!r} may be read here"
        raise EngramError(message, type="validation_error")
    if parts["format"] not in ("auto", "json", "raw"):
        raise EngramError(f"{kind}: format must be auto, json or raw", type="validation_error")
    if not parts["name"] or not parts["key"]:
        raise EngramError(f"{kind} needs a name and a key, as in 'name:key'", type="validation_error")
    return str(parts["name"]), str(parts["key"]), str(parts["format"])


def _config(name: str, key: str) -> str:
    folder = os.environ.get("PERDURE_CONFIG_DIR")
    if not folder:
        why = "there is no such ConfigMap with this key, and PERDURE_CONFIG_DIR names no folder"
        message = f"config map {name!r} cannot be read: {why}"
        raise EngramError(message, type="initialization_error")
    if not (is_file_name(name) and is_file_name(key)):
        raise EngramError(f"{name}:{key} is not the name of a config map and its key", type="validation_error")
    try:
        return (Path(folder) / name / key).read_text("utf-8")
    except OSError as error:
        message = f"config map {name!r} has no readable key {key!r}: {error.strerror}"
        raise EngramError(message, type="initialization_error") from None
    except UnicodeDecodeError:
        message = f"config map {name!r} has no readable key {key!r}: it is not UTF-8"
        raise EngramError(message, type="initialization_error") from None


def _parse_format(text: str, form: str, subject: str) -> Any:
    """Parse according to the format. `auto` parses JSON objects and lists; numbers and words stay strings."""
    if form == "raw" or (form == "auto" and not text.lstrip().startswith(("{", "["))):
        return text
    try:
        return jsontext.read_strict(text.encode())
    except jsontext.NotJson as error:
        if form == "auto":
            return text
        raise EngramError(f"{subject} is not JSON: {error}", type="serialization_error") from None
