"""References to stored values, config maps and secrets (STY-219, STY-220, STY-283).

References to secrets and config maps only count where they are written in a document; data that looks like one is
data. This module knows their form and validates it; resolving them is done elsewhere.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from perdure.kernel.json_values import jsontext
from perdure.kernel.lazy_regex import lazy_regex

STORAGE = "$bubuStorageRef"
CONFIG = "$bubuConfigMapRef"
SECRET = "$bubuSecretRef"  # only the member's name, not a secret
TEMPLATE = "$bubuTemplate"

STORAGE_MEMBERS = (
    STORAGE,
    "$bubuStoragePath",
    "$bubuStorageContentType",
    "$bubuStorageSchema",
    "$bubuStorageSchemaVersion",
)
INSTEAD = "Put large values into storage and pass references to them."  # for inputs that are too large
FORMATS = ("auto", "json", "raw")

_SUBPATH = lazy_regex(r"(?:[^.\[\]]+|\[(?:\d+|\*)\])(?:\.[^.\[\]]+|\[(?:\d+|\*)\])*")
_NAMES = {CONFIG: "config map reference", SECRET: "secret reference"}


def is_reference(value: Any) -> bool:
    """Whether an object is meant as a reference, valid or not."""
    return isinstance(value, dict) and (STORAGE in value or CONFIG in value or SECRET in value)


Place = tuple[str | int, ...]


def names_secret(value: Any) -> bool:
    """Whether an object has the form of a reference to a secret or a config map."""
    return isinstance(value, dict) and (CONFIG in value or SECRET in value)


def places(document: Any, *, is_written: bool = True) -> Iterator[Place]:
    """Paths of references to secrets and config maps.

    One that contains a template does not count, since data must not name secrets; nor does one among the variables of
    a template, since the result of the template takes its place. `is_written=False` finds them all.
    """
    try:
        is_plain = not may_refer(jsontext.encode(document))  # as most are: nothing has to be searched
    except jsontext.NotJson:
        is_plain = False
    return iter(()) if is_plain else _places_in(document, is_written)


def _places_in(document: Any, is_written: bool) -> Iterator[Place]:
    if names_secret(document):
        if not is_written or b"{{" not in jsontext.encode(document):
            yield ()
        return
    if is_written and isinstance(document, dict) and TEMPLATE in document:
        return
    inner: Any = document.items() if isinstance(document, dict) else ()
    if isinstance(document, list):
        inner = enumerate(document)
    for step, part in inner:
        for path in _places_in(part, is_written):
            yield (step, *path)


def named_secrets(document: Any) -> Iterator[str]:
    """The secrets that a document names: `name/key` in references, `name/*` in `secrets` of Engrams; config maps as
    `config:name/key`.
    """
    for kind, prefix in ((SECRET, ""), (CONFIG, "config:")):
        if isinstance(document, dict) and kind in document:
            target = document[kind]
            if isinstance(target, str):
                location, _, key = target.rpartition(":")
                yield f"{prefix}{location.rpartition('/')[2]}/{key}"
            elif isinstance(target, dict):
                yield f"{prefix}{target.get('name')}/{target.get('key')}"
            return
    if isinstance(document, dict):
        secrets = document.get("secrets")
        yield from (f"{name}/*" for name in (secrets.values() if isinstance(secrets, dict) else ()) if _is_text(name))
        for part in document.values():
            yield from named_secrets(part)
    elif isinstance(document, list):
        for part in document:
            yield from named_secrets(part)
    elif _is_text(document) and (SECRET in document or CONFIG in document):  # an annotation that contains JSON
        with suppress(ValueError):
            yield from named_secrets(jsontext.decode(document.encode()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def may_refer(text: bytes) -> bool:
    """Whether JSON text may contain a reference."""
    return text.find(b"$bubu") >= 0  # `in` tries first whether it is a number, which takes ten times as long


def malformed(value: Any, namespace: str) -> Iterator[tuple[Place, str]]:
    """Every invalid reference in a value: its path and its problem."""
    if is_reference(value):
        problem = _storage(value) if STORAGE in value else _named_reference(value, namespace)
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


def _named_reference(value: dict[str, Any], namespace: str) -> str | None:
    name = CONFIG if CONFIG in value else SECRET
    noun = _NAMES[name]
    if len(value) > 1:
        return f"a {noun} must contain only {name}"
    target = value[name]
    if isinstance(target, str):
        location, _, key = target.rpartition(":")
        target_namespace, _, map_name = location.rpartition("/")
        if not key.strip() or not map_name.strip():
            return f"a {noun} must be name:key or namespace/name:key, not {target!r}"
        return _foreign_namespace(noun, target_namespace, namespace)
    if not isinstance(target, dict):
        return f"a {noun} must be a string or an object"
    for member in target:
        if member not in ("name", "key", "namespace", "format"):
            return f"a {noun} has no member {member!r}"
    if any(not isinstance(target.get(field), str) or not target[field].strip() for field in ("name", "key")):
        return f"a {noun} needs name and key"
    if target.get("format", "auto") not in FORMATS:
        return f"the format of a {noun} must be auto, json or raw"
    target_namespace = target.get("namespace", "")
    return (
        f"the namespace of a {noun} must be a string"
        if not isinstance(target_namespace, str)
        else _foreign_namespace(noun, target_namespace, namespace)
    )


def _foreign_namespace(noun: str, target_namespace: str, namespace: str) -> str | None:
    return (
        f"a {noun} cannot refer to namespace {target_namespace!r}"
        if target_namespace and target_namespace != namespace
        else None
    )
