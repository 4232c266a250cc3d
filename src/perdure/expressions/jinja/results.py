"""Answers as JSON data (PBK-148). What came in as data goes out by reference; only what a template made is changed.

Lists of any kind become lists, marked text becomes text; NaN, infinity and what is no data are refused.
"""

import math
from typing import Any

from jinja2 import Undefined

from perdure.expressions.jinja.budget import BYTES_OF_AN_ELEMENT, Budget, describe
from perdure.expressions.jinja.errors import EvaluationFault
from perdure.expressions.jinja.undefined import fail

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def as_json(budget: Budget, value: Any) -> Json:
    """The value as JSON data; the same object wherever it is JSON already."""
    answer: Json = value
    if type(value) not in (str, bool, int, type(None)):
        budget.spend(BYTES_OF_AN_ELEMENT * budget.weigh_emitted(value))
        answer = _convert(value)
    return answer


def by_reference(budget: Budget, value: Any) -> Json:
    """The answer of an expression that only reaches into data: no look inside is needed."""
    return value if type(value) in (dict, list, float) else as_json(budget, value)


def _convert(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise EvaluationFault(f"{value} is not a number in JSON")
        return value
    if isinstance(value, dict):
        return _convert_mapping(value)
    if isinstance(value, Undefined):
        fail(value)
    made = [_convert(item) for item in value]
    same = type(value) is list and all(new is old for new, old in zip(made, value, strict=True))
    return value if same else made


def _convert_mapping(value: dict[Any, Any]) -> Any:
    made = {}
    changed = False
    for key, item in value.items():
        if not isinstance(key, str):
            raise EvaluationFault(f"a key must be a text, not {describe(key)}")
        made[str(key)] = new = _convert(item)
        changed = changed or new is not item
    return made if changed else value
