"""Logic: `&&` and `||` absorb errors that cannot change the result; `?:` evaluates one branch."""

import pytest
from tests.expressions.cel.evaluation import fault_of, value_of

ERROR = "(1 / 0 == 1)"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"false && {ERROR}", False),
        (f"{ERROR} && false", False),
        (f"true || {ERROR}", True),
        (f"{ERROR} || true", True),
        (f"true && {ERROR} && false", False),
        (f"false || {ERROR} || true", True),
        ("1 || true", True),
        ("'x' && false", False),
        ("missing || true", True),
        ("no_function() || true", True),
        (f"true ? 1 : {ERROR}", 1),
        (f"false ? {ERROR} : 2", 2),
        (f"[1, 2].exists(x, x == 1 ? true : {ERROR})", True),
        (f"[1, 2].all(x, x == 1 ? false : {ERROR})", False),
    ],
)
def test_an_operand_that_decides_absorbs_the_errors_of_the_others(text: str, value: object) -> None:
    """MWL-125."""
    assert value == value_of(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"true && {ERROR}", "division by zero"),
        (f"{ERROR} || false", "division by zero"),
        (f"{ERROR} || missing", "division by zero"),
        (f"missing && {ERROR}", "`missing` has no value here"),
        (f"{ERROR} || false || false", "division by zero"),
        ("1 && true", "expected a bool, not int"),
        ("true && 'x'", "expected a bool, not string"),
        ("true && true && null", "expected a bool, not null_type"),
        ("1 ? 2 : 3", "expected a bool, not int"),
        ("!0", "expected a bool, not int"),
        ("[1].exists(x, x)", "exists() needs a bool condition, not int"),
        (f"[1, 2].exists_one(x, x == 1 || {ERROR})", "division by zero"),
        ("[1].filter(x, 1)", "filter() needs a bool condition, not int"),
    ],
)
def test_otherwise_the_first_error_is_the_answer(text: str, message: str) -> None:
    assert message == fault_of(text).message
