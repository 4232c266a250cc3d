"""Strict JSON: strict when reading, strict when writing.

A value is encoded once, where it is created, and is passed on as bytes. Large text is read and written in pieces, each
by one short call into C, and counts as work of the turn (`turn_budget`).
"""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import msgspec

from perdure.kernel.turn_budget import current, pay, rest, rests

_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")

encode_finite = _encoder.encode
"""Encode data that contains no NaN or infinity, such as what `decode` returned."""

PIECE = 128 * 1024
"""Bytes that one call into C reads or writes: a few milliseconds of work at most."""

_LONGEST_ESCAPE = 12  # bytes, of two halves of a character
_TRIES = 8  # to find the end of a piece
_SEPARATED_AT_ONCE = 20_000  # elements or members
NODES = 4_000
"""Values in one piece when writing."""

LARGE_NUMBER = 1 << 512
HOLDERS = frozenset({dict, list, tuple})
_TEXTS = frozenset({str, msgspec.Raw})
_WITHOUT_FLOATS = frozenset({str, int, bool, type(None), bytes})
_PRICE_OF_READING = 2  # bytes per unit of work
_PRICE_OF_WRITING = 8

_decode = msgspec.json.Decoder().decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode(text: bytes | str) -> Any:
    """Decode text that Perdure itself wrote or has already checked."""
    return _decode(text) if len(text) <= PIECE else _decode_large(text)


