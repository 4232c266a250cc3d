"""Closures for comprehensions. Each run pays in advance: per element as many steps as the body has nodes.

Local variables are in slots of the frame that no other variable shares, so nothing is saved or restored.
"""

from collections.abc import Callable, Iterable

from perdure.expressions.cel import syntax
from perdure.expressions.cel.frame import (
    AT_ONCE,
    BYTES_OF_AN_ELEMENT,
    BYTES_OF_AN_ENTRY,
    PRICE_OF_A_FAULT,
    STEPS,
    STEPS_AT_ONCE,
    Closure,
    Frame,
    allow_elements,
    charge,
    elements,
    entries,
    paced,
    spend,
)
from perdure.expressions.cel.functions.lists import sort_by
from perdure.expressions.cel.values import CelList, CelMap, Value, type_name
from perdure.expressions.errors import EvaluationFault, Failure

_LISTS, _MAPS = (list, CelList), (dict, CelMap)
Items = list[Value]


def loop(
    node: syntax.Loop, operand: Closure, slots: tuple[int, ...], condition: Closure | None, result: Closure | None
) -> Closure:
    """The closure of a comprehension. With two slots the items are pairs."""
    items = _items(node, operand, pairs=len(slots) == 2)
    bind = _binder(slots)
    match node.kind:
        case "all":
            return _quantifier(node, items, bind, _needed(condition), decisive=False)
        case "exists":
            return _quantifier(node, items, bind, _needed(condition), decisive=True)
        case "exists_one":
            return _exactly_one(node, items, bind, _needed(condition))
        case "filter":
            return _filter(node, items, slots[0], _needed(condition))
        case "map":
            if condition is None and len(slots) == 1:
                return _map_each(node, items, slots[0], _needed(result))
            return _map(node, items, bind, condition, _needed(result))
        case "sort_by":
            return _sort(node, items, bind, _needed(result))
    return _transform(node, items, bind, condition, _needed(result))


def _needed(closure: Closure | None) -> Closure:
    assert closure is not None, "the macro table always fills what its kind needs"
    return closure


