"""The filters and tests of templates: Jinja's own, each with its price, and ours (PBK-150).

Jinja's filters have no limits; here each is paid for before it runs, by what it may visit and by what it may create.
There is no `random`. Every result is a value: lazy results of Jinja become lists.
"""

from collections.abc import Callable
from typing import Any

from jinja2 import Undefined, pass_context, pass_environment
from jinja2.filters import (
    FILTERS,
    do_dictsort,
    do_format,
    do_groupby,
    ignore_case,
    make_attrgetter,
    make_multi_attrgetter,
)
from jinja2.tests import TESTS

from perdure.expressions import bounded_calls
from perdure.expressions.jinja import results
from perdure.expressions.jinja.access import charge_replacing, charge_stripping, member
from perdure.expressions.jinja.budget import (
    BYTES_OF_A_PART,
    BYTES_OF_AN_ELEMENT,
    LONGEST_NUMBER,
    Budget,
    describe,
    width_of,
)
from perdure.expressions.jinja.errors import EvaluationFault, LimitExceeded
from perdure.expressions.jinja.operators import compare, format_text
from perdure.expressions.jinja.truth import is_true
from perdure.expressions.jinja.undefined import fail

Price = Callable[[Budget, Any, "_Arguments"], None]


class _Arguments:
    """The arguments after the value: by position or by name."""

    __slots__ = ("by_name", "by_position")

    def __init__(self, by_position: tuple[Any, ...], by_name: dict[str, Any]) -> None:
        self.by_position = by_position
        self.by_name = by_name

    def get(self, index: int, name: str, default: Any) -> Any:
        if index < len(self.by_position):
            return self.by_position[index]
        return self.by_name.get(name, default)

    def everything(self) -> list[Any]:
        return [*self.by_position, *self.by_name.values()]


def _nothing(budget: Budget, value: Any, arguments: _Arguments) -> None:
    budget.charge(1)


def _measuring(budget: Budget, value: Any, arguments: _Arguments) -> None:
    if not hasattr(value, "__len__"):
        raise EvaluationFault(f"{describe(value)} has no length")


def _each(budget: Budget, value: Any, arguments: _Arguments) -> None:
    if hasattr(value, "__len__") and not isinstance(value, Undefined):
        budget.charge_elements(
            len(value), BYTES_OF_AN_ELEMENT if not isinstance(value, str | dict) else BYTES_OF_A_PART
        )
        budget.charge(3 * len(value))


def _text(budget: Budget, value: Any, arguments: _Arguments) -> None:
    _pay_for_text(budget, value, arguments, budget.weigh_text(value))


def _pay_for_text(budget: Budget, value: Any, arguments: _Arguments, paid: int) -> None:
    for argument in arguments.everything():
        budget.weigh_text(argument)  # Jinja makes texts of them, in one call
    budget.spend(3 * len(value) * width_of(value) if isinstance(value, str) else 64 * paid)


def _each_letter(budget: Budget, value: Any, arguments: _Arguments) -> None:
    """A text of the same length is created, by one call: one that may not be so long is not begun."""
    _text(budget, value, arguments)
    if isinstance(value, str):
        budget.charge_text(len(value), width_of(value))


def _words(budget: Budget, value: Any, arguments: _Arguments) -> None:
    """A text is split into words."""
    _text(budget, value, arguments)
    if isinstance(value, str):
        budget.charge_parts(value, len(value))


def _number(budget: Budget, value: Any, arguments: _Arguments) -> None:
    budget.charge(1)
    if isinstance(value, str) and len(value) > LONGEST_NUMBER:
        raise LimitExceeded(f"a number of {len(value)} characters is longer than {LONGEST_NUMBER}")


def _trimming(budget: Budget, value: Any, arguments: _Arguments) -> None:
    _text(budget, value, arguments)
    characters = arguments.get(0, "chars", None)
    charge_stripping(budget, str(value), characters if isinstance(characters, str) else "")


def _escaping(budget: Budget, value: Any, arguments: _Arguments) -> None:
    _text(budget, value, arguments)
    if isinstance(value, str):
        budget.charge_text(12 * len(value), width_of(value))


