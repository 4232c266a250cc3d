"""Whatever the text and the data: a value, or one of our errors. No other exception, no hang."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.expressions.cel.strategies import DATA, expressions

from perdure.expressions.cel import ExpressionError, Limits, compile_program
from perdure.expressions.cel.program import Environment
from perdure.expressions.mwl import ExpressionFault, compile_expression, find_expression

LIMITS = Limits(steps=100_000, size=100_000)
SMALL = Environment(limits=LIMITS)
TOKENS = st.sampled_from(
    [
        *(
            "a",
            "b",
            "x",
            "m",
            "xs",
            "s",
            "n",
            "1",
            "2u",
            "3.0",
            "'q'",
            "b'z'",
            "r'\\'",
            "true",
            "null",
            "in",
            "e1",
            "0x",
        ),
        *("+", "-", "*", "/", "%", "<", "<=", "==", "!=", "&&", "||", "!", "?", ":", ".", ",", "(", ")", "[", "]"),
        *("{", "}", ".?", "[?", "//", "\n", "\t", "'''", '"', "`", "\\", "has(", "size(", "map(", "filter(", "all("),
        *("cel.bind(", "optional.of(", "math.greatest(", "'a'.matches(", "format(", "timestamp(", "duration(", "int("),
        *("string(", "fromJson(", "toJson(", "now(", "lists.range(", ".sort()", ".join()", ".transformMap("),
    ]
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3), st.just(object())
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)


def survive(text: str, roots: dict[str, Any]) -> None:
    try:
        compile_program(text, environment=SMALL).evaluate(roots)
    except ExpressionError as error:
        str(error)
    expression = compile_expression(text, frozenset(roots), LIMITS)
    for ask in (expression.evaluate, expression.holds):
        try:
            ask(roots)
        except ExpressionFault as fault:
            assert fault.code.startswith("System.")
            str(fault)


@settings(max_examples=400, deadline=None, database=None, derandomize=True)
@given(st.text(max_size=60))
def test_any_text_at_all(text: str) -> None:
    find_expression("{{" + text + "}}")
    survive(text, DATA)


@settings(max_examples=600, deadline=None, database=None, derandomize=True)
@given(st.lists(TOKENS, max_size=25).map(" ".join))
def test_any_heap_of_tokens(text: str) -> None:
    survive(text, DATA)


@settings(max_examples=350, deadline=None, database=None, derandomize=True)
@given(expressions, st.data())
def test_any_damage_to_a_valid_expression(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 6)))

    survive(text[:start] + data.draw(TOKENS | st.just("")) + text[end:], DATA)


@pytest.mark.sampled(4)
@settings(max_examples=350, deadline=None, database=None, derandomize=True)
@given(expressions, st.fixed_dictionaries(dict.fromkeys(DATA, VALUES)))
def test_any_data(text: str, roots: dict[str, Any]) -> None:
    survive(text, roots)
