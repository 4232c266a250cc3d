"""MWL's profile of CEL: numbers from data, results as JSON, faults with codes, predicates, clocks."""

import inspect
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.expressions.cel import Limits, Position
from perdure.expressions.mwl import (
    EVALUATION_ERROR,
    UNREPRESENTABLE_VALUE,
    ClockPin,
    ExpressionFault,
    compile_expression,
)

ROOTS = frozenset({"vars", "step", "failure"})
DATA: dict[str, Any] = {
    "vars": {"n": 5, "half": 0.5, "xs": [1, 2, 3], "s": "text", "nested": {"list": [1, {"deep": 2}]}, "big": 2**60},
    "step": {"name": "one"},
    "failure": None,
}
PIN = ClockPin(
    now=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), wall_time=datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
)


def evaluate(body: str, data: dict[str, Any] = DATA) -> Any:
    return compile_expression(body, ROOTS).evaluate(data, PIN)


def fault_of(body: str, data: dict[str, Any] = DATA) -> ExpressionFault:
    with pytest.raises(ExpressionFault) as raised:
        evaluate(body, data)
    return raised.value


@pytest.mark.parametrize(
    "body",
    [
        "vars.n",
        "vars['n']",
        "vars.xs[0]",
        "vars.xs.filter(x, true)[0]",
        "vars.xs.map(x, x)[0]",
        "(vars.xs + [1.0])[0]",
        "vars.nested.list[1].deep",
        "vars.?n.value()",
        "vars.xs.exists_one(x, type(x) == int) ? 1 : vars.n",
        "fromJson('[1]')[0]",
        "fromJson('1')",
        "vars.xs.sort()[0]",
        "vars.transformList(k, v, v)[0]",
        "cel.bind(x, vars.n, x)",
        "vars.xs.first().value()",
        "vars.xs.slice(0, 1)[0]",
        "[vars.xs].flatten()[0]",
    ],
)
def test_every_number_read_from_data_is_a_double(body: str) -> None:
    """MWL-121."""
    assert evaluate(f"type({body}) == double") is True


@pytest.mark.parametrize(
    "body", ["1", "size(vars.xs)", "'abc'.indexOf('c')", "[1][0]", "{'a': 1}.a", "[1].map(x, x)[0]"]
)
def test_literals_sizes_and_positions_are_ints(body: str) -> None:
    """MWL-122."""
    assert evaluate(f"type({body}) == int") is True


@pytest.mark.parametrize("body", ["1 + vars.n", "size(vars.xs) + vars.n", "vars.xs[0] + 1", "vars.n % 2.0"])
def test_arithmetic_does_not_mix_numeric_types(body: str) -> None:
    """MWL-122."""
    assert fault_of(body).code == EVALUATION_ERROR
    assert "no such overload" in fault_of(body).message


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("1.0 + vars.n", 6),
        ("double(size(vars.xs)) + vars.n", 8),
        ("int(vars.n) + 1", 6),
        ("vars.n == 5", True),
        ("vars.n < 6 && 4u < vars.n", True),
        ("vars.xs == [1, 2, 3]", True),
        ("vars.n == '5'", False),
        ("vars.xs[vars.n - 4.0]", 2),
        ("vars.half", 0.5),
        ("failure", None),
        ("failure == null", True),
        ("-7 / 2", -3),
        ("9007199254740992", 2**53),
        ("double(9007199254740993)", 2**53),
        ("{'a': [1, 2u, 3.0, null, true, 'x']}", {"a": [1, 2, 3, None, True, "x"]}),
        ("string(vars.n)", "5"),
        ("string(1234567.0)", "1234567"),
        ("string(vars.half)", "0.5"),
        ("has(vars.zzz) ? vars.zzz : 'none'", "none"),
    ],
)
def test_an_expression_gives_a_json_value(body: str, value: Any) -> None:
    """MWL-103, MWL-123, MWL-124, MWL-128, MWL-130."""
    result = evaluate(body)

    assert result == value
    assert type(result) is type(value)


def test_data_pass_through_by_reference() -> None:
    """MWL-085: nothing is copied, nothing is converted."""
    assert evaluate("vars.nested") is DATA["vars"]["nested"]
    assert evaluate("{'a': vars.nested}")["a"] is DATA["vars"]["nested"]
    assert evaluate("[vars.nested.list][0]") is DATA["vars"]["nested"]["list"]


def test_a_large_integer_in_data_is_a_double_in_an_expression() -> None:
    """O-21."""
    assert evaluate("vars.big == 1152921504606846976.0") is True
    assert "too large for a double" in fault_of("vars.n", {"vars": {"n": 10**400}}).message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("9007199254740993", "int beyond 2^53; use double() or string()"),
        ("9007199254740993u", "uint beyond 2^53; use double() or string()"),
        ("5.0 / 0.0", "inf is not a number in JSON"),
        ("[0.0 / 0.0]", "at result[0]: nan is not a number in JSON"),
        ("b'x'", "bytes has no JSON form; use base64.encode()"),
        ("now()", "timestamp has no JSON form; use string()"),
        ("{'a': [duration('1s')]}", "at result.a[0]: duration has no JSON form; use durationToIso8601() or string()"),
        ("int", "type has no JSON form"),
        ("{1: 2}", "at result.1: a map key of type int has no JSON form"),
        ("optional.none()", "optional_type has no JSON form"),
    ],
)
def test_a_value_without_a_json_form_is_unrepresentable(body: str, message: str) -> None:
    """MWL-107, MWL-130."""
    fault = fault_of(body)

    assert (fault.code, fault.message) == (UNREPRESENTABLE_VALUE, message)
    assert (fault.position, fault.expression) == (Position(1, 1, 0), body)


