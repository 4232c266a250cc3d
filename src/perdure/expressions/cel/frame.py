"""One evaluation's memory: a flat list, so that a planned closure reaches everything by a constant index.

    [roots, steps left, limits, read_leaf, clock, local variables …]

Counting is coarse on purpose: a step is about one operation. Straight-line code is bounded by the size of the
source, so only loops and operations that grow with their operands pay.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.expressions.cel.errors import EvaluationFault, LimitExceeded
from perdure.expressions.cel.values import INT_MAX, INT_MIN, CelList, CelMap, Value, type_name

Frame = list[Any]
Closure = Callable[[Frame], Value]

ROOTS, STEPS, LIMITS, READ_LEAF, CLOCK, FIRST_LOCAL = 0, 1, 2, 3, 4, 5


class Limits(msgspec.Struct, frozen=True):
    """What one expression may use. The defaults are generous for people and tight for attackers."""

    source: int = 100_000  # characters of text
    depth: int = 120  # nesting of the expression
    steps: int = 20_000_000  # operations, roughly
    size: int = 10_000_000  # characters or bytes of any one value made; a list element counts as 8


DEFAULT_LIMITS = Limits()
PRICE_OF_A_FAULT = 20  # an absorbed error is slow compared with a value
PRICE_OF_TEXT = 12  # so is reading or writing a number or a time as text


def charge(frame: Frame, steps: int) -> None:
    frame[STEPS] -= steps
    if frame[STEPS] < 0:
        raise LimitExceeded(f"more than {frame[LIMITS].steps} steps were needed")


def allow_size(frame: Frame, size: int) -> None:
    """Refuse a value before it is built, and let the work of building it count."""
    if size > frame[LIMITS].size:
        raise LimitExceeded(f"a value of size {size} is larger than {frame[LIMITS].size}")
    charge(frame, size >> 3)


def allow_elements(frame: Frame, count: int) -> None:
    """The same for a list: elements weigh more than characters."""
    allow_size(frame, 8 * count)
    charge(frame, 3 * count)


def read_int(value: int) -> Value:
    """The plain rule for an integer in data: it is an int, so it must be one of 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationFault("a number in the data is too large for a 64-bit int")


def elements(frame: Frame, items: Value) -> list[Value]:
    """The elements of a list as CEL values."""
    kind = type(items)
    if kind is CelList:
        return items  # type: ignore[no-any-return]
    if kind is list:
        read = frame[READ_LEAF]
        return [read(item) if type(item) is int else item for item in items]
    raise EvaluationFault(f"a list is needed, not {type_name(items)}")


def entries(frame: Frame, mapping: Value) -> list[tuple[Value, Value]]:
    """The entries of a map as CEL keys and values, in order."""
    kind = type(mapping)
    if kind is CelMap:
        return list(mapping.pairs())
    if kind is dict:
        read = frame[READ_LEAF]
        return [(key, read(value) if type(value) is int else value) for key, value in mapping.items()]
    raise EvaluationFault(f"a map is needed, not {type_name(mapping)}")
