"""The memory of one evaluation: a flat list, so that a planned closure finds everything by a constant index.

    [roots, steps left, limits, read_leaf, clock, bytes left, steps set aside, local variables …]

Counting is coarse on purpose: a step is about one operation. Straight-line code is paid for by its size when an
evaluation begins; loops and operations that grow with their operands pay in advance: in steps for the time, in bytes
for what is created. Where other work may be waiting, a few steps are done at a time (`kernel.turn_budget`).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from perdure.expressions import bounded_calls
from perdure.expressions.cel.values import INT_MAX, INT_MIN, CelList, CelMap, Value, type_name
from perdure.expressions.errors import EvaluationFault, LimitExceeded
from perdure.kernel.turn_budget import PORTION, rest, rests

Frame = list[Any]
Closure = Callable[[Frame], Value]

ROOTS, STEPS, LIMITS, READ_LEAF, CLOCK, BYTES, LATER, FIRST_LOCAL = 0, 1, 2, 3, 4, 5, 6, 7


class Limits(msgspec.Struct, frozen=True):
    """Limits of one expression: about a second and a hundred megabytes."""

    source: int = 100_000  # characters of text
    depth: int = 120  # nesting of the expression
    steps: int = 20_000_000  # operations, approximately
    size: int = 10_000_000  # characters or bytes of any one created value; a list element counts as 8
    memory: int = 100_000_000  # bytes of all created values


DEFAULT_LIMITS = Limits()
PRICE_OF_A_FAULT = 20  # absorbing an error is slow compared with a value
PRICE_OF_TEXT = 24  # so is converting a number or a time to or from text
BYTES_OF_A_TEXT = 56  # besides its characters
BYTES_OF_AN_ELEMENT = 40  # its place in a list, and a number
BYTES_OF_AN_ENTRY = 104  # of a map, on its way through a loop
WORK_OF_A_STEP = 4  # of the turn
STEPS_AT_ONCE = PORTION // WORK_OF_A_STEP  # between two pauses
AT_ONCE = 1_000  # elements of a long loop between two pauses, fewer if its body is long


def charge(frame: Frame, steps: int) -> None:
    frame[STEPS] -= steps
    if frame[STEPS] < 0:
        _go_on(frame)


def _go_on(frame: Frame) -> None:
    """Continue with some of the steps that were set aside, if there are any."""
    rest()
    more = min(frame[LATER], max(STEPS_AT_ONCE, -frame[STEPS]))
    frame[LATER] -= more
    frame[STEPS] += more
    if frame[STEPS] < 0:
        raise LimitExceeded(f"more than {frame[LIMITS].steps} steps were needed")


class _MeteredList(list[Value]):
    """Many elements; other threads get their turn in between."""

    __slots__ = ("at_once",)

    def __init__(self, elements: list[Value], at_once: int) -> None:
        super().__init__(elements)
        self.at_once = at_once

    def __iter__(self) -> Iterator[Value]:
        for first in range(0, len(self), self.at_once):
            rest()
            yield from self[first : first + self.at_once]


def paced(items: Iterable[Value], at_once: int) -> list[Value]:
    """Elements that are processed one by one, with pauses if there are many."""
    elements = items if isinstance(items, list) else list(items)
    return _MeteredList(elements, at_once) if len(elements) > at_once and rests() else elements


def spend(frame: Frame, size: int) -> None:
    """Pay for the memory of something about to be created."""
    frame[BYTES] -= size
    if frame[BYTES] < 0:
        raise LimitExceeded(f"more than {frame[LIMITS].memory} bytes of values were created")


def allow_size(frame: Frame, size: int, *, width: int = 1) -> None:
    """Refuse a value before it is built, and charge for the work of building it."""
    if size > frame[LIMITS].size:
        raise LimitExceeded(f"a value of size {size} is larger than {frame[LIMITS].size}")
    charge(frame, size >> 3)
    spend(frame, BYTES_OF_A_TEXT + width * size)


def width_of(*texts: str) -> int:
    """How many bytes a character may take in a text made of these."""
    for text in texts:
        if not text.isascii():
            return 4
    return 1


def allow_elements(frame: Frame, count: int, *, each: int = 8) -> None:
    """The same for a list: elements weigh more than characters. `each` is the memory of an element."""
    if 8 * count > frame[LIMITS].size:
        raise LimitExceeded(f"a list of {count} elements is larger than {frame[LIMITS].size // 8}")
    charge(frame, 4 * count)
    spend(frame, BYTES_OF_A_TEXT + each * count)


def read_int(value: int) -> Value:
    """The plain rule for an integer in data: it is an int, so it must fit into 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationFault("a number in the data is too large for a 64-bit int")


def elements(frame: Frame, items: Value) -> list[Value]:
    """The elements of a list as CEL values."""
    kind = type(items)
    if kind is CelList:
        return items  # type: ignore[no-any-return]
    if kind is list:
        spend(frame, BYTES_OF_AN_ELEMENT * len(items))
        read_leaf = frame[READ_LEAF]
        return [read_leaf(item) if type(item) is int else item for item in items]
    raise EvaluationFault(f"expected a list, not {type_name(items)}")


def each(frame: Frame, items: list[Value]) -> Iterable[Value]:
    """The same one by one, for callers that look at each only once."""
    if type(items) is CelList:
        return items
    read_leaf = frame[READ_LEAF]
    return (read_leaf(item) if type(item) is int else item for item in items)


def entries(frame: Frame, mapping: Value) -> list[tuple[Value, Value]]:
    """The entries of a map as CEL keys and values, in order."""
    kind = type(mapping)
    if kind is CelMap or kind is dict:
        spend(frame, BYTES_OF_AN_ENTRY * len(mapping))
    if kind is CelMap:
        return list(mapping.pairs())
    if kind is dict:
        read_leaf = frame[READ_LEAF]
        return [(key, read_leaf(value) if type(value) is int else value) for key, value in mapping.items()]
    raise EvaluationFault(f"expected a map, not {type_name(mapping)}")


def charge_search(frame: Frame, text: str, part: str) -> None:
    """The cost of searching for a part. A long part cannot be searched for in pieces."""
    if len(part) > bounded_calls.LONGEST_PART:
        raise LimitExceeded(f"a part of more than {bounded_calls.LONGEST_PART} characters is too long to search for")
    charge(frame, 12 + ((len(text) + len(part)) >> 2))


class SharedBudget:
    """What several expressions may use together, because they are evaluated for the same construct."""

    __slots__ = ("memory", "steps")

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.steps, self.memory = limits.steps, limits.memory
