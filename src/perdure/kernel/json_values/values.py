"""Values as the kernel carries them: JSON text, or a reference to text too large for the log."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NewType

import msgspec

RunId = NewType("RunId", str)

Instant = int
"""Microseconds since the epoch, UTC. Integers order totally, add exactly and cost nothing to encode."""

SECOND: Instant = 1_000_000


class Ref(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """Stands for a value that lives once per run, beside the log."""

    digest: bytes
    size: int


Payload = bytes | Ref
"""JSON text, or a reference to it."""

NULL: bytes = b"null"


def digest(text: bytes) -> bytes:
    return sha256(text).digest()


MOST_PARENTS = 128  # of a member that is named by its path


def set_members(value: Any, members: Iterable[tuple[str, Any]]) -> Any:
    """Members by their path (`a.b`) over a value, which is changed; None is an empty object. Raises `ValueError`."""
    for path, member in members:
        value = {} if value is None else value
        *parents, last = path.split(".")
        if len(parents) > MOST_PARENTS:
            raise ValueError(f"a name has more than {MOST_PARENTS} parts")
        place = value
        for name in parents:
            place = place.setdefault(name, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise ValueError(f"{path}: the value above it is not an object")
        place[last] = member
    return value