def _decode_large(text: bytes | str) -> Any:
    """Elements and members are only separated at first, which is fast unless they are many, and decoded in groups."""
    pay(len(text) // _PRICE_OF_READING)
    text = text.encode() if isinstance(text, str) else text
    kind = text[:1]
    if kind == b"[":
        return _decode_list(text)
    if kind == b"{":
        if _has_many(text, b":"):
            return _decode_in_windows(text)
        members: dict[str, Any] = {}
        for count, (name, element) in enumerate(_members(text).items()):
            members[name] = decode(bytes(element)) if len(element) > PIECE else _decode(element)
            if count % 1_000 == 0:
                rest()
        return members
    return _decode_text(text)


def _has_many(text: bytes, sign: bytes) -> bool:
    """Whether there may be so many elements or members that one call which separates them would be long."""
    count = 0
    for at in range(0, len(text), 8 * PIECE):
        count += text.count(sign, at, at + 8 * PIECE)
        if count > _SEPARATED_AT_ONCE:
            return True
        rest()
    return False


def _decode_in_windows(text: bytes) -> Any:
    try:
        return _read_large(text.decode(), _plain)
    except RecursionError:  # msgspec supports deeper nesting
        return _decode(text)


def _decode_text(text: bytes) -> Any:
    """A piece ends where it can be decoded: elsewhere an escape or a character is split."""
    parts: list[str] = []
    at, last = 1, len(text) - 1
    while text[:1] == b'"' and text[last:] == b'"' and last - at > 2 * PIECE:
        for cut in range(at + PIECE, at + PIECE + _LONGEST_ESCAPE):
            try:
                parts.append(_decode(b'"%b"' % text[at:cut]))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            at = cut
            rest()
            break
        else:
            return _decode(text)
    return "".join([*parts, _decode(b'"%b' % text[at:])]) if parts else _decode(text)


def _decode_list(text: bytes) -> list[Any]:
    """A piece ends at a separator before which everything can be decoded: that is one between elements.

    Elsewhere, within a text or a deeper list, quotes or brackets are left open. If no such place is found, the elements
    of the remaining text are separated at once, if they are few.
    """
    items: list[Any] = []
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
                items += _decode(b"[%b]" % text[at : cut + width])
            except msgspec.DecodeError:
                continue
            at = cut + width + 1
            rest()
            break
        else:
            break
        if cut < 0:
            break
    remaining = text if at == 1 else b"[" + text[at:]
    rest()
    if _has_many(remaining, b","):
        items += _decode_in_windows(remaining)
        return items
    for piece, is_alone in _grouped(_elements(remaining)):
        if is_alone:
            items.append(decode(piece))
        else:
            items += _decode(b"[%b]" % piece)
    return items


def _grouped(elements: list[msgspec.Raw]) -> Iterator[tuple[bytes, bool]]:
    """The texts of several elements joined; a large one alone."""
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
    """The value has no JSON form; the message says which part of it."""


def encode(value: Any) -> bytes:
    """Encode any Python value that has a JSON form; refuse others, naming the part."""
    effort = current.get()
    try:
        text = encode_finite(value) if effort is None or effort.rest is None else _in_pieces(value)
    except RecursionError:
        raise NotJson("the value is nested too deeply, or contains itself") from None
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError) as error:
        raise NotJson(str(error)) from None
    if text.find(b"null") >= 0:  # `in` tries first whether it is a number, which takes ten times as long
        _refuse_non_finite(value)  # the encoder writes NaN as null, which would silently change data
    if len(text) > PIECE:
        pay(len(text) // _PRICE_OF_WRITING)
    return text


def is_large(value: Any, most: int = NODES) -> bool:
    """Whether a value is large enough to be written elsewhere, or in pieces."""
    return weigh(value, most) > most


def weigh(value: Any, most: int) -> int:
    """How many values it contains, long texts and numbers counted for more; counting stops above the limit."""
    if type(value) not in HOLDERS:
        return len(value) >> 6 if type(value) in _TEXTS else weigh_digits(value) if type(value) is int else 0
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
            elif kind in HOLDERS:
                pending.append(item)
            elif kind is int and not -LARGE_NUMBER < item < LARGE_NUMBER:
                weight += weigh_digits(item)
    return weight


def weigh_digits(number: int) -> int:
    """Writing them takes the square of their number."""
    return number.bit_length() ** 2 >> 19


def _in_pieces(value: Any) -> bytes:
    if len(value) <= PIECE if type(value) is str else not is_large(value):
        return _encoder.encode(value)
    try:
        return _write_large(value)
    except RecursionError:  # the encoder supports deeper nesting
        return _encoder.encode(value)


def _refuse_non_finite(value: Any) -> None:
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += [part for part in item.values() if type(part) not in _WITHOUT_FLOATS]
        elif isinstance(item, list | tuple):
            pending += [part for part in item if type(part) not in _WITHOUT_FLOATS]
        elif isinstance(item, float) and not math.isfinite(item):
            raise NotJson(f"the number {item!r} has no JSON form")


def canonical(value: Any) -> bytes:
    """The canonical text of a value, for hashes: members sorted, no spaces."""
    if not rests() or not is_large(value):
        return _sorted_encoder.encode(value)
    from perdure.kernel.json_values.large_json import in_order

    try:
        return _write_large(in_order(value))
    except RecursionError:  # the encoder supports deeper nesting
        return _sorted_encoder.encode(value)


def _write_large(value: Any) -> bytes:
    from perdure.kernel.json_values.large_json import write_large  # most processes never write one

    return write_large(value)


def _read_large(text: str, decoder: json.JSONDecoder) -> Any:
    from perdure.kernel.json_values.large_json import read_large  # most processes never read one

    return read_large(text, decoder, PIECE)


def read_strict(text: bytes | str) -> Any:
    """Decode text from outside: UTF-8, no repeated member, no NaN or infinity, no lone surrogate, bounded nesting."""
    try:
        was_text = isinstance(text, str)
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = _strict.decode(text) if len(text) <= PIECE else _read_large(text, _strict)
        if _has_half_escapes(text) or (was_text and not _is_utf8(text)):
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


def _has_half_escapes(text: str) -> bool:
    if len(text) <= PIECE:
        return "\\ud" in text or "\\uD" in text
    from perdure.kernel.json_values.large_json import has_any

    return has_any(text, "\\ud", "\\uD")


def _is_utf8(text: str) -> bool:
    """Whether it has no raw half of a character; told from a text that is all ASCII at once."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _refuse_half_characters(value: Any) -> None:
    """A surrogate without its other half has no UTF-8 form: it could neither be stored nor be returned."""
    try:
        _in_pieces(value)
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


_plain = json.JSONDecoder()
_strict = json.JSONDecoder(object_pairs_hook=_unique_members, parse_constant=_no_constant, parse_float=_finite)

MOST_VALUES = 2_000_000
"""Values that a text from outside may hold; about 200 MB where they are lists and objects."""


def has_too_many_values(text: bytes) -> bool:
    """What a text takes in memory follows from its values: 60 MB of `[],[],…` take two gigabytes when they are read."""
    return len(text) > MOST_VALUES and count_values(text, MOST_VALUES) > MOST_VALUES


def count_values(text: bytes, most: int) -> int:
    """Elements, members and containers, told apart from what stands in texts; no longer counted once it is more.

    In pieces, none of which ends within an escape: without escapes every second part between quotes is a text.
    """
    values, at, is_text = 1, 0, 0
    while at < len(text) and values <= most:
        piece = text[at : at + PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = text[at : at + PIECE + 1]
        at += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b" ".join(parts[is_text::2])
        is_text ^= (len(parts) - 1) & 1
        values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
    return values
