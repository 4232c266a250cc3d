"""The math extension: extremes, rounding, signs, bits."""

import math
from collections.abc import Callable

from perdure.expressions.cel.arithmetic import checked_int
from perdure.expressions.cel.comparison import compare
from perdure.expressions.cel.frame import Frame, charge, each
from perdure.expressions.cel.functions.library import LIST, NUMBER, Function, Library, no_overload
from perdure.expressions.cel.values import UINT_MAX, CelList, Uint, Value
from perdure.expressions.errors import EvaluationFault


def _extreme(name: str, sign: int) -> Function:
    """The first of the greatest (or least) values, keeping its own type."""

    def pick(frame: Frame, values: list[Value]) -> Value:
        charge(frame, 12 * len(values))
        best: Value = None
        for value in each(frame, values):
            if type(value) not in NUMBER:
                raise no_overload(name, tuple(values[:4]), is_method=False)
            if best is None or compare(frame, value, best) == sign:
                best = value
        return best

    def of_arguments(frame: Frame, *values: Value) -> Value:
        return pick(frame, CelList(values))

    def of_list(frame: Frame, values: Value) -> Value:
        if not values:
            raise EvaluationFault(f"{name}() of an empty list")
        return pick(frame, values)

    return Function(((NUMBER,), of_arguments), ((LIST,), of_list), variadic=of_arguments)


def _on_double(operate: Callable[[float], float]) -> Function:
    """NaN and infinities are returned unchanged, and zero keeps the sign of the rounded value."""

    def round_off(_: Frame, value: float) -> float:
        if not math.isfinite(value):
            return value
        return float(operate(value)) or math.copysign(0.0, value)

    return Function(((float,), round_off))


def _round(value: float) -> float:
    """Half away from zero."""
    truncated = math.trunc(value)
    return (
        float(truncated + math.copysign(1, value))
        if abs(value - truncated) >= 0.5
        else math.copysign(float(truncated), value)
    )


def _sign(value: Value) -> Value:
    return type(value)((value > 0) - (value < 0)) if value == value else value


def _square_root(_: Frame, value: Value) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


def _bits(operate: Callable[[int, int], int]) -> Function:
    return Function(
        ((int, int), lambda _, left, right: operate(left, right)),
        ((Uint, Uint), lambda _, left, right: Uint(operate(int(left), int(right)))),
    )


def _shift(operate: Callable[[int, int], int]) -> Function:
    """Shifts operate on 64 bits and ignore the sign."""

    def shift(value: int, by: int) -> int:
        if by < 0:
            raise EvaluationFault(f"a shift by {by} is negative")
        return operate(value & UINT_MAX, by) & UINT_MAX if by < 64 else 0

    def signed(_: Frame, value: int, by: int) -> int:
        bits = shift(value, by)
        return bits - 2**64 if bits >= 2**63 else bits

    return Function(((int, int), signed), ((Uint, int), lambda _, value, by: Uint(shift(int(value), by))))


def _tests_double(test: Callable[[float], bool]) -> Function:
    return Function(((float,), lambda _, value: test(value)))


def _abs(_: Frame, value: int) -> int:
    return checked_int(abs(value))


def _same(_: Frame, value: Uint) -> Uint:
    return value


LIBRARY = Library(
    functions={
        "math.greatest": _extreme("math.greatest", 1),
        "math.least": _extreme("math.least", -1),
        "math.ceil": _on_double(math.ceil),
        "math.floor": _on_double(math.floor),
        "math.round": _on_double(_round),
        "math.trunc": _on_double(math.trunc),
        "math.abs": Function(((int,), _abs), ((Uint,), _same), ((float,), lambda _, value: abs(value))),
        "math.sign": Function(((NUMBER,), lambda _, value: _sign(value))),
        "math.sqrt": Function(((NUMBER,), _square_root)),
        "math.isNaN": _tests_double(math.isnan),
        "math.isInf": _tests_double(math.isinf),
        "math.isFinite": _tests_double(math.isfinite),
        "math.bitAnd": _bits(lambda left, right: left & right),
        "math.bitOr": _bits(lambda left, right: left | right),
        "math.bitXor": _bits(lambda left, right: left ^ right),
        "math.bitNot": Function(((int,), lambda _, value: ~value), ((Uint,), lambda _, v: Uint(int(v) ^ UINT_MAX))),
        "math.bitShiftLeft": _shift(lambda value, by: value << by),
        "math.bitShiftRight": _shift(lambda value, by: value >> by),
    }
)
