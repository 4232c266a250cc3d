"""Type conversions: `int`, `uint`, `double`, `string`, `bytes`, `bool`, `timestamp`, `duration`, `dyn`, `type`."""

import math
from collections.abc import Callable
from typing import Any

from perdure.expressions.cel.arithmetic import checked_int, checked_uint
from perdure.expressions.cel.frame import BYTES_OF_A_TEXT, PRICE_OF_TEXT, Frame, allow_size, charge, spend
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
from perdure.expressions.cel.text_forms import encode_text, format_double
from perdure.expressions.cel.values import TypeValue, Uint, Value, type_of
from perdure.expressions.errors import EvaluationFault, LimitExceeded
from perdure.kernel.lazy_regex import lazy_regex

_DECIMAL = lazy_regex(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 100_000
_WORDS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


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


def _read_digits(frame: Frame, text: str, type_name: str) -> int:
    charge(frame, PRICE_OF_TEXT + (len(text) >> 2))
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or (text[:1] in ("+", "-") and type_name == "uint"):
        article = "an" if type_name == "int" else "a"
        raise EvaluationFault(f"{text[:60]!r} is not {article} {type_name}")
    if len(digits.lstrip("0")) > 20:
        raise EvaluationFault(f"{text[:60]!r} does not fit in a {type_name}")
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
    special = _WORDS.get(text.lstrip("+-").lower()) if len(text) <= 9 and text[1:].isalpha() else None
    if special is None:
        raise EvaluationFault(f"{text[:60]!r} is not a double")
    return -special if text[0] == "-" else special


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
