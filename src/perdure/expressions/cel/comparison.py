"""Equality and order, across types.

Values of different kinds are unequal, never an error; numbers compare by value whatever their type: an int is converted
to a double when it is compared with one, as in other implementations. Order exists only within one kind.
"""

from perdure.expressions.cel.frame import Frame, charge, each, entries
from perdure.expressions.cel.instants import Duration, Timestamp
from perdure.expressions.cel.values import CelList, CelMap, Optional, TypeValue, Uint, Value, type_name, wrap_key
from perdure.expressions.errors import EvaluationFault

_NUMBERS = frozenset({int, float, Uint})
_LISTS = frozenset({list, CelList})
_MAPS = frozenset({dict, CelMap})
_PLAIN = frozenset({str, bool, bytes, type(None)})


def equals(frame: Frame, left: Value, right: Value) -> bool:
    """CEL `==`."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS:
        return other in _NUMBERS and _numbers_equal(left, right)
    if kind in _PLAIN:
        if kind is not other:
            return False
        if kind is str or kind is bytes:
            charge(frame, len(left) >> 10)
        return bool(left == right)
    if kind in _LISTS:
        return other in _LISTS and _lists_equal(frame, left, right)
    if kind in _MAPS:
        return other in _MAPS and _maps_equal(frame, left, right)
    if kind is not other:
        return False
    if kind is Timestamp or kind is Duration:
        return bool(left.nanos == right.nanos)
    if kind is TypeValue:
        return bool(left.name == right.name)
    if kind is Optional:
        if left.has_value and right.has_value:
            return equals(frame, left.value, right.value)
        return bool(left.has_value == right.has_value)
    raise EvaluationFault(f"a {type_name(left)} is not a CEL value")


def _numbers_equal(left: Value, right: Value) -> bool:
    if type(left) is float or type(right) is float:
        return float(left) == float(right)
    return int(left) == int(right)


def _lists_equal(frame: Frame, left: list[Value], right: list[Value]) -> bool:
    if len(left) != len(right):
        return False
    charge(frame, 12 * len(left) + 20)
    return all(equals(frame, a, b) for a, b in zip(each(frame, left), each(frame, right), strict=True))


def _maps_equal(frame: Frame, left: Value, right: Value) -> bool:
    if len(left) != len(right):
        return False
    charge(frame, 16 * len(left) + 20)
    theirs = {wrap_key(key): value for key, value in entries(frame, right)}
    for key, value in entries(frame, left):
        wrapped = wrap_key(key)
        if wrapped not in theirs or not equals(frame, value, theirs[wrapped]):
            return False
    return True


def contains(frame: Frame, needle: Value, hay: Value) -> bool:
    """CEL `in`: an element of a list, or a key of a map."""
    kind = type(hay)
    if kind in _LISTS:
        if type(needle) is str:
            charge(frame, len(hay) * (2 + (len(needle) >> 10)))
            return any(type(item) is str and item == needle for item in hay)
        charge(frame, 8 * len(hay))
        return any(equals(frame, needle, item) for item in each(frame, hay))
    if kind in _MAPS and (type(needle) in _NUMBERS or type(needle) is str or type(needle) is bool):
        if kind is dict:  # data have string keys only
            return type(needle) is str and needle in hay
        return wrap_key(needle) in hay
    raise EvaluationFault(f"no such overload: {type_name(needle)} in {type_name(hay)}")


def compare(frame: Frame, left: Value, right: Value) -> int | None:
    """-1, 0 or 1; None when NaN is involved. An error when there is no order between the types."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if kind is float or other is float:
            left, right = float(left), float(right)
            if left != left or right != right:
                return None
    elif kind is not other:
        raise EvaluationFault(f"{type_name(left)} and {type_name(right)} have no order")
    elif kind is Timestamp or kind is Duration:
        left, right = left.nanos, right.nanos
    elif kind is str or kind is bytes:
        charge(frame, len(left) >> 10)
    elif kind is not bool:
        raise EvaluationFault(f"values of type {type_name(left)} have no order")
    return -1 if left < right else 1 if left > right else 0
