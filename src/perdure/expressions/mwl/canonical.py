"""Canonical JSON text, RFC 8785 (MWL-131): compact, keys by UTF-16 code units, numbers as ECMAScript writes them."""

import json

from perdure.expressions.cel import CelList, CelMap, EvaluationFault
from perdure.expressions.cel.frame import READ_LEAF, Frame, allow_size, charge
from perdure.expressions.cel.functions.conversions import plain_digits, shortest_digits
from perdure.expressions.cel.values import Value
from perdure.expressions.mwl.results import Json, scalar_to_json, text_key


def canonical_json(frame: Frame, value: Value) -> str:
    """The text of a value; a fault when some part of it has no JSON form."""
    out: list[str] = []
    _write(frame, value, out)
    allow_size(frame, sum(map(len, out)))
    return "".join(out)


def _write(frame: Frame, value: Value, out: list[str]) -> None:
    charge(frame, 8)
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
        pairs = value.items() if kind is dict else value.pairs()
        ordered = sorted(((text_key(key), item) for key, item in pairs), key=lambda pair: _utf16(pair[0]))
        out.append("{")
        for at, (key, item) in enumerate(ordered):
            out.append(f"{',' if at else ''}{_quoted(frame, key)}:")
            _write(frame, frame[READ_LEAF](item) if kind is dict and type(item) is int else item, out)
        out.append("}")
    else:
        out.append(_written(scalar_to_json(value)))


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _quoted(frame: Frame, text: str) -> str:
    allow_size(frame, len(text))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise EvaluationFault("a lone surrogate has no JSON form") from None
    return json.dumps(text, ensure_ascii=False)


def _written(value: Json) -> str:
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
    scale = len(digits) + exponent  # the position of the decimal point behind the first digit
    if -6 < scale <= 21:
        return sign + plain_digits(digits, exponent)
    return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{scale - 1:+}"
