"""Putting large values beside the inputs that bring them, so that events carry references only."""

from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.kernel.outcomes import Outcome, Succeeded
from perdure.kernel.values import INLINE_BYTES, Payload, Ref, digest

Aside = tuple[tuple[bytes, bytes], ...]
"""Digest and text of each value that was taken out."""

T = TypeVar("T")


def lighten_outcome(outcome: Outcome) -> tuple[Outcome, Aside]:
    if not isinstance(outcome, Succeeded):
        return outcome, ()
    value, aside = _lighten(outcome.value)
    return (Succeeded(value), aside) if aside else (outcome, ())


def lighten(message: T, *fields: str) -> tuple[T, Aside]:
    """The same input with the large ones of these fields replaced by references."""
    changed: dict[str, Any] = {}
    taken: Aside = ()
    for field in fields:
        payload = getattr(message, field, None)
        if payload is not None:
            changed[field], aside = _lighten(payload)
            taken += aside
    return (replace(message, **changed), taken) if taken else (message, ())  # type: ignore[type-var]


def _lighten(payload: Payload) -> tuple[Payload, Aside]:
    if isinstance(payload, Ref) or len(payload) <= INLINE_BYTES:
        return payload, ()
    name = digest(payload)
    return Ref(name, len(payload)), ((name, payload),)
