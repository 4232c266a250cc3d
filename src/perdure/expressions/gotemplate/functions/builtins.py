"""The functions of text/template itself. `and` and `or` stop early and are therefore in the planner (STY-194)."""

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.access import index_value, slice_value
from perdure.expressions.gotemplate.comparison import are_equal, is_less
from perdure.expressions.gotemplate.escapes import escape_html, escape_js, escape_url
from perdure.expressions.gotemplate.formatting import NO_VALUE, TextBuilder, format_value, join_operands
from perdure.expressions.gotemplate.frame import Frame
from perdure.expressions.gotemplate.functions.library import ANY, TEXT, takes, takes_frame
from perdure.expressions.gotemplate.values import Value, describe, is_true, require_present
from perdure.expressions.gotemplate.verbs import format_with_verbs


def equals_any(left: Value, first: Value, *others: Value) -> bool:
    return any(are_equal(left, right) for right in (first, *others))


def index(frame: Frame, value: Value, *keys: Value) -> Value:
    if value is None:
        raise EvaluationFault("nil has no elements")
    for key in keys:
        value = index_value(frame, value, key)
    return value


def print_line(frame: Frame, *operands: Value) -> str:
    text = TextBuilder(frame.budget)
    for at, operand in enumerate(operands):
        text.add((" " if at else "") + format_value(operand, frame.budget))
    text.add("\n")
    return text.build()


def _join_printable(frame: Frame, operands: tuple[Value, ...]) -> str:
    return join_operands([NO_VALUE if operand is None else operand for operand in operands], frame.budget)


def call(value: Value, *_: Value) -> Value:
    """Data contain no functions, so there is never anything to call."""
    raise EvaluationFault(f"{describe(require_present(value))} is not a function")


FUNCTIONS = {
    "call": takes(call, ANY, rest=ANY),
    "eq": takes(equals_any, ANY, ANY, rest=ANY),
    "ne": takes(lambda left, right: not are_equal(left, right), ANY, ANY),
    "lt": takes(is_less, ANY, ANY),
    "le": takes(lambda left, right: is_less(left, right) or are_equal(left, right), ANY, ANY),
    "gt": takes(lambda left, right: is_less(right, left), ANY, ANY),
    "ge": takes(lambda left, right: is_less(right, left) or are_equal(left, right), ANY, ANY),
    "html": takes_frame(lambda frame, *operands: escape_html(_join_printable(frame, operands)), rest=ANY),
    "index": takes_frame(index, ANY, rest=ANY),
    "js": takes_frame(lambda frame, *operands: escape_js(_join_printable(frame, operands)), rest=ANY),
    "not": takes(lambda value: not is_true(value), ANY),
    "print": takes_frame(lambda frame, *operands: join_operands(list(operands), frame.budget), rest=ANY),
    "printf": takes_frame(lambda frame, text, *rest: format_with_verbs(text, rest, frame.budget), TEXT, rest=ANY),
    "println": takes_frame(print_line, rest=ANY),
    "slice": takes(slice_value, ANY, rest=ANY),
    "urlquery": takes_frame(lambda frame, *operands: escape_url(_join_printable(frame, operands)), rest=ANY),
}