@pytest.mark.parametrize(
    "body",
    [
        "1 +",
        "",
        "vars.zzz",
        "call.input",
        "1 / 0",
        "9223372036854775807 + 1",
        "nope()",
        "vars.s.x",
        "lists.range(99999999)",
    ],
)
def test_what_cannot_be_evaluated_is_an_evaluation_error(body: str) -> None:
    """MWL-106, MWL-150, MWL-710: also parse errors, roots out of scope and limits."""
    assert fault_of(body).code == EVALUATION_ERROR


def test_a_fault_says_where_and_what() -> None:
    fault = fault_of(" vars.n > 1.0 && vars.s + vars.n == '' ")

    assert (fault.position, fault.expression) == (Position(1, 25, 24), "vars.s + vars.n")
    assert str(fault).splitlines() == [
        "1:25: no such overload: string + double, in `vars.s + vars.n`",
        " |  vars.n > 1.0 && vars.s + vars.n == '' ",
        " | ........................^",
    ]


def test_compiling_never_fails_and_tells_what_will() -> None:
    """O-04: faults at run time, findings before."""
    assert [problem.message for problem in compile_expression("1 +", ROOTS).findings] == [
        "the expression ends too early"
    ]
    assert [problem.message for problem in compile_expression("call.input", ROOTS).findings] == [
        "`call` is not in scope"
    ]
    assert compile_expression("vars.x", ROOTS).findings == ()


@pytest.mark.parametrize(("body", "answer"), [("vars.n == 5", True), ("has(vars.zzz)", False)])
def test_a_predicate_gives_a_bool(body: str, answer: bool) -> None:
    assert compile_expression(body, ROOTS).holds(DATA) is answer


@pytest.mark.parametrize("body", ["vars.n", "1", "'true'", "null", "vars.zzz", "b'x'"])
def test_a_predicate_that_is_no_bool_is_an_evaluation_error(body: str) -> None:
    """MWL-108: no truthiness, and never System.UnrepresentableValue."""
    with pytest.raises(ExpressionFault) as raised:
        compile_expression(body, ROOTS).holds(DATA)

    assert raised.value.code == EVALUATION_ERROR


def test_now_is_the_pin_and_wall_time_never_precedes_it() -> None:
    """MWL-135, MWL-136, MWL-162."""
    assert evaluate("string(now())") == "2026-01-02T03:04:05.678901Z"
    assert evaluate("string(wallTime())") == "2026-01-02T03:04:06Z"
    assert evaluate("timestamp('2026-01-02T03:04:05.678901Z') == now() && now() == now()") is True

    early = ClockPin(now=PIN.wall_time, wall_time=PIN.now)
    assert compile_expression("wallTime() == now()", ROOTS).evaluate(DATA, early) is True


def test_without_a_pin_there_is_no_clock() -> None:
    with pytest.raises(ExpressionFault, match="the clock is not available here"):
        compile_expression("now()", ROOTS).evaluate(DATA)


def test_a_result_that_unfolds_without_end_is_refused() -> None:
    """Sharing makes a small value of exponential size; so does the same data many times over."""
    twice = "cel.bind(a, [vars.xs, vars.xs], cel.bind(b, [a, a], cel.bind(c, [b, b], [c, c])))"
    text = {"vars": {"xs": ["x" * 1000]}}

    assert compile_expression(twice, ROOTS).evaluate(text)
    with pytest.raises(ExpressionFault, match="the result is larger than 5000"):
        compile_expression(twice, ROOTS, Limits(size=5000)).evaluate(text)


def test_an_expression_is_compiled_once_per_scope() -> None:
    assert compile_expression("vars.n", ROOTS) is compile_expression("vars.n", ROOTS)
    assert compile_expression("vars.n", ROOTS) is not compile_expression("vars.n", frozenset({"vars"}))


def test_too_little_stack_is_a_fault_of_that_moment_only() -> None:
    """The same expression compiles when there is room again: what the stack allowed is never remembered."""
    body = "(" * 60 + "42" + ")" * 60

    def descend(levels: int) -> Any:
        if levels:
            return descend(levels - 1)
        return compile_expression(body, ROOTS).evaluate(DATA)

    with pytest.raises((ExpressionFault, RecursionError)) as raised:
        descend(sys.getrecursionlimit() - len(inspect.stack()) - 120)

    assert isinstance(raised.value, ExpressionFault)
    assert evaluate(body) == 42
