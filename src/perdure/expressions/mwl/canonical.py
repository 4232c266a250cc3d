"""Canonical JSON text, RFC 8785 (MWL-131): compact, keys by UTF-16 code units, numbers as ECMAScript writes them."""

import json

from perdure.expressions import bounded_calls
from perdure.expressions.cel.frame import (
    BYTES_OF_AN_ELEMENT,
    BYTES_OF_AN_ENTRY,
    PRICE_OF_TEXT,
    READ_LEAF,
    Frame,
    allow_size,
    charge,
    spend,
    width_of,
)
from perdure.expressions.cel.text_forms import plain_digits, shortest_digits
from perdure.expressions.cel.values import CelList, CelMap, Value
from perdure.expressions.errors import EvaluationFault
from perdure.expressions.mwl.results import Json, scalar_to_json, text_key


def canonical_json(frame: Frame, value: Value) -> str:
    """The text of a value; an error when some part of it has no JSON form."""
    out: list[str] = []
    _write(frame, value, out)
    size, width = 0, 1
    for part in out:
        size += len(part)
        width = width if part.isascii() else 4
    allow_size(frame, size, width=width)
    return bounded_calls.join("", out)


def _write(frame: Frame, value: Value, out: list[str]) -> None:
    charge(frame, 30)
    spend(frame, 2 * BYTES_OF_AN_ELEMENT)
    kind = type(value)
    if kind is str:
        out.append(_quoted(frame, value))
    elif kind is list or kind is CelList:
        out.append("[")
        for at, item in enumerate(value):
            out.append("," if at else "")
            _write(frame, frame[READ_LEAF](item) if kind is list and type(item) is int else item, out)
        out.append("]")
    elif kind is dict or kind is CelMap:
        out.append("{")
        for at, (key, item) in enumerate(_ordered(frame, value)):
            out.append(f"{',' if at else ''}{_quoted(frame, key)}:")
            _write(frame, frame[READ_LEAF](item) if kind is dict and type(item) is int else item, out)
        out.append("}")
    else:
        charge(frame, PRICE_OF_TEXT)
        out.append(_encode(scalar_to_json(value)))


def _ordered(frame: Frame, value: Value) -> list[tuple[str, Value]]:
    """The entries of a map by key, in order of UTF-16 code units."""
    charge(frame, len(value) * (20 + 5 * len(value).bit_length()))
    spend(frame, 2 * BYTES_OF_AN_ENTRY * len(value))
    pairs = [(text_key(key), item) for key, item in (value.items() if type(value) is dict else value.pairs())]
    keys: list[bytes] = []
    longest = 0
    for key, _ in pairs:
        allow_size(frame, len(key), width=2)
        keys.append(key.encode("utf-16-be", "surrogatepass"))
        longest = max(longest, len(keys[-1]))
    charge(frame, (longest >> 9) * len(keys) * len(keys).bit_length())
    return [pairs[at] for at in bounded_calls.order(keys, longest)]


def _quoted(frame: Frame, text: str) -> str:
    allow_size(frame, len(text), width=2 * width_of(text))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise EvaluationFault("a lone surrogate has no JSON form") from None
    if len(text) <= bounded_calls.CHARACTERS:
        return json.dumps(text, ensure_ascii=False)
    parts = [text[at : at + bounded_calls.CHARACTERS] for at in range(0, len(text), bounded_calls.CHARACTERS)]
    return f'"{"".join([json.dumps(part, ensure_ascii=False)[1:-1] for part in parts])}"'


def _encode(value: Json) -> str:
    if value is None or type(value) is bool:
        return {None: "null", True: "true", False: "false"}[value]
    if type(value) is int:
        return str(value)
    assert type(value) is float
    return format_number(value)


def format_number(value: float) -> str:
    """ECMAScript's Number::toString."""
    sign, digits, exponent = shortest_digits(value)
    if digits == "0":
        return "0"
    scale = len(digits) + exponent  # the position of the decimal point after the first digit
    if -6 < scale <= 21:
        return sign + plain_digits(digits, exponent)
    return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{scale - 1:+}"
