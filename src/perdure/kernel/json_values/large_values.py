"""Large values are kept once per run beside the log; events and inputs refer to them."""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.kernel.json_values.values import Payload, Ref, digest
from perdure.kernel.outcomes import Failed, Outcome, Succeeded, shortened
from perdure.kernel.turn_budget import pay, rest

INLINE_BYTES = 64 * 1024
"""The size limit: a value of up to this size is part of its event, a larger one is kept once beside the log."""

LargeValues = tuple[tuple[bytes, bytes], ...]
"""Digest and text of each value that was taken out."""

T = TypeVar("T")

LARGEST_VALUE = 128 << 20
"""Bytes of one value, and of values that are joined: no store takes more than 1 GB."""

MOST_READ = 256 << 20
"""Bytes of large values that one decision has in memory."""

MOST_KEPT = 16 << 20
"""Bytes of large values that a run makes before they are committed and others get their turn."""

HASHED_IN_THREAD = 1 << 20
"""Bytes of a value from which on its digest is not taken on the event loop: one takes about 3 ms."""


BYTES_HASHED_PER_UNIT = 16  # of work of a turn
BYTES_JOINED_PER_UNIT = 32
_JOINED_AT_ONCE = 1 << 20  # bytes that one call copies


class ValuesTooLarge(Exception):
    """A decision joins, makes or reads values that are too large together: the run is ended."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes of values are used at once")
        self.size = size


def check_joined(payloads: Sequence[Payload]) -> None:
    """Before values are joined; a turn pays for it."""
    size = sum([payload.size if isinstance(payload, Ref) else len(payload) for payload in payloads])
    check_size(size)
    if size > INLINE_BYTES:
        pay(size // BYTES_JOINED_PER_UNIT)


def join_texts(texts: Iterable[bytes], separator: bytes = b",", around: bytes = b"[]") -> bytes:
    """Texts joined to one, by short calls if it is long: one long call would hold up every other thread."""
    parts = list(texts)
    if sum(map(len, parts)) <= _JOINED_AT_ONCE:
        return b"%b%b%b" % (around[:1], separator.join(parts), around[1:])
    whole = BytesIO()
    whole.write(around[:1])
    for count, part in enumerate(parts):
        if count:
            whole.write(separator)
        for at in range(0, len(part), _JOINED_AT_ONCE):
            whole.write(memoryview(part)[at : at + _JOINED_AT_ONCE])
            rest()
    whole.write(around[1:])
    return whole.getvalue()  # which copies nothing


def check_size(size: int) -> None:
    """Before a value of so many bytes is made."""
    if size > LARGEST_VALUE:
        raise ValuesTooLarge(size)


def digest_to_keep(text: bytes) -> bytes:
    """The name of a value that is put beside the log; a turn pays for computing it."""
    check_size(len(text))
    pay(len(text) // BYTES_HASHED_PER_UNIT)
    return digest(text)


def check_read(refs: Sequence[Ref], texts: Mapping[bytes, bytes]) -> None:
    """Before these are read into memory beside those."""
    size = sum({ref.digest: ref.size for ref in refs}.values()) + sum(map(len, texts.values()))
    if size > MOST_READ:
        raise ValuesTooLarge(size)


def takes_long(outcome: Outcome) -> bool:
    return isinstance(outcome, Succeeded) and isinstance(outcome.value, bytes) and len(outcome.value) > HASHED_IN_THREAD


def extract_from_outcome(outcome: Outcome) -> tuple[Outcome, LargeValues]:
    if not isinstance(outcome, Succeeded):
        return shortened(outcome) if isinstance(outcome, Failed) else outcome, ()
    value = outcome.value
    if isinstance(value, Ref) or len(value) <= INLINE_BYTES:
        return outcome, ()
    value, aside = _extract(value)
    return Succeeded(value), aside


def extract_large_values(message: T, *fields: str) -> tuple[T, LargeValues]:
    """The same input with the large ones of these fields replaced by references."""
    changed: dict[str, Any] = {}
    taken: LargeValues = ()
    for field in fields:
        payload = getattr(message, field, None)
        if payload is not None:
            changed[field], aside = extract_from_outcome(payload) if field == "outcome" else _extract(payload)
            taken += aside
    return (replace(message, **changed), taken) if taken else (message, ())  # type: ignore[type-var]


def _extract(payload: Payload) -> tuple[Payload, LargeValues]:
    if isinstance(payload, Ref) or len(payload) <= INLINE_BYTES:
        return payload, ()
    name = digest(payload)
    return Ref(name, len(payload)), ((name, payload),)
