"""Equality and order. Numbers compare by value whatever their type (STY-206); other types do not mix."""

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.budget import Budget
from perdure.expressions.gotemplate.instants import GoTime
from perdure.expressions.gotemplate.values import Value, describe, is_number, require_present


def are_equal(left: Value, right: Value) -> bool:
    """Like `eq`: nil equals only nil; lists and maps have no equality (use `deepEqual`)."""
    if left is None or right is None:
        return left is right
    if type(left) is not type(right) and not (is_number(left) and is_number(right)):
        raise EvaluationFault(f"{describe(left)} cannot be compared with {describe(right)}")
    if isinstance(left, list | dict):
        raise EvaluationFault(f"{describe(left)} cannot be compared; use deepEqual")
    return bool(left == right)


def is_less(left: Value, right: Value) -> bool:
    if is_number(left) and is_number(right):
        return bool(left < right)
    if type(left) is str and type(right) is str:
        return left < right
    if isinstance(left, GoTime) and isinstance(right, GoTime):
        return left.nanoseconds < right.nanoseconds
    raise EvaluationFault(f"{describe(left)} cannot be ordered against {describe(right)}")


def are_deeply_equal(left: Value, right: Value, budget: Budget) -> bool:
    """Same shape, equal leaves; never an error."""
    budget.charge(1)
    if is_number(left) and is_number(right):
        return bool(left == right)
    if type(left) is not type(right):
        return False
    if type(left) is list:
        return len(left) == len(right) and all(
            are_deeply_equal(left_item, right_item, budget) for left_item, right_item in zip(left, right, strict=True)
        )
    if type(left) is dict:
        require_present(left)
        require_present(right)
        return len(left) == len(right) and all(
            key in right and are_deeply_equal(left[key], right[key], budget) for key in left
        )
    if type(left) is str:
        budget.charge_text(min(len(left), len(right)))
    return bool(left == right)
