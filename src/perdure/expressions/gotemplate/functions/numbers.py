"""Arithmetic. Integers wrap at 64 bits, decimal fractions are added exactly: 0.1 + 0.2 is 0.3.

Anything that is not a number counts as 0, as in Sprig.
"""

import re
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException
from math import ceil, floor, isfinite, modf

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.formatting import format_scalar
from perdure.expressions.gotemplate.functions.library import ANY, INTEGER, SLOW, TEXT, takes
from perdure.expressions.gotemplate.literals import INT_MAX, INT_MIN
from perdure.expressions.gotemplate.values import LONGEST_NUMBER, Value, to_int64, wrap_int64
from perdure.kernel.lazy_regex import lazy_regex

_DECIMAL = lazy_regex(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?")
_PRECISE = Context(prec=800)
_QUOTIENT_PLACES = Decimal(1).scaleb(-16)


def to_float64(value: Value) -> float:
    if type(value) in (bool, int, float):
        return float(value) if not isinstance(value, int) or abs(value) < 2**1000 else 0.0
    if type(value) is str and len(value) <= LONGEST_NUMBER and _DECIMAL.fullmatch(value):
        number = float(value)
        return number if isfinite(number) else 0.0
    return 0.0


def atoi(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        return 0
    number = int(text)
    return number if INT_MIN <= number <= INT_MAX else 0


def from_octal(value: Value) -> int:
    text = format_scalar(value) if not isinstance(value, list | dict) else ""
    return wrap_int64(int(text, 8)) if re.fullmatch(r"[+-]?[0-7]{1,21}", text) else 0


def add(*values: Value) -> int:
    return wrap_int64(sum(to_int64(value) for value in values))


def multiply(first: Value, *others: Value) -> int:
    product = to_int64(first)
    for other in others:
        product = wrap_int64(product * to_int64(other))
    return product


def divide(left: Value, right: Value) -> int:
    dividend, divisor = to_int64(left), to_int64(right)
    if divisor == 0:
        raise EvaluationFault("division by zero")
    quotient = abs(dividend) // abs(divisor)
    return wrap_int64(quotient if (dividend < 0) == (divisor < 0) else -quotient)


def remainder(left: Value, right: Value) -> int:
    dividend, divisor = to_int64(left), to_int64(right)
    if divisor == 0:
        raise EvaluationFault("division by zero")
    rest = abs(dividend) % abs(divisor)
    return -rest if dividend < 0 else rest


def _decimal_fold(operation: Callable[[Decimal, Decimal], Decimal]) -> Callable[..., float]:
    def fold(first: Value, *others: Value) -> float:
        total = _decimal(first)
        try:
            for other in others:
                total = operation(total, _decimal(other))
        except (DecimalException, ZeroDivisionError):
            raise EvaluationFault(
                "division by zero" if operation is _quotient else "this number is too large"
            ) from None
        return float(total)

    return fold


def _decimal(value: Value) -> Decimal:
    return Decimal(repr(to_float64(value)))


def _quotient(left: Decimal, right: Decimal) -> Decimal:
    return _PRECISE.divide(left, right).quantize(_QUOTIENT_PLACES, context=_PRECISE)


def _whole(rounding: Callable[[float], int], value: Value) -> float:
    number = to_float64(value)
    return float(rounding(number)) if isfinite(number) else number


def round_to(value: Value, places: int, *from_half: Value) -> float:
    """To this many decimal places; `from_half` is the fraction from which a digit is rounded up."""
    number = to_float64(value)
    if not -300 <= places <= 300:
        raise EvaluationFault("the number of places must be between -300 and 300")
    threshold = to_float64(from_half[0]) if from_half else 0.5
    power = 10.0**places
    shifted = power * number
    if not isfinite(shifted):
        return number
    rounded = ceil(shifted) if modf(shifted)[0] >= threshold else floor(shifted)
    return rounded / power


_add_decimals = _decimal_fold(_PRECISE.add)
_subtract_decimals = _decimal_fold(_PRECISE.subtract)
_multiply_decimals = _decimal_fold(_PRECISE.multiply)
_divide_decimals = _decimal_fold(_quotient)

_LARGEST = takes(lambda *values: max(to_int64(value) for value in values), ANY, rest=ANY)

FUNCTIONS = {
    "add": takes(add, rest=ANY),
    "add1": takes(lambda value: wrap_int64(to_int64(value) + 1), ANY),
    "add1f": takes(lambda value: _add_decimals(value, 1), ANY, price=SLOW),
    "addf": takes(lambda *values: _add_decimals(0, *values), rest=ANY, price=SLOW),
    "atoi": takes(atoi, TEXT),
    "biggest": _LARGEST,
    "ceil": takes(lambda value: _whole(ceil, value), ANY),
    "div": takes(divide, ANY, ANY),
    "divf": takes(_divide_decimals, ANY, rest=ANY, price=SLOW),
    "float64": takes(to_float64, ANY),
    "floor": takes(lambda value: _whole(floor, value), ANY),
    "int": takes(to_int64, ANY),
    "int64": takes(to_int64, ANY),
    "max": _LARGEST,
    "maxf": takes(lambda *values: max(to_float64(value) for value in values), ANY, rest=ANY),
    "min": takes(lambda *values: min(to_int64(value) for value in values), ANY, rest=ANY),
    "minf": takes(lambda *values: min(to_float64(value) for value in values), ANY, rest=ANY),
    "mod": takes(remainder, ANY, ANY),
    "mul": takes(multiply, ANY, rest=ANY),
    "mulf": takes(_multiply_decimals, ANY, rest=ANY, price=SLOW),
    "round": takes(round_to, ANY, INTEGER, rest=ANY),
    "sub": takes(lambda left, right: wrap_int64(to_int64(left) - to_int64(right)), ANY, ANY),
    "subf": takes(_subtract_decimals, ANY, rest=ANY, price=SLOW),
    "toDecimal": takes(from_octal, ANY),
}
