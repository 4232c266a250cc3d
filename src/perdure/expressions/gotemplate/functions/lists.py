"""Lists, and texts split into lists. Nothing is changed in place: every function returns a new list."""

from perdure.expressions import bounded_calls
from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.access import slice_value
from perdure.expressions.gotemplate.comparison import are_deeply_equal
from perdure.expressions.gotemplate.formatting import TextBuilder, format_value
from perdure.expressions.gotemplate.frame import Frame
from perdure.expressions.gotemplate.functions.library import ANY, INTEGER, LIST, TEXT, takes, takes_frame
from perdure.expressions.gotemplate.values import Value, describe, is_empty, require_present


def to_texts(frame: Frame, value: Value) -> list[str]:
    """The elements as texts, without nils; anything but a list is treated as a list of one."""
    if value is None:
        return []
    elements = value if type(value) is list else [value]
    return [format_value(require_present(element), frame.budget) for element in elements if element is not None]


def join(frame: Frame, separator: str, value: Value) -> str:
    text = TextBuilder(frame.budget)
    for at, element in enumerate(value if type(value) is list else to_texts(frame, value)):
        if element is not None:
            text.add((separator if at else "") + format_value(element, frame.budget))
    return text.build()


def numbered(parts: list[str]) -> dict[str, str]:
    """`_0`, `_1`, …, so that a template can use `._0`."""
    return {f"_{at}": part for at, part in enumerate(parts)}


def split_list(frame: Frame, separator: str, text: str, limit: int = -1) -> list[str]:
    """Split at most `limit` times, if it is not negative. Every part is paid for before it is created."""
    if separator:
        return bounded_calls.split(text, separator, limit, frame.budget.charge_elements)
    frame.budget.charge_elements(len(text))
    if limit < 0 or len(text) <= limit:
        return bounded_calls.characters(text)
    return [*bounded_calls.characters(text[:limit]), text[limit:]]


def split_some(frame: Frame, separator: str, count: int, text: str) -> dict[str, str]:
    return {} if count == 0 else numbered(split_list(frame, separator, text, count - 1 if count > 0 else -1))


def sort_texts(frame: Frame, value: Value) -> list[str]:
    texts = to_texts(frame, value)
    longest = max(map(len, texts), default=0)
    frame.budget.charge(len(texts) * len(texts).bit_length() * (1 + (longest >> 9)) // 4)
    return [texts[at] for at in bounded_calls.order(texts, longest)]


def unique(frame: Frame, values: list[Value]) -> list[Value]:
    result: list[Value] = []
    for value in values:
        if not contains(frame, value, result):
            result.append(value)
    return result


def without(frame: Frame, values: list[Value], *omitted: Value) -> list[Value]:
    return [value for value in values if not contains(frame, value, list(omitted))]


def contains(frame: Frame, needle: Value, haystack: Value) -> bool:
    if haystack is None:
        return False
    if type(haystack) is not list:
        raise EvaluationFault(f"{describe(haystack)} has no elements to search")
    return any(are_deeply_equal(needle, element, frame.budget) for element in haystack)


def concatenate(frame: Frame, *lists: Value) -> list[Value]:
    joined: list[Value] = []
    for part in lists:
        if type(part) is not list:
            raise EvaluationFault(f"{describe(part)} cannot be joined to a list")
        frame.budget.charge_elements(len(joined) + len(part))
        joined += part
    return joined


_APPEND = takes(lambda values, value: [*values, value], LIST, ANY)
_COMPACT = takes(lambda values: [value for value in values if not is_empty(value)], LIST)
_FIRST = takes(lambda values: values[0] if values else None, LIST)
_HAS = takes_frame(contains, ANY, ANY)
_INITIAL = takes(lambda values: values[:-1], LIST)
_LAST = takes(lambda values: values[-1] if values else None, LIST)
_LIST = takes(lambda *values: list(values), rest=ANY)
_PREPEND = takes(lambda values, value: [value, *values], LIST, ANY)
_REST = takes(lambda values: values[1:], LIST)
_REVERSE = takes(lambda values: values[::-1], LIST)
_UNIQUE = takes_frame(unique, LIST)
_WITHOUT = takes_frame(without, LIST, rest=ANY)

FUNCTIONS = {
    "append": _APPEND,
    "compact": _COMPACT,
    "concat": takes_frame(concatenate, rest=ANY),
    "first": _FIRST,
    "has": _HAS,
    "initial": _INITIAL,
    "join": takes_frame(join, TEXT, ANY),
    "last": _LAST,
    "list": _LIST,
    "mustAppend": _APPEND,
    "mustCompact": _COMPACT,
    "mustFirst": _FIRST,
    "mustHas": _HAS,
    "mustInitial": _INITIAL,
    "mustLast": _LAST,
    "mustPrepend": _PREPEND,
    "mustPush": _APPEND,
    "mustRest": _REST,
    "mustReverse": _REVERSE,
    "mustSlice": takes(slice_value, LIST, rest=ANY),
    "mustUniq": _UNIQUE,
    "mustWithout": _WITHOUT,
    "prepend": _PREPEND,
    "push": _APPEND,
    "rest": _REST,
    "reverse": _REVERSE,
    "sortAlpha": takes_frame(sort_texts, ANY),
    "split": takes_frame(lambda frame, *arguments: numbered(split_list(frame, *arguments)), TEXT, TEXT),
    "splitList": takes_frame(split_list, TEXT, TEXT),
    "splitn": takes_frame(split_some, TEXT, INTEGER, TEXT),
    "toStrings": takes_frame(to_texts, ANY),
    "tuple": _LIST,
    "uniq": _UNIQUE,
    "without": _WITHOUT,
}
