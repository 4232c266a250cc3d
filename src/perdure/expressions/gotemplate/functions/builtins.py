"""The functions of text/template itself. `and` and `or` stop early and are therefore the planner's (STY-194)."""

from typing import Any

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.access import index_value
from perdure.expressions.gotemplate.comparison import are_equal, is_less
from perdure.expressions.gotemplate.escapes import escape_html, escape_js, escape_url
from perdure.expressions.gotemplate.formatting import NO_VALUE, TextBuilder, format_value, join_operands
from perdure.expressions.gotemplate.frame import Frame
from perdure.expressions.gotemplate.functions.library import ANY, TEXT, takes, takes_frame
from perdure.expressions.gotemplate.functions.numbers import to_int64
from perdure.expressions.gotemplate.printf import format_with_verbs
from perdure.expressions.gotemplate.values import Value, describe, is_true, require_present


def equals_any(left: Value, first: Value, *others: Value) -> bool:
    return any(are_equal(left, right) for right in (first, *others))


def index(frame: Frame, value: Value, *keys: Value) -> Value:
    if value is None:
        raise EvaluationFault("nil has no elements")
    for key in keys:
        value = index_value(frame, value, key)
    return value


def slice_value(value: Value, *bounds: Value) -> Value:
    """Go's `slice` for texts, which counts bytes, and Sprig's for lists; a missing end is the end."""
    if len(bounds) > 2:
        raise EvaluationFault("it takes at most two positions")
    if type(value) is list:
        return _cut(value, [to_int64(bound) for bound in bounds]) if value else []
    if type(value) is not str:
        raise EvaluationFault(f"{describe(value)} has no parts")
    for bound in bounds:
        if type(bound) is not int:
            raise EvaluationFault(f"a string is cut by integers, not by {describe(bound)}")
    data: bytes = _cut(value.encode("utf-8", "replace"), list(bounds))
    return data.decode("utf-8", "replace")


def _cut(parts: Any, bounds: list[int]) -> Any:
    start = bounds[0] if bounds else 0
    end = bounds[1] if len(bounds) > 1 else len(parts)
    if not 0 <= start <= end <= len(parts):
        raise EvaluationFault(f"there is no part from {start} to {end} of {len(parts)}")
    return parts[start:end]


def print_line(frame: Frame, *operands: Value) -> str:
    text = TextBuilder(frame.budget)
    for at, operand in enumerate(operands):
        text.add((" " if at else "") + format_value(operand, frame.budget))
    text.add("\n")
    return text.build()


def _shown(frame: Frame, operands: tuple[Value, ...]) -> str:
    return join_operands([NO_VALUE if operand is None else operand for operand in operands], frame.budget)


def call(value: Value, *_: Value) -> Value:
    """Data hold no functions, so there is never anything to call."""
    raise EvaluationFault(f"{describe(require_present(value))} is not a function")


FUNCTIONS = {
    "call": takes(call, ANY, rest=ANY),
    "eq": takes(equals_any, ANY, ANY, rest=ANY),
    "ne": takes(lambda left, right: not are_equal(left, right), ANY, ANY),
    "lt": takes(is_less, ANY, ANY),
    "le": takes(lambda left, right: is_less(left, right) or are_equal(left, right), ANY, ANY),
    "gt": takes(lambda left, right: is_less(right, left), ANY, ANY),
    "ge": takes(lambda left, right: is_less(right, left) or are_equal(left, right), ANY, ANY),
    "html": takes_frame(lambda frame, *operands: escape_html(_shown(frame, operands)), rest=ANY),
    "index": takes_frame(index, ANY, rest=ANY),
    "js": takes_frame(lambda frame, *operands: escape_js(_shown(frame, operands)), rest=ANY),
    "not": takes(lambda value: not is_true(value), ANY),
    "print": takes_frame(lambda frame, *operands: join_operands(list(operands), frame.budget), rest=ANY),
    "printf": takes_frame(lambda frame, text, *rest: format_with_verbs(text, rest, frame.budget), TEXT, rest=ANY),
    "println": takes_frame(print_line, rest=ANY),
    "slice": takes(slice_value, ANY, rest=ANY),
    "urlquery": takes_frame(lambda frame, *operands: escape_url(_shown(frame, operands)), rest=ANY),
}
