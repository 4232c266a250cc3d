"""References: to what was put in storage, to a config map, to a secret (STY-219, STY-220, STY-283).

Those to secrets and config maps count where they stand in a document, at their place; data that look like one are data.
Knows their form and what is wrong with one. Who hydrates them, and when, is another matter.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from perdure.kernel import jsontext
from perdure.kernel.lazy_regex import lazy_regex

STORAGE = "$bubuStorageRef"
CONFIG = "$bubuConfigMapRef"
SECRET = "$bubuSecretRef"  # the key's name, no secret

STORAGE_MEMBERS = (
    STORAGE,
    "$bubuStoragePath",
    "$bubuStorageContentType",
    "$bubuStorageSchema",
    "$bubuStorageSchemaVersion",
)
INSTEAD = "Put large values into storage and pass references to them."  # of inputs that are too large
FORMATS = ("auto", "json", "raw")

_SUBPATH = lazy_regex(r"(?:[^.\[\]]+|\[(?:\d+|\*)\])(?:\.[^.\[\]]+|\[(?:\d+|\*)\])*")
_NAMES = {CONFIG: "config map reference", SECRET: "secret reference"}


def is_reference(value: Any) -> bool:
    """Whether an object means to be a reference, well-formed or not."""
    return isinstance(value, dict) and (STORAGE in value or CONFIG in value or SECRET in value)


Place = tuple[str | int, ...]


def names_secret(value: Any) -> bool:
    """Whether an object has the form of a reference to a secret or a config map."""
    return isinstance(value, dict) and (CONFIG in value or SECRET in value)


def places(document: Any, *, is_written: bool = True) -> Iterator[Place]:
    """Where references to secrets and config maps stand. One with a template in it is none: data name no secret."""
    if names_secret(document):
        if not is_written or b"{{" not in jsontext.encode(document):
            yield ()
        return
    inner: Any = document.items() if isinstance(document, dict) else ()
    if isinstance(document, list):
        inner = enumerate(document)
    for step, part in inner:
        for path in places(part, is_written=is_written):
            yield (step, *path)


def named_secrets(document: Any) -> Iterator[str]:
    """The secrets that a document names: as `name/key` in references, as `name/*` where Engrams are given some."""
    if isinstance(document, dict) and SECRET in document:
        given = document[SECRET]
        if isinstance(given, str):
            place, _, key = given.rpartition(":")
            yield f"{place.rpartition('/')[2]}/{key}"
        elif isinstance(given, dict):
            yield f"{given.get('name')}/{given.get('key')}"
        return
    if isinstance(document, dict):
        mapped = document.get("secrets")
        yield from (f"{name}/*" for name in (mapped.values() if isinstance(mapped, dict) else ()) if _is_text(name))
        for part in document.values():
            yield from named_secrets(part)
    elif isinstance(document, list):
        for part in document:
            yield from named_secrets(part)
    elif _is_text(document) and SECRET in document:  # an annotation, which holds JSON
        with suppress(ValueError):
            yield from named_secrets(jsontext.decode(document.encode()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def may_refer(text: bytes) -> bool:
    """Whether there may be a reference in some data, as their JSON text tells."""
    return b"$bubu" in text


def malformed(value: Any, namespace: str) -> Iterator[tuple[Place, str]]:
    """Every reference in some data that is not as it must be: the way to it, and what is wrong."""
    if is_reference(value):
        problem = _storage(value) if STORAGE in value else _named(value, namespace)
        if problem is not None:
            yield (), problem
        return
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in inner:
        for path, problem in malformed(part, namespace):
            yield (step, *path), problem


def _storage(value: dict[str, Any]) -> str | None:
    for name, member in value.items():
        if name not in STORAGE_MEMBERS:
            return f"a storage reference has no member {name!r}"
        if not isinstance(member, str):
            return f"{name} must be a string"
    if not value[STORAGE].strip():
        return f"{STORAGE} must not be blank"
    path = value.get("$bubuStoragePath")
    if path and not _SUBPATH.fullmatch(path):
        return f"$bubuStoragePath {path!r} is not a path (expected e.g. a.b[0] or items[*].id)"
    return None


def _named(value: dict[str, Any], namespace: str) -> str | None:
    name = CONFIG if CONFIG in value else SECRET
    what = _NAMES[name]
    if len(value) > 1:
        return f"a {what} holds {name} and nothing else"
    given = value[name]
    if isinstance(given, str):
        place, _, key = given.rpartition(":")
        space, _, map_name = place.rpartition("/")
        if not key.strip() or not map_name.strip():
            return f"a {what} is written name:key or namespace/name:key, not {given!r}"
        return _foreign(what, space, namespace)
    if not isinstance(given, dict):
        return f"a {what} is a string or an object"
    for member in given:
        if member not in ("name", "key", "namespace", "format"):
            return f"a {what} has no member {member!r}"
    if any(not isinstance(given.get(one), str) or not given[one].strip() for one in ("name", "key")):
        return f"a {what} needs name and key"
    if given.get("format", "auto") not in FORMATS:
        return f"the format of a {what} is auto, json or raw"
    space = given.get("namespace", "")
    return (
        f"the namespace of a {what} must be a string"
        if not isinstance(space, str)
        else _foreign(what, space, namespace)
    )


def _foreign(what: str, space: str, namespace: str) -> str | None:
    return f"a {what} cannot reach into namespace {space!r}" if space and space != namespace else None
