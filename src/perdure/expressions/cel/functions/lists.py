"""The lists extension: ranges, slices, order, and the first and last element."""

from functools import cmp_to_key
from typing import Any

from perdure.expressions.cel.comparison import compare, equals
from perdure.expressions.cel.errors import EvaluationFault
from perdure.expressions.cel.frame import Frame, allow_elements, charge, elements
from perdure.expressions.cel.functions.library import LIST, Function, Library
from perdure.expressions.cel.values import NONE, CelList, Optional, Uint, Value, type_name

_HASHABLE = frozenset({str, bytes, bool, int, Uint, float, type(None)})
_NUMBERS = frozenset({int, Uint, float})


def _range(frame: Frame, count: int) -> CelList:
    if count < 0:
        raise EvaluationFault(f"a range cannot have {count} elements")
    allow_elements(frame, count)
    return CelList(range(count))


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
    allow_elements(frame, len(out) + len(items))
    charge(frame, len(items) + 1)
    for item in elements(frame, items):
        if depth > 0 and type(item) in LIST:
            _flatten_into(frame, out, item, depth - 1)
        else:
            out.append(item)


def _distinct(frame: Frame, items: Value) -> CelList:
    """The first of each run of equal elements, in order. Scalars by hash, the rest one by one."""
    seen: set[tuple[Any, Any]] = set()
    odd: list[Value] = []
    out = CelList()
    charge(frame, len(items))
    for item in elements(frame, items):
        kind: Any = type(item)
        if kind in _HASHABLE:
            key = (int if kind in _NUMBERS else kind, item)
            if key in seen:
                continue
            seen.add(key)
        else:
            charge(frame, 6 * len(odd))
            if any(equals(frame, item, other) for other in odd):
                continue
            odd.append(item)
        out.append(item)
    return out


def _reverse(frame: Frame, items: Value) -> CelList:
    allow_elements(frame, len(items))
    return CelList(elements(frame, items)[::-1])


def _sort(frame: Frame, items: Value) -> CelList:
    values = elements(frame, items)
    return sort_by(frame, values, values)


def sort_by(frame: Frame, values: list[Value], keys: list[Value]) -> CelList:
    """Values in the order of their keys; equal keys keep their order. Keys must be comparable with each other."""
    charge(frame, len(keys) * max(1, len(keys).bit_length()))
    for key in keys:
        if type(key) is not type(keys[0]) and not (type(key) in _NUMBERS and type(keys[0]) in _NUMBERS):
            raise EvaluationFault(f"{type_name(keys[0])} and {type_name(key)} have no order")

    def arrange(one: int, other: int) -> int:
        result = compare(frame, keys[one], keys[other])
        if result is None:
            raise EvaluationFault("NaN has no place in an order")
        return result

    order = list(range(len(keys)))
    if keys and type(keys[0]) is str:
        order.sort(key=lambda at: keys[at])
    else:
        charge(frame, 3 * len(keys) * len(keys).bit_length())
        order.sort(key=cmp_to_key(arrange))
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
