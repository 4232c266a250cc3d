"""The lists extension: ranges, slices, order, and the first and last element."""

from collections import defaultdict
from functools import cmp_to_key
from typing import Any

from perdure.expressions import bounded_calls
from perdure.expressions.cel.comparison import compare, equals
from perdure.expressions.cel.frame import (
    BYTES_OF_AN_ELEMENT,
    LIMITS,
    Frame,
    allow_elements,
    charge,
    each,
    elements,
    spend,
)
from perdure.expressions.cel.functions.library import LIST, Function, Library
from perdure.expressions.cel.values import NONE, CelList, Optional, Uint, Value, type_name
from perdure.expressions.errors import EvaluationFault, LimitExceeded

_HASHABLE = frozenset({str, bytes, bool, int, Uint, float, type(None)})
_NUMBERS = frozenset({int, Uint, float})
_BYTES_OF_A_SEEN_ITEM = 152


def _range(frame: Frame, count: int) -> CelList:
    if count < 0:
        raise EvaluationFault(f"a range cannot have {count} elements")
    allow_elements(frame, count, each=BYTES_OF_AN_ELEMENT)
    numbers = CelList()
    for first in range(0, count, bounded_calls.PARTS):
        numbers += range(first, min(first + bounded_calls.PARTS, count))
    return numbers


def _slice(frame: Frame, items: Value, start: int, end: int) -> CelList:
    if not 0 <= start <= end <= len(items):
        raise EvaluationFault(f"a slice from {start} to {end} is out of range: the list has {len(items)} elements")
    allow_elements(frame, end - start)
    return CelList(elements(frame, items[start:end] if type(items) is list else CelList(items[start:end])))


def _flatten(frame: Frame, items: Value, depth: int = 1) -> CelList:
    if depth < 0:
        raise EvaluationFault(f"a list cannot be flattened to depth {depth}")
    out = CelList()
    _flatten_into(frame, out, items, depth)
    return out


def _flatten_into(frame: Frame, out: CelList, items: Value, depth: int) -> None:
    allow_elements(frame, len(items), each=BYTES_OF_AN_ELEMENT)
    if 8 * (len(out) + len(items)) > frame[LIMITS].size:
        raise LimitExceeded(f"a list of {len(out) + len(items)} elements is larger than {frame[LIMITS].size // 8}")
    charge(frame, 4 * len(items) + 20)
    for item in each(frame, items):
        if depth > 0 and type(item) in LIST:
            _flatten_into(frame, out, item, depth - 1)
        else:
            out.append(item)


def _distinct(frame: Frame, items: Value) -> CelList:
    """The first of all equal elements, in order. Scalars by hash, the rest one by one."""
    seen: defaultdict[Any, set[Any]] = defaultdict(set)  # by kind: freeing as many pairs would be one long call
    odd: list[Value] = []
    out = CelList()
    charge(frame, 8 * len(items))
    spend(frame, _BYTES_OF_A_SEEN_ITEM * len(items))
    for item in each(frame, items):
        kind: Any = type(item)
        if kind in _HASHABLE:
            known = seen[int if kind in _NUMBERS else kind]
            if item in known:
                continue
            known.add(item)
        else:
            charge(frame, 10 * len(odd))
            if any(equals(frame, item, other) for other in odd):
                continue
            odd.append(item)
        out.append(item)
    return out


def _reverse(frame: Frame, items: Value) -> CelList:
    allow_elements(frame, len(items))
    return CelList(elements(frame, items)[::-1])


def _sort(frame: Frame, items: Value) -> CelList:
    charge(frame, 2 * len(items))
    values = elements(frame, items)
    return sort_by(frame, values, values)


def sort_by(frame: Frame, values: list[Value], keys: list[Value]) -> CelList:
    """Values in the order of their keys; equal keys keep their order. Keys must be comparable with each other."""
    charge(frame, 2 * len(keys))
    spend(frame, 2 * BYTES_OF_AN_ELEMENT * len(keys))
    for key in keys:
        if type(key) is not type(keys[0]) and not (type(key) in _NUMBERS and type(keys[0]) in _NUMBERS):
            raise EvaluationFault(f"{type_name(keys[0])} and {type_name(key)} have no order")

    def arrange(left: Value, right: Value) -> int:
        result = compare(frame, left, right)
        if result is None:
            raise EvaluationFault("NaN cannot be ordered")
        return result

    comparisons = len(keys) * len(keys).bit_length()
    if keys and type(keys[0]) is str:
        longest = 0
        for key in keys:
            longest = max(longest, len(key))
        charge(frame, 5 * comparisons + comparisons * (longest >> 9))
        order = bounded_calls.order(keys, longest)
    else:
        charge(frame, 10 * comparisons)
        order = bounded_calls.order([*map(cmp_to_key(arrange), keys)])
    return CelList([values[at] for at in order])


def _first(frame: Frame, items: Value) -> Optional:
    return Optional(elements(frame, items[:1] if type(items) is list else items)[0]) if items else NONE


def _last(frame: Frame, items: Value) -> Optional:
    return Optional(elements(frame, items[-1:] if type(items) is list else items)[-1]) if items else NONE


LIBRARY = Library(
    functions={"lists.range": Function(((int,), _range))},
    methods={
        "slice": Function(((LIST, int, int), _slice)),
        "flatten": Function(((LIST,), _flatten), ((LIST, int), _flatten)),
        "distinct": Function(((LIST,), _distinct)),
        "reverse": Function(((LIST,), _reverse)),
        "sort": Function(((LIST,), _sort)),
        "first": Function(((LIST,), _first)),
        "last": Function(((LIST,), _last)),
    },
)
