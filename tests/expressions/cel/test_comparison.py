"""Equality across types, order within them."""

import pytest
from tests.expressions.cel.evaluation import fault_of, value_of


@pytest.mark.parametrize(
    "text",
    [
        "1 == 1u && 1u == 1.0 && 1.0 == 1",
        "true != 1 && false != 0 && 0 != false",
        "'1' != 1 && null != 0 && null == null",
        "[1, 2u] == [1.0, 2]",
        "[1, [2]] != [1, [3]] && [1] != [1, 2]",
        "{'a': 1, 'b': 2} == {'b': 2u, 'a': 1.0}",
        "{1: 'x'} == {1u: 'x'} && {true: 1} != {1: 1}",
        "0.0 / 0.0 != 0.0 / 0.0",
        "b'a' != 'a' && bytes('a') == b'a'",
        "'é' != 'e\\u0301'",
        "type(1) == int && type(1u) != int && type(type(1)) == type",
        "timestamp('2020-01-01T01:00:00+01:00') == timestamp('2020-01-01T00:00:00Z')",
        "duration('60s') == duration('1m')",
        "1 < 2u && 2u < 3.5 && -1 < 0u && 1.5 < 2",
        "'a' < 'b' && 'Z' < 'a' && 'z' < 'é' && '\\uffff' < '😀'",
        "b'a' < b'b' && false < true",
        "!(0.0 / 0.0 < 1.0) && !(0.0 / 0.0 >= 1.0)",
        "duration('1s') < duration('2s') && timestamp(0) < timestamp(1)",
        "2 in [1, 2.0] && !('2' in [2]) && !(true in [1])",
        "'a' in {'a': 1} && 1u in {1: 1} && !(true in {1: 1})",
        "18446744073709551615u > 9223372036854775807",
    ],
)
def test_this_is_true(text: str) -> None:
    """MWL-123: equality and order work across numeric types; values of different kinds are unequal."""
    assert value_of(text) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("'a' < 1", "no such overload: string < int"),
        ("true > 0", "no such overload: bool > int"),
        ("[1] < [2]", "no such overload: list < list"),
        ("null <= null", "no such overload: null_type <= null_type"),
        ("1 in 1", "no such overload: int in int"),
        ("'a' in 'abc'", "no such overload: string in string"),
    ],
)
def test_values_without_an_order_fault_with_their_types(text: str, message: str) -> None:
    assert message == fault_of(text).message
