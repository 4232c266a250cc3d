"""An evaluation error names the sub-expression, its place and the types involved."""

import pytest
from tests.expressions.cel.evaluation import fault_of

from perdure.expressions.cel import LimitExceeded, Limits, Position, compile_program
from perdure.expressions.cel.program import Environment


def test_an_error_shows_the_smallest_expression_to_blame() -> None:
    fault = fault_of("order.total > 10 && order.name + 1 == 'x'", order={"total": 11, "name": "a"})

    assert fault.expression == "order.name + 1"
    assert fault.position == Position(1, 32, 31)
    assert str(fault) == (
        "1:32: no such overload: string + int, in `order.name + 1`\n"
        " | order.total > 10 && order.name + 1 == 'x'\n"
        " | ...............................^"
    )


def test_an_error_in_a_later_line_is_shown_with_that_line() -> None:
    fault = fault_of("[1, 2]\n  .map(x,\n    x / 0)")

    assert str(fault) == "3:7: division by zero, in `x / 0`\n |     x / 0)\n | ......^"


def test_a_missing_member_is_pointed_at() -> None:
    fault = fault_of("a.b.c.d", a={"b": {"see": 1}})

    assert (fault.position, fault.expression) == (Position(1, 5, 4), "a.b.c")


def test_an_unknown_root_is_pointed_at() -> None:
    with pytest.raises(Exception, match="`nope` is not in scope, in `nope`"):
        compile_program("1 + nope.x", frozenset({"vars"})).evaluate({})


def test_part_of_a_chain_is_blamed_up_to_the_operand() -> None:
    assert fault_of("1 + 2 + 'a' + 3").expression == "1 + 2 + 'a'"


def test_parentheses_belong_to_what_they_hold() -> None:
    assert fault_of("(1 + 2) * 'a'").expression == "(1 + 2) * 'a'"


def test_a_limit_says_which_and_where() -> None:
    small = Environment(limits=Limits(steps=100))

    with pytest.raises(LimitExceeded) as raised:
        compile_program("lists.range(50).map(x, x)", environment=small).evaluate({})

    assert raised.value.message == "more than 100 steps were needed"
    assert raised.value.expression == "lists.range(50)"


def test_no_operator_absorbs_a_limit() -> None:
    small = Environment(limits=Limits(steps=100))

    with pytest.raises(LimitExceeded):
        compile_program("lists.range(99).size() > 0 || true", environment=small).evaluate({})
