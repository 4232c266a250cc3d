"""Invariant 29: every function pays, before it works, for what grows with its arguments.

Nothing here measures time: prices are counted, memory is measured while it is made.
"""

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perdure.expressions.cel import CelList, CelMap, ExpressionError, LimitExceeded, Limits, Optional
from perdure.expressions.cel.frame import BYTES, STEPS, Frame
from perdure.expressions.cel.functions.library import Function
from perdure.expressions.cel.program import Environment, compile_program
from perdure.expressions.mwl.functions import LIBRARY, read_number

RICH = Limits(steps=10**12, memory=10**12)
SMALL = Limits(steps=1_000_000, memory=4_000_000, size=1_000_000)
TINY = Environment(LIBRARY, SMALL, read_number)

# What takes no longer for a large argument: lengths, one element, identity, and texts that must be short to be read.
CONSTANT = {
    *("size", "charAt", "first", "last", "type", "dyn", "bool", "timestamp", "duration", "optional.of"),
    *("optional.ofNonZeroValue", "orValue", "startsWith", "endsWith", "durationFromIso8601"),
}
SAME_TYPE = {("string", str), ("bytes", bytes)}

LARGE: dict[type, Callable[[int], list[Any]]] = {
    str: lambda n: ["a" * n, "é" * n, "a," * (n // 2), " " * n, "%s" * (n // 2), "0" * n, f"[{'[],' * (n // 3)}1]"],
    bytes: lambda n: [b"a" * n],
    list: lambda n: [list(range(n // 8)), ["a"] * (n // 8)],
    CelList: lambda n: [
        CelList([float(at) for at in range(n // 8)]),
        CelList([str(at) for at in range(n // 8)]),
        CelList([CelList([1.0])] * (n // 80)),
        CelList([Optional(1)] * (n // 8)),
    ],
    dict: lambda n: [{str(at): at for at in range(n // 16)}],
    CelMap: lambda n: [CelMap({str(at): 1.5 for at in range(n // 16)})],
}
# Lists that have nothing in common with the large ones: a search that ends at the first match must pay for all.
SHORT: dict[type, list[Any]] = {str: ["b", "z+"], int: [0, 3], list: [["none"]], CelList: [CelList(["none"])]}


def large_values(kind: type, size: int) -> list[Any]:
    return LARGE[kind](size) if kind in LARGE else []


def functions() -> Iterator[tuple[str, Function]]:
    yield from LIBRARY.functions.items()
    yield from LIBRARY.methods.items()


def cases() -> Iterator[Any]:
    for name, function in functions():
        for types, implementation in function.overloads.items():
            if types and types[0] in LARGE and name not in CONSTANT and (name, types[0]) not in SAME_TYPE:
                yield pytest.param(types, implementation, id=f"{name}({', '.join(t.__name__ for t in types)})")


def new_frame(limits: Limits) -> Frame:
    return [{}, limits.steps, limits, read_number, None, limits.memory, 0]


def price(implementation: Callable[..., Any], args: tuple[Any, ...]) -> int | None:
    frame = new_frame(RICH)
    try:
        implementation(frame, *args)
    except ExpressionError:
        return None  # no work of its own: another test says that refusals are cheap
    return int(2 * RICH.steps - frame[STEPS] - frame[BYTES])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("types", "implementation"), list(cases()))
def test_a_function_pays_in_proportion_to_its_argument(types: tuple[type, ...], implementation: Any) -> None:
    """Invariant 29."""
    rest = list(itertools.product(*(SHORT.get(item, [None]) for item in types[1:])))
    compared = 0
    for small, large in zip(LARGE[types[0]](4_000), LARGE[types[0]](32_000), strict=True):
        for others in rest:
            cheap, expensive = price(implementation, (small, *others)), price(implementation, (large, *others))
            if cheap is not None and expensive is not None and not any(type(other) is int for other in others):
                compared += 1
                assert expensive > 4 * cheap
    assert compared or int in types or types[0] is bytes


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("types", "implementation"), list(cases()))
def test_a_function_that_cannot_pay_makes_next_to_nothing(types: tuple[type, ...], implementation: Any) -> None:
    """Invariant 29: what is refused is refused before the work; what is done fits into the budget."""
    rest = list(itertools.product(*([*SHORT.get(item, [None]), *large_values(item, 2_000)] for item in types[1:])))
    for large in LARGE[types[0]](150_000):
        for others in rest[:4]:
            frame = new_frame(SMALL)
            tracemalloc.start(1)
            try:
                kept = implementation(frame, large, *others)
            except (ExpressionError, RecursionError) as refusal:
                kept = refusal
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            del kept
            assert peak < 3 * (SMALL.memory - max(frame[BYTES], 0)) + 500_000


BIG = "lists.range(200000).map(i, 'abcdefghij').join('')"

HOSTILE = [
    f"cel.bind(s, {BIG}, lists.range(3000).map(i, s.substring(i)))",
    f"cel.bind(s, {BIG}, [{', '.join('s.substring(1)' for _ in range(300))}])",
    f"cel.bind(s, {BIG}, [{', '.join(f's.split({chr(39) * 2})' for _ in range(20))}])",
    f"cel.bind(s, {BIG}, '{'%s' * 200}'.format([{', '.join('s' for _ in range(200))}]))",
    f"cel.bind(s, {BIG}, lists.range(1000).map(i, toJson(s)))",
    "lists.range(100000).map(i, math.greatest(lists.range(1000)))",
    "lists.range(10000).map(i, 'a'.matches('(?i)[a-z]{900}' + string(i)))",
    "lists.range(100000).map(i, {'a': i, 'b': [i], 'c': {}})",
    "lists.range(100000).map(i, [i, [i], [[i]]])",
    "cel.bind(s, lists.range(30000).map(i, 'x').join(''), lists.range(1000000).all(i, s == s + ''))",
    f"lists.range(300000).all(i, '{'x' * 20_000}' == '{'x' * 20_000}')",
    "lists.range(100000).map(i, fromJson('[[],[],[],[],[],[],[],[]]'))",
    "lists.range(100000).transformMap(i, v, {'k': v}).transformMapEntry(k, v, {k: v})",
    "lists.range(100000).map(i, '%.999f'.format([1.0]))",
    "lists.range(100000).map(i, string(i) + 'abcdefghijklmnopqrstuvwxyz').sort().distinct().map(s, s.upperAscii())",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_an_expression_stays_within_its_budget(text: str) -> None:
    """Invariant 29: bytes made are counted before they are made."""
    program = compile_program(text, environment=TINY)
    tracemalloc.start(1)
    try:
        with pytest.raises(LimitExceeded):
            program.evaluate({})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * SMALL.memory + 1_000_000


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text",
    [
        "lists.range(300000)",
        "size(lists.range(300000).map(i, {'n': i})) == 300000",
        "lists.range(100000).map(i, string(i)).join(',').split(',').map(s, int(s)) == lists.range(100000)",
        "lists.range(100000).filter(i, i % 2 == 0).map(i, 'item ' + string(i)).sort().size() == 50000",
        "fromJson(toJson(lists.range(100000).map(i, double(i)))).size() == 100000",
        "data.map(d, d.n * 2.0).size() == 300000",
        "(data + [1.0]).size() == 300001",
    ],
)
def test_sizes_that_contracts_name_pass(text: str) -> None:
    data = [{"n": at} for at in range(300_000)]

    assert compile_program(text, environment=Environment(LIBRARY, read_leaf=read_number)).evaluate({"data": data})


def test_a_limit_is_met_at_the_same_count_in_every_process_and_however_often() -> None:
    """Invariant 29: counts decide, so the outcome never depends on what was remembered."""
    text = "lists.range(50).map(i, 'aaaaaaaaaaaaaaaa'.matches('(a|b)*c' + string(i)))"
    spent = set()
    for _ in range(3):
        for steps in range(1_000, 400_000, 20_000):
            limits = Limits(steps=steps)
            try:
                compile_program(text, environment=Environment(LIBRARY, limits, read_number)).evaluate({})
            except LimitExceeded:
                continue
            spent.add(steps)
            break

    assert len(spent) == 1
