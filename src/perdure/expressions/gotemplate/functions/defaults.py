"""Emptiness, defaults, choices, and explicit failure."""

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.functions.library import ANY, BOOLEAN, TEXT, takes
from perdure.expressions.gotemplate.values import Value, is_empty


def use_default(default: Value, *values: Value) -> Value:
    return default if not values or is_empty(values[0]) else values[0]


def coalesce(*values: Value) -> Value:
    return next((value for value in values if not is_empty(value)), None)


def fail(message: str) -> Value:
    raise EvaluationFault(message)


FUNCTIONS = {
    "all": takes(lambda *values: not any(is_empty(value) for value in values), rest=ANY),
    "any": takes(lambda *values: any(not is_empty(value) for value in values), rest=ANY),
    "coalesce": takes(coalesce, rest=ANY),
    "default": takes(use_default, ANY, rest=ANY),
    "empty": takes(is_empty, ANY),
    "fail": takes(fail, TEXT),
    "ternary": takes(lambda first, second, condition: first if condition else second, ANY, ANY, BOOLEAN),
}
