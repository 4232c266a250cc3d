"""JSON text as Perdure means it: strict on the way in, strict on the way out.

A value is encoded once, where it comes into being, and travels as bytes from then on.
"""

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn

import msgspec

from perdure.kernel.late import late

_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")

encode_finite = _encoder.encode
"""Encode data that is known to hold no NaN or infinity, such as what `decode` returned."""

decode = msgspec.json.Decoder().decode
"""Decode text that Perdure itself wrote or has already checked."""


class NotJson(ValueError):
    """The value has no JSON form; the sentence says which part of it."""


def encode(value: Any) -> bytes:
    """Encode any Python value that has a JSON form; refuse the others by name."""
    try:
        text = _encoder.encode(value)
    except RecursionError:
        raise NotJson("the value is nested too deeply, or contains itself") from None
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError) as error:
        raise NotJson(str(error)) from None
    if b"null" in text:
        _refuse_non_finite(value)  # the encoder writes NaN as null, which would silently change data
    return text


def _refuse_non_finite(value: Any) -> None:
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise NotJson(f"the number {item!r} has no JSON form")
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)


def canonical(value: Any) -> bytes:
    """The one text of a value that hashes are taken of: members sorted, no spaces."""
    return _sorted_encoder.encode(value)


def read_strict(text: bytes | str) -> Any:
    """Decode text from outside: UTF-8, no repeated member, no NaN or infinity, no half character, bounded nesting."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique_members, parse_constant=_no_constant, parse_float=_finite)
        if _SURROGATE.search(text) is not None:
            _refuse_half_characters(value)
        return value
    except json.JSONDecodeError as error:
        raise NotJson(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise NotJson(f"byte {error.start}: not UTF-8") from None
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except ValueError as error:
        raise NotJson(str(error)) from None


_SURROGATE = late(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def _refuse_half_characters(value: Any) -> None:
    """A surrogate without its other half has no UTF-8 form: no store and no answer could hold it."""
    try:
        _encoder.encode(value)
    except UnicodeEncodeError:
        raise NotJson("a text holds an unpaired surrogate (half a character), as in \\ud800") from None


def _unique_members(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise NotJson(f"member {name!r} is repeated in one object")
        members[name] = value
    return members


def _no_constant(token: str) -> NoReturn:
    raise NotJson(f"{token} is not JSON")


def _finite(token: str) -> float:
    number = float(token)
    if math.isinf(number):
        raise NotJson(f"the number {token} is out of range")
    return number