def _items(node: syntax.Loop, operand: Closure, *, pairs: bool) -> Callable[[Frame], Items]:
    weight = _weight(node)
    at_once = max(1, min(AT_ONCE, STEPS_AT_ONCE // weight))

    def read(frame: Frame) -> Items:
        holder = operand(frame)
        try:
            charge(frame, len(holder) * weight if type(holder) in _LISTS or type(holder) in _MAPS else 1)
            if type(holder) in _LISTS:
                items = elements(frame, holder)
                if not pairs:
                    return items if len(items) <= at_once else paced(items, at_once)
                spend(frame, BYTES_OF_AN_ENTRY * len(items))
                return paced(enumerate(items), at_once)
            if type(holder) in _MAPS:
                items = entries(frame, holder)
                return paced(items if pairs else [key for key, _ in items], at_once)
        except Failure as failure:
            failure.blame(node)
            raise
        raise EvaluationFault(f"expected a list or a map, not {type_name(holder)}", node.operand)

    return read


def _weight(node: syntax.Loop) -> int:
    """The price of one iteration."""
    return 2 + sum(part.size for part in (node.condition, node.result) if part is not None)


def _binder(slots: tuple[int, ...]) -> Callable[[Frame, Value], None]:
    if len(slots) == 1:
        (slot,) = slots

        def bind_one(frame: Frame, item: Value) -> None:
            frame[slot] = item

        return bind_one
    first, second = slots

    def bind_two(frame: Frame, item: Value) -> None:
        frame[first], frame[second] = item

    return bind_two


def _quantifier(
    node: syntax.Loop,
    items: Callable[[Frame], Items],
    bind: Callable[[Frame, Value], None],
    condition: Closure,
    *,
    decisive: bool,
) -> Closure:
    """`all` ends at the first false, `exists` at the first true; that result absorbs errors of other elements."""
    undecided = not decisive
    refund = _weight(node) - 1  # for elements that were paid for and not visited

    def run(frame: Frame) -> Value:
        fault: EvaluationFault | None = None
        sequence = items(frame)
        for at, item in enumerate(sequence):
            bind(frame, item)
            try:
                value = condition(frame)
            except EvaluationFault as raised:
                charge(frame, PRICE_OF_A_FAULT)
                fault = fault or raised
                continue
            if value is decisive:
                frame[STEPS] += refund * (len(sequence) - at - 1)
                return decisive
            if value is not undecided:
                fault = fault or _not_a_bool(node, value)
        if fault is not None:
            try:
                raise fault
            finally:
                del fault  # else it keeps this frame alive by itself, with all the values in it
        return undecided

    return run


def _exactly_one(
    node: syntax.Loop, items: Callable[[Frame], Items], bind: Callable[[Frame, Value], None], condition: Closure
) -> Closure:
    """Never ends early: an error anywhere is an error."""

    def run(frame: Frame) -> Value:
        count = 0
        for item in items(frame):
            bind(frame, item)
            value = condition(frame)
            if value is True:
                count += 1
            elif value is not False:
                raise _not_a_bool(node, value)
        return count == 1

    return run


def _filter(node: syntax.Loop, items: Callable[[Frame], Items], slot: int, condition: Closure) -> Closure:
    def run(frame: Frame) -> CelList:
        result = CelList()
        keep = result.append
        sequence = items(frame)
        spend(frame, 8 * len(sequence))
        for item in sequence:
            frame[slot] = item
            value = condition(frame)
            if value is True:
                keep(item)
            elif value is not False:
                raise _not_a_bool(node, value)
        return result

    return run


def _map_each(node: syntax.Loop, items: Callable[[Frame], Items], slot: int, result: Closure) -> Closure:
    """`map` in its common form."""

    def run(frame: Frame) -> CelList:
        sequence = items(frame)
        _allow(frame, node, len(sequence))
        mapped = CelList()
        add = mapped.append
        for item in sequence:
            frame[slot] = item
            add(result(frame))
        return mapped

    return run


def _allow(frame: Frame, node: syntax.Loop, count: int) -> None:
    try:
        allow_elements(frame, count, each=BYTES_OF_AN_ELEMENT)
    except Failure as failure:
        failure.blame(node)
        raise


def _map(
    node: syntax.Loop,
    items: Callable[[Frame], Items],
    bind: Callable[[Frame, Value], None],
    condition: Closure | None,
    result: Closure,
) -> Closure:
    chosen = _chosen(node, items, bind, condition)

    def run(frame: Frame) -> CelList:
        return CelList([result(frame) for _ in chosen(frame)])

    return run


def _chosen(
    node: syntax.Loop,
    items: Callable[[Frame], Items],
    bind: Callable[[Frame, Value], None],
    condition: Closure | None,
) -> Callable[[Frame], Iterable[Value]]:
    """The items for which the condition holds, each bound while it is processed."""

    def every(frame: Frame) -> Iterable[Value]:
        sequence = items(frame)
        _allow(frame, node, len(sequence))
        for item in sequence:
            bind(frame, item)
            yield item

    if condition is None:
        return every

    def some(frame: Frame) -> Iterable[Value]:
        for item in every(frame):
            value = condition(frame)
            if value is True:
                yield item
            elif value is not False:
                raise _not_a_bool(node, value)

    return some


def _transform(
    node: syntax.Loop,
    items: Callable[[Frame], Items],
    bind: Callable[[Frame, Value], None],
    condition: Closure | None,
    result: Closure,
) -> Closure:
    """`transformMap` keeps the keys, `transformMapEntry` makes its own."""
    chosen = _chosen(node, items, bind, condition)

    def run(frame: Frame) -> CelMap:
        transformed = CelMap()
        for item in chosen(frame):
            value = result(frame)
            try:
                if node.kind == "map_values":
                    transformed.put(item[0], value)
                    continue
                charge(frame, 4 * len(value) if type(value) in _MAPS else 1)
                for key, entry in entries(frame, value):
                    transformed.put(key, entry)
            except Failure as failure:
                failure.blame(node.result or node)
                raise
        return transformed

    return run


def _sort(
    node: syntax.Loop, items: Callable[[Frame], Items], bind: Callable[[Frame, Value], None], key: Closure
) -> Closure:
    def run(frame: Frame) -> CelList:
        sequence = items(frame)
        spend(frame, BYTES_OF_AN_ELEMENT * len(sequence))
        keys: list[Value] = []
        for item in sequence:
            bind(frame, item)
            keys.append(key(frame))
        try:
            return sort_by(frame, sequence, keys)
        except Failure as failure:
            failure.blame(node)
            raise

    return run


def _not_a_bool(node: syntax.Loop, value: Value) -> EvaluationFault:
    return EvaluationFault(f"{node.kind}() needs a bool condition, not {type_name(value)}", node.condition)
