"""Values as the kernel carries them: JSON text, or a reference to text too large for the log."""

from hashlib import sha256
from typing import NewType

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
