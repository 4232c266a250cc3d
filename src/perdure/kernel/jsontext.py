"""JSON text as Perdure means it: strict on the way in, strict on the way out.

A value is encoded once, where it comes into being, and travels as bytes from then on. Large text is read and written in
pieces, each by one short call into C, and counts as work of the turn (`effort`).
"""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import msgspec

from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.turn_budget import current, pay, rest

_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")

encode_finite = _encoder.encode
"""Encode data that is known to hold no NaN or infinity, such as what `decode` returned."""

PIECE = 128 * 1024
"""Bytes that one call into C reads or writes: a few milliseconds of work at most."""

_TRIES = 8  # to find the end of a piece
NODES = 4_000
"""Values in a piece that is written."""

_HOLDERS = frozenset({dict, list, tuple})
_PRICE_OF_READING = 2  # bytes for a unit of work
_PRICE_OF_WRITING = 8

_decode = msgspec.json.Decoder().decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode(text: bytes | str) -> Any:
    """Decode text that Perdure itself wrote or has already checked."""
    return _decode(text) if len(text) <= PIECE else _decode_large(text)


def _decode_large(text: bytes | str) -> Any:
    """Elements and members are only told apart at first, which is fast, and then read some at a time."""
    pay(len(text) // _PRICE_OF_READING)
    kind = text[:1]
    if kind in (b"[", "["):
        return _decode_list(text.encode() if isinstance(text, str) else text)
    if kind in (b"{", "{"):
        members: dict[str, Any] = {}
        for count, (name, element) in enumerate(_members(text).items()):
            members[name] = decode(bytes(element)) if len(element) > PIECE else _decode(element)
            if count % 1_000 == 0:
                rest()
        return members
    return _decode(text)


def _decode_list(text: bytes) -> list[Any]:
    """A piece ends at a separator where what is before it can be read: then it is one between elements.

    Elsewhere, within a text or a deeper list, quotes or brackets are left open. Where that is tried in vain, what is
    left is told apart as a whole.
    """
    made: list[Any] = []
    separator = {b"{": b"},{", b"[": b"],["}.get(text[1:2], b",")
    width = len(separator) // 2
    at, last = 1, len(text) - 1
    while last - at > 2 * PIECE and text[last:] == b"]":
        cut = at + PIECE
        for _ in range(_TRIES):
            cut = text.find(separator, cut + 1, at + 2 * PIECE)
            if cut < 0:
                break
            try:
                made += _decode(b"[%b]" % text[at : cut + width])
            except msgspec.DecodeError:
                continue
            at = cut + width + 1
            rest()
            break
        else:
            break
        if cut < 0:
            break
    for piece, is_alone in _grouped(_elements(b"[" + text[at:])):
        if is_alone:
            made.append(decode(piece))
        else:
            made += _decode(b"[%b]" % piece)
    return made


def _grouped(elements: list[msgspec.Raw]) -> Iterator[tuple[bytes, bool]]:
    """The texts of some elements together, behind each other; of a large one alone."""
    group: list[msgspec.Raw] = []
    size = 0
    for element in elements:
        if len(element) > PIECE:
            if group:
                yield b",".join(map(bytes, group)), False
            yield bytes(element), True
            group, size = [], 0
            continue
        group.append(element)
        size += len(element)
        if size > PIECE:
            yield b",".join(map(bytes, group)), False
            rest()
            group, size = [], 0
    if group:
        yield b",".join(map(bytes, group)), False


class NotJson(ValueError):
    """The value has no JSON form; the sentence says which part of it."""


def encode(value: Any) -> bytes:
    """Encode any Python value that has a JSON form; refuse the others by name."""
    effort = current.get()
    try:
        text = encode_finite(value) if effort is None or effort.rest is None else _in_pieces(value)
    except RecursionError:
        raise NotJson("the value is nested too deeply, or contains itself") from None
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError) as error:
        raise NotJson(str(error)) from None
    if b"null" in text:
        _refuse_non_finite(value)  # the encoder writes NaN as null, which would silently change data
    if len(text) > PIECE:
        pay(len(text) // _PRICE_OF_WRITING)
    return text


def is_large(value: Any, most: int = NODES) -> bool:
    """Whether it is worth writing a value elsewhere, or in pieces."""
    return weigh(value, most) > most


def weigh(value: Any, most: int) -> int:
    """How many values there are in it, long texts counted for more; no longer counted once it is more than that."""
    if type(value) not in _HOLDERS:
        return len(value) >> 6 if type(value) is str else 0
    weight = 0
    pending = [value]
    for holder in pending:
        weight += len(holder)
        if weight > most:
            break
        for item in holder.values() if type(holder) is dict else holder:
            kind = type(item)
            if kind is str:
                weight += len(item) >> 6
            elif kind in _HOLDERS:
                pending.append(item)
    return weight


def _in_pieces(value: Any) -> bytes:
    try:
        return _written(value)
    except RecursionError:  # the encoder itself goes deeper
        return _encoder.encode(value)


def _written(value: Any) -> bytes:
    """As the encoder writes it, some elements and members at a time."""
    kind = type(value)
    if kind not in (list, dict) or not is_large(value):
        return _encoder.encode(value)
    return b"[%b]" % b",".join(_elements_of(value)) if kind is list else b"{%b}" % b",".join(_members_of(value))


def _elements_of(items: list[Any]) -> Iterator[bytes]:
    group: list[Any] = []
    weight = 0
    for element in items:
        more = 1 + weigh(element, NODES)
        weight += more
        if weight > NODES and group:
            yield _encoder.encode(group)[1:-1]
            rest()
            group, weight = [], more
        if more > NODES:
            yield _written(element)
            weight = 0
        else:
            group.append(element)
    if group:
        yield _encoder.encode(group)[1:-1]


def _members_of(items: dict[Any, Any]) -> Iterator[bytes]:
    group: dict[Any, Any] = {}
    weight = 0
    for name, member in items.items():
        more = 1 + weigh(member, NODES)
        weight += more
        if weight > NODES and group:
            yield _encoder.encode(group)[1:-1]
            rest()
            group, weight = {}, more
        if more > NODES:
            yield _encoder.encode({name: 0})[1:-2] + _written(member)
            weight = 0
        else:
            group[name] = member
    if group:
        yield _encoder.encode(group)[1:-1]


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


_SURROGATE = lazy_regex(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


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