def _sorting(budget: Budget, value: Any, arguments: _Arguments) -> None:
    paid = budget.weigh(value)
    budget.charge(paid * paid.bit_length() // 4)
    budget.spend(160 * len(value) if hasattr(value, "__len__") and not isinstance(value, Undefined) else 0)


def _hashing(budget: Budget, value: Any, arguments: _Arguments) -> None:
    _sorting(budget, value, arguments)
    budget.charge_keys(value)


def _slow(budget: Budget, value: Any, arguments: _Arguments) -> None:
    """Some of Jinja's filters take time that grows with the square of the text."""
    paid = budget.weigh_emitted(value)
    extra = budget.weigh_emitted(arguments.everything())
    budget.charge(2 * paid * (paid + extra))
    if isinstance(value, str):
        widest = sum(len(argument) for argument in arguments.everything() if isinstance(argument, str))
        budget.charge_text(len(value) * (1 + widest))


def _adding(budget: Budget, value: Any, arguments: _Arguments) -> None:
    paid = budget.weigh(value)
    if not isinstance(arguments.get(1, "start", 0), int | float):
        budget.charge(paid * paid // 8)


def _centering(budget: Budget, value: Any, arguments: _Arguments) -> None:
    _text(budget, value, arguments)
    budget.charge_text(_whole(arguments.get(0, "width", 80)))


def _indenting(budget: Budget, value: Any, arguments: _Arguments) -> None:
    _text(budget, value, arguments)
    if not isinstance(value, str):  # Jinja would lengthen a list in place
        raise EvaluationFault(f"`indent` works on text, not on {describe(value)}")
    width = arguments.get(0, "width", 4)
    lines = value.count("\n") + 1
    budget.charge_text(len(value) + lines * (len(width) if isinstance(width, str) else _whole(width)))


def _joining(budget: Budget, value: Any, arguments: _Arguments) -> None:
    _pay_for_text(budget, value, arguments, budget.weigh_emitted(value))
    if hasattr(value, "__len__") and not isinstance(value, Undefined):
        budget.charge_text(len(value) * (1 + len(str(arguments.get(0, "d", "")))))


def _replacing(budget: Budget, value: Any, arguments: _Arguments) -> None:
    _text(budget, value, arguments)
    charge_replacing(budget, str(value), str(arguments.get(0, "old", "")), str(arguments.get(1, "new", "")))


def _dividing(budget: Budget, value: Any, arguments: _Arguments) -> None:
    _each(budget, value, arguments)
    parts = arguments.get(0, "linecount", arguments.get(0, "slices", 1))
    if _whole(parts) < 1:
        raise EvaluationFault("the number of parts must be at least 1")
    budget.charge_elements(parts)


def _rounding(budget: Budget, value: Any, arguments: _Arguments) -> None:
    budget.charge(1)
    if abs(_whole(arguments.get(0, "precision", 0))) > 300:
        raise LimitExceeded("the precision of `round` is too large")


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise EvaluationFault("the filter expects a whole number as its argument")
    return value


_PRICES: dict[str, Price] = {
    **dict.fromkeys(("abs", "d", "default", "first", "last", "safe"), _nothing),
    **dict.fromkeys(("float", "int"), _number),
    **dict.fromkeys(("capitalize", "lower", "upper"), _each_letter),
    **dict.fromkeys(("title", "wordcount"), _words),
    **dict.fromkeys(("count", "length"), _measuring),
    **dict.fromkeys(("items", "list", "map", "reject", "rejectattr", "reverse", "select", "selectattr"), _each),
    **dict.fromkeys(("dictsort", "groupby", "max", "min", "sort"), _sorting),
    **dict.fromkeys(("pprint", "striptags", "urlize", "wordwrap", "xmlattr"), _slow),
    **dict.fromkeys(("e", "escape", "forceescape", "urlencode"), _escaping),
    **dict.fromkeys(("batch", "slice"), _dividing),
    "center": _centering,
    "indent": _indenting,
    "join": _joining,
    "replace": _replacing,
    "round": _rounding,
    "sum": _adding,
    "trim": _trimming,
    "unique": _hashing,
}


def _priced(name: str, price: Price) -> Callable[..., Any]:
    @pass_context
    def apply(context: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = context.budget
        budget.charge(2)
        arguments = _Arguments(args, kwargs)
        price(budget, value, arguments)
        if name in _BY_ATTRIBUTE:
            _charge_paths(budget, value, arguments)
        return _settled(budget, context.environment.stock.call_filter(name, value, args, kwargs, context))

    return apply


_BY_ATTRIBUTE = frozenset({"groupby", "join", "map", "max", "min", "rejectattr", "selectattr", "sort", "sum", "unique"})


def _charge_paths(budget: Budget, value: Any, arguments: _Arguments) -> None:
    """`attribute='a.b,c'` is followed for each element, step by step."""
    steps = sum(text.count(".") + text.count(",") + 1 for text in arguments.everything() if isinstance(text, str))
    if hasattr(value, "__len__") and not isinstance(value, Undefined):
        budget.charge(2 * steps * len(value))
    budget.spend(64 * steps)


def _settled(budget: Budget, value: Any) -> Any:
    if hasattr(value, "__next__"):
        value = list(value)
    if isinstance(value, str):
        budget.charge_text(len(value), width_of(value))
    return value


@pass_environment
def _sort(
    environment: Any, value: Any, reverse: bool = False, case_sensitive: bool = False, attribute: Any = None
) -> list[Any]:
    """Jinja's `sort`, in pieces."""
    key = make_multi_attrgetter(environment, attribute, postprocess=None if case_sensitive else ignore_case)
    items = list(value)
    if reverse:
        items.reverse()
    keys = [key(item) for item in items]
    longest = max([len(part) for key_parts in keys for part in key_parts if isinstance(part, str)], default=0)
    result = [items[at] for at in bounded_calls.order(keys, longest)]
    if reverse:
        result.reverse()
    return result


@pass_environment
def _groupby(
    environment: Any, value: Any, attribute: Any, default: Any = None, case_sensitive: bool = False
) -> list[Any]:
    """Jinja's `groupby`, which sorts first: sorted input is sorted quickly."""
    key = make_attrgetter(environment, attribute, postprocess=None if case_sensitive else ignore_case, default=default)
    items = list(value)
    keys = [key(item) for item in items]
    longest = max([len(text_key) for text_key in keys if isinstance(text_key, str)], default=0)
    items = [items[at] for at in bounded_calls.order(keys, longest)]
    return do_groupby(environment, items, attribute, default, case_sensitive)  # type: ignore[no-any-return]


@pass_environment
def _dictsort(_: Any, value: Any, case_sensitive: bool = False, by: str = "key", reverse: bool = False) -> list[Any]:
    if isinstance(value, dict) and len(value) > bounded_calls.PARTS:
        raise LimitExceeded(f"`dictsort` works on at most {bounded_calls.PARTS} members")
    return do_dictsort(value, case_sensitive, by, reverse)  # type: ignore[arg-type]


def _trim(value: Any, chars: str | None = None) -> str:
    text = str(value)
    return text.strip() if chars is None else bounded_calls.strip(text, chars)


@pass_context
def _join(context: Any, value: Any, d: str = "", attribute: Any = None) -> str:
    get = None if attribute is None else make_attrgetter(context.environment, attribute)
    text_of = context.budget.text_of
    return bounded_calls.join(str(d), [text_of(item if get is None else get(item)) for item in value])


IN_PIECES: dict[str, Callable[..., Any]] = {
    "dictsort": _dictsort,
    "groupby": _groupby,
    "join": _join,
    "sort": _sort,
    "trim": _trim,
}
"""Replacements for filters of Jinja that process all their input in one call."""


def _ours(function: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def apply(context: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        return function(context.budget, value, *args, **kwargs)

    return apply


@pass_context
def _attr(context: Any, value: Any, name: str) -> Any:
    return member(value, name, context.environment.missing)


def _format(budget: Budget, value: Any, *args: Any, **kwargs: Any) -> str:
    text = budget.text_of(value)
    if args and kwargs:
        do_format(text, *args, **kwargs)  # reports that both together are not allowed
    return format_text(budget, text, kwargs or args)


def _to_bool(budget: Budget, value: Any) -> bool:
    return is_true(value)


def _string(budget: Budget, value: Any) -> str:
    text = budget.text_of(value)
    budget.charge_text(len(text), width_of(text))
    return text


_REPLACED = {"attr", "format", "random", "string", "tojson"}

filters: dict[str, Callable[..., Any]] = {
    **{name: _priced(name, _PRICES.get(name, _text)) for name in FILTERS if name not in _REPLACED},
    "attr": _attr,
    "b64decode": _ours(results.decode_base64),
    "b64encode": _ours(results.encode_base64),
    "format": _ours(_format),
    "fromjson": _ours(results.from_json),
    "sha256": _ours(results.sha256),
    "string": _ours(_string),
    "to_bool": _ours(_to_bool),
    "tojson": _ours(results.to_json),
}

_COMPARING = {
    **dict.fromkeys(("eq", "==", "equalto"), "eq"),
    **dict.fromkeys(("ne", "!="), "ne"),
    **dict.fromkeys(("lt", "<", "lessthan"), "lt"),
    **dict.fromkeys(("gt", ">", "greaterthan"), "gt"),
    **dict.fromkeys(("le", "<="), "lteq"),
    **dict.fromkeys(("ge", ">="), "gteq"),
    "in": "in",
}


def _comparing(name: str) -> Callable[..., Any]:
    def test(budget: Budget, value: Any, other: Any) -> bool:
        return compare(budget, name, value, other)

    return _ours(test)


def _stock_test(name: str) -> Callable[..., Any]:
    @pass_context
    def test(context: Any, value: Any, *args: Any) -> bool:
        context.budget.charge(2)
        if name in ("lower", "upper"):
            context.budget.weigh_emitted(value)
        if isinstance(value, Undefined) and name in ("odd", "even", "divisibleby"):
            fail(value)
        return bool(context.environment.stock.call_test(name, value, args, context=context))

    return test


tests: dict[str, Callable[..., Any]] = {
    name: _comparing(_COMPARING[name]) if name in _COMPARING else _stock_test(name) for name in TESTS
}
