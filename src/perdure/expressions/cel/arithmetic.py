"""The arithmetic operators, by exact type: CEL never mixes numeric types and never wraps around."""

import math
from collections.abc import Callable

from perdure.expressions.cel.frame import Frame, allow_elements, allow_size, elements, width_of
from perdure.expressions.cel.instants import Duration, Timestamp, time_between
from perdure.expressions.cel.values import INT_MAX, INT_MIN, UINT_MAX, CelList, Uint, Value, type_name
from perdure.expressions.errors import EvaluationFault

Operation = Callable[[Frame, Value, Value], Value]


def checked_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationFault("int overflow")


def checked_uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise EvaluationFault("uint overflow")


def add(frame: Frame, left: Value, right: Value) -> Value:
    match left, right:
        case (list(), list()):
            allow_elements(frame, len(left) + len(right))
            result = CelList(elements(frame, left))
            result += elements(frame, right)
            return result
        case (Timestamp(), Duration()) | (Duration(), Timestamp()):
            return Timestamp(left.nanos + right.nanos)
        case (Duration(), Duration()):
            return Duration(left.nanos + right.nanos)
    kind = type(left)
    if kind is type(right):
        if kind is float:
            return left + right
        if kind is int:
            return checked_int(left + right)
        if kind is Uint:
            return checked_uint(int(left) + int(right))
        if kind is str:
            allow_size(frame, len(left) + len(right), width=width_of(left, right))
            return left + right
        if kind is bytes:
            allow_size(frame, len(left) + len(right))
            return left + right
    raise _no_overload("+", left, right)


def subtract(_: Frame, left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is float:
            return left - right
        if kind is int:
            return checked_int(left - right)
        if kind is Uint:
            return checked_uint(int(left) - int(right))
        if kind is Timestamp:
            return time_between(left, right)
        if kind is Duration:
            return Duration(left.nanos - right.nanos)
    if kind is Timestamp and type(right) is Duration:
        return Timestamp(left.nanos - right.nanos)
    raise _no_overload("-", left, right)


def multiply(_: Frame, left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is float:
            return left * right
        if kind is int:
            return checked_int(left * right)
        if kind is Uint:
            return checked_uint(int(left) * int(right))
    raise _no_overload("*", left, right)


def divide(_: Frame, left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is float:
            return _divide_doubles(left, right)
        if kind is int or kind is Uint:
            if right == 0:
                raise EvaluationFault("division by zero")
            quotient = abs(int(left)) // abs(int(right))  # CEL truncates, Python floors
            if kind is Uint:
                return Uint(quotient)
            return checked_int(quotient if (left < 0) == (right < 0) else -quotient)
    raise _no_overload("/", left, right)


def _divide_doubles(left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    if left == 0.0 or left != left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def remainder(_: Frame, left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right) and (kind is int or kind is Uint):
        if right == 0:
            raise EvaluationFault("remainder of a division by zero")
        if left == INT_MIN and right == -1:
            raise EvaluationFault("int overflow")
        rest = abs(int(left)) % abs(int(right))
        return Uint(rest) if kind is Uint else -rest if left < 0 else rest
    raise _no_overload("%", left, right)


def negate(value: Value) -> Value:
    if type(value) is float:
        return -value
    if type(value) is int:
        return checked_int(-value)
    raise EvaluationFault(f"no such overload: -{type_name(value)}")


OPERATIONS: dict[str, Operation] = {"+": add, "-": subtract, "*": multiply, "/": divide, "%": remainder}


def _no_overload(operator: str, left: Value, right: Value) -> EvaluationFault:
    return EvaluationFault(f"no such overload: {type_name(left)} {operator} {type_name(right)}")
