"""Arithmetic: exact types, truncating division, no wrapping around."""

import math

import pytest
from tests.expressions.cel.evaluation import fault_of, value_of

from perdure.expressions.cel import Uint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5 / 2", 2),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("7 % -2", 1),
        ("7u / 2u", Uint(3)),
        ("5.0 / 2.0", 2.5),
        ("5.0 / 0.0", math.inf),
        ("-5.0 / 0.0", -math.inf),
        ("5.0 / -0.0", -math.inf),
        ("1e308 * 10.0", math.inf),
        ("'a' + 'b'", "ab"),
        ("b'a' + b'b'", b"ab"),
        ("[1] + [2]", [1, 2]),
        ("9223372036854775807 - 1 + 1", 2**63 - 1),
    ],
)
def test_arithmetic_gives(text: str, value: object) -> None:
    """MWL-124."""
    result = value_of(text)

    assert result == value
    assert isinstance(result, list) or type(result) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 + 1.0", "no such overload: int + double"),
        ("1 - 1u", "no such overload: int - uint"),
        ("'a' + 1", "no such overload: string + int"),
        ("1.5 % 1.0", "no such overload: double % double"),
        ("true + true", "no such overload: bool + bool"),
        ("-'a'", "no such overload: -string"),
        ("-(1u)", "no such overload: -uint"),
        ("{} + {}", "no such overload: map + map"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "remainder of a division by zero"),
        ("9223372036854775807 + 1", "int overflow"),
        ("-9223372036854775808 - 1", "int overflow"),
        ("9223372036854775807 * 2", "int overflow"),
        ("-(-9223372036854775808)", "int overflow"),
        ("-9223372036854775808 / -1", "int overflow"),
        ("-9223372036854775808 % -1", "int overflow"),
        ("0u - 1u", "uint overflow"),
        ("18446744073709551615u + 1u", "uint overflow"),
    ],
)
def test_what_has_no_result_faults(text: str, message: str) -> None:
    """MWL-122: arithmetic does not mix numeric types."""
    assert message == fault_of(text).message
