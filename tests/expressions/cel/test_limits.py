"""Hostile expressions: each ends in a clear error, in bounded time and memory."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure.expressions.cel import EvaluationFault, ExpressionError, LimitExceeded, Limits, compile_program
from perdure.expressions.cel.program import Environment

TIGHT = Environment(limits=Limits(steps=300_000, size=300_000))


def doubled(times: int, start: str, double: Callable[[str], str]) -> str:
    """A value that doubles with every binding."""
    text = f"a{times}"
    for i in range(times, 0, -1):
        text = f"cel.bind(a{i}, {double(f'a{i - 1}')}, {text})"
    return f"cel.bind(a0, {start}, {text})"


TWINS = doubled(50, "[1]", lambda a: f"[{a}, {a}]")


@pytest.mark.parametrize(
    "text",
    [
        doubled(60, "'xx'", lambda a: f"{a} + {a}"),
        doubled(60, "b'xx'", lambda a: f"{a} + {a}"),
        doubled(60, "[1, 2]", lambda a: f"{a} + {a}"),
        doubled(60, "'xx'", lambda a: f"{a}.replace('', {a})"),
        doubled(60, "'xx'", lambda a: f"[{a}, {a}].join({a})"),
        doubled(60, "'xx'", lambda a: f"'%s%s'.format([{a}, {a}])"),
        f"{TWINS} == {TWINS}",
        f"'%s'.format([{TWINS}])",
        f"{TWINS}.flatten(99)",
        f"[{TWINS}, {TWINS}].distinct()",
        "lists.range(9223372036854775807)",
        "lists.range(1000).map(a, lists.range(1000).map(b, lists.range(1000)))",
        "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, true)))",
        "cel.bind(l, lists.range(30000), l.all(x, x in l))",
        "cel.bind(l, lists.range(30000), sets.equivalent(l, l))",
        "lists.range(30000).map(i, [i]).distinct()",
        "lists.range(30000).map(i, 'ab').join('').matches('(a|b)*a(a|b){500}c')",
    ],
)
def test_growth_meets_a_limit(text: str) -> None:
    with pytest.raises(LimitExceeded):
        compile_program(text, environment=TIGHT).evaluate({})


@pytest.mark.parametrize(
    "text",
    [
        "'a'.matches('((a{1000}){1000}){1000}')",
        f"'a'.matches('{'(' * 5000}')",
        f"'a'.matches('{'a?' * 20000}')",
        "'a'.matches('a{99999999999}')",
        "'a'.matches('[')",
        "'%.999999999f'.format([1.0])",
        f"int('{'9' * 90_000}')",
        f"double('1e{'9' * 90_000}')",
        f"duration('{'9' * 90_000}h')",
        "timestamp(0).getHours('" + "a/" * 1000 + "')",
    ],
)
def test_a_hostile_argument_is_an_error_like_any_other(text: str) -> None:
    with pytest.raises(EvaluationFault):
        compile_program(text).evaluate({})


def test_backtracking_has_nothing_to_blow_up() -> None:
    assert compile_program(f"'{'a' * 5000}b'.matches('^(a+)+$')").evaluate({}) is False
    assert compile_program("text.matches('(a?){200}a{200}')").evaluate({"text": "a" * 200}) is True


def test_data_nested_beyond_reason_are_refused_only_where_they_are_walked() -> None:
    def nested() -> list[Any]:
        outer: list[Any] = []
        inner = outer
        for _ in range(50_000):
            inner.append([])
            inner = inner[0]
        return outer

    roots = {"x": nested(), "y": nested()}

    assert compile_program("size(x) == 1 && size(x[0][0]) == 1").evaluate(roots) is True
    for text in ("x == y", "'%s'.format([x])", "x.flatten(99999)"):
        with pytest.raises(LimitExceeded):
            compile_program(text).evaluate(roots)
    while roots:  # take the nesting apart by hand: freeing it in one go recurses as deeply
        _, inner = roots.popitem()
        while inner:
            inner = inner.pop()


@pytest.mark.parametrize("text", ["'" * 99_999, '"""' + "a" * 90_000, "\\" * 1000, "\x00", "[" * 99_999, "?," * 40_000])
def test_hostile_text_is_refused_quickly(text: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        compile_program(text)

    assert len(str(refused.value)) < 10_000
