"""Type conversions: `int`, `uint`, `double`, `string`, `bytes`, `bool`, `timestamp`, `duration`, `dyn`, `type`."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from perdure.expressions.cel.arithmetic import checked_int, checked_uint
from perdure.expressions.cel.frame import BYTES_OF_A_TEXT, PRICE_OF_TEXT, Frame, allow_size, charge, spend, width_of
from perdure.expressions.cel.functions.library import ANY, Function, Implementation, Library
from perdure.expressions.cel.instants import (
    NANOS,
    Duration,
    Timestamp,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
)
from perdure.expressions.cel.values import TypeValue, Uint, Value, type_of
from perdure.expressions.errors import EvaluationFault, LimitExceeded
from perdure.kernel.lazy_regex import lazy_regex

_DECIMAL = lazy_regex(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 100_000
_WORDS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


def format_double(value: float) -> str:
    """The shortest digits that read back the same; an exponent below 1e-4 and from 1e6 on (Go's `%g`)."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = shortest_digits(value)
    scale = len(digits) + exponent - 1
    if not -4 <= scale < 6 and digits != "0":
        return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{scale:+03}"
    return sign + plain_digits(digits, exponent)


def plain_double(value: float) -> str:
    """The shortest digits, never with an exponent."""
    sign, digits, exponent = shortest_digits(value)
    return sign + plain_digits(digits, exponent)


def plain_digits(digits: str, exponent: int) -> str:
    if exponent >= 0:
        return digits + "0" * exponent
    padded = digits.rjust(-exponent + 1, "0")
    return f"{padded[:exponent]}.{padded[exponent:]}"


def shortest_digits(value: float) -> tuple[str, str, int]:
    """Sign, digits and decimal exponent of a finite double; zero has the digits `0`."""
    negative, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits))
    stripped = text.rstrip("0") or "0"
    assert isinstance(exponent, int)
    return "-" if negative else "", stripped, 0 if stripped == "0" else exponent + len(text) - len(stripped)


def _identity(_: Frame, value: Value) -> Value:
    return value


def _int_from_double(_: Frame, value: float) -> int:
    if not -(2.0**63) < value < 2.0**63:
        raise EvaluationFault("the double does not fit in an int")
    return int(value)


def _uint_from_double(_: Frame, value: float) -> Uint:
    if not 0 <= value < 2.0**64:
        raise EvaluationFault("the double does not fit in a uint")
    return Uint(value)


def _read_digits(frame: Frame, text: str, what: str) -> int:
    charge(frame, PRICE_OF_TEXT + (len(text) >> 2))
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or (text[:1] in ("+", "-") and what == "uint"):
        article = "an" if what == "int" else "a"
        raise EvaluationFault(f"{text[:60]!r} is not {article} {what}")
    if len(digits.lstrip("0")) > 20:
        raise EvaluationFault(f"{text[:60]!r} does not fit in a {what}")
    magnitude = int(digits.lstrip("0") or "0")
    return -magnitude if text[0] == "-" else magnitude


def _double_from_string(frame: Frame, text: str) -> float:
    charge(frame, PRICE_OF_TEXT + (len(text) >> 1))
    if len(text) > _LONGEST_NUMBER:
        raise LimitExceeded(f"a number of {len(text)} characters is longer than {_LONGEST_NUMBER}")
    if _DECIMAL.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise EvaluationFault(f"{text[:60]!r} is too large for a double")
        return value
    word = _WORDS.get(text.lstrip("+-").lower()) if len(text) <= 9 and text[1:].isalpha() else None
    if word is None:
        raise EvaluationFault(f"{text[:60]!r} is not a double")
    return -word if text[0] == "-" else word


def _bool_from_string(_: Frame, text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise EvaluationFault(f"{text[:60]!r} is not a bool")


def _string_from_bytes(frame: Frame, value: bytes) -> str:
    allow_size(frame, len(value), width=1 if value.isascii() else 4)
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationFault("the bytes are not UTF-8") from None


def encode_text(frame: Frame, text: str) -> bytes:
    allow_size(frame, len(text), width=width_of(text))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EvaluationFault("the string holds a lone surrogate, which has no UTF-8 form") from None


def _as_text(convert: Callable[[Any], Value]) -> Implementation:
    """A conversion to or from text, paid for."""

    def pay_and_convert(frame: Frame, value: Value) -> Value:
        charge(frame, PRICE_OF_TEXT)
        spend(frame, BYTES_OF_A_TEXT)
        return convert(value)

    return pay_and_convert


def _type(_: Frame, value: Value) -> TypeValue:
    return type_of(value)


LIBRARY = Library(
    functions={
        "int": Function(
            ((int,), _identity),
            ((Uint,), lambda _, value: checked_int(int(value))),
            ((float,), _int_from_double),
            ((str,), lambda frame, text: checked_int(_read_digits(frame, text, "int"))),
            ((Timestamp,), lambda _, instant: instant.nanos // NANOS),
        ),
        "uint": Function(
            ((Uint,), _identity),
            ((int,), lambda _, value: checked_uint(value)),
            ((float,), _uint_from_double),
            ((str,), lambda frame, text: checked_uint(_read_digits(frame, text, "uint"))),
        ),
        "double": Function(
            ((float,), _identity),
            (((int, Uint),), lambda _, value: float(value)),
            ((str,), _double_from_string),
        ),
        "string": Function(
            ((str,), _identity),
            ((bool,), lambda _, value: "true" if value else "false"),
            (((int, Uint),), lambda _, value: str(int(value))),
            ((float,), _as_text(format_double)),
            ((bytes,), _string_from_bytes),
            ((Timestamp,), _as_text(format_timestamp)),
            ((Duration,), _as_text(format_duration)),
        ),
        "bytes": Function(((bytes,), _identity), ((str,), encode_text)),
        "bool": Function(((bool,), _identity), ((str,), _bool_from_string)),
        "timestamp": Function(
            ((Timestamp,), _identity),
            ((str,), _as_text(parse_timestamp)),
            ((int,), lambda _, seconds: Timestamp(seconds * NANOS)),
        ),
        "duration": Function(((Duration,), _identity), ((str,), _as_text(parse_duration))),
        "dyn": Function(((ANY,), _identity)),
        "type": Function(((ANY,), _type)),
    }
)
