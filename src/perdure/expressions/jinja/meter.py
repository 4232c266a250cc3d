"""The filters behind rewritten operations. Their names begin with `$`, so no template can call them."""

from collections.abc import Callable
from typing import Any

from jinja2 import pass_context

from perdure.expressions.jinja.access import call_method
from perdure.expressions.jinja.operators import compare, iterate, join_texts, take_slice


@pass_context
def _iterate(context: Any, value: Any, weight: int) -> Any:
    return iterate(context.budget, value, weight)


@pass_context
def _toll(context: Any, weight: int) -> None:
    context.budget.charge(weight)


@pass_context
def _method(context: Any, value: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return call_method(context.budget, context.environment.missing, value, name, args, kwargs)


@pass_context
def _compare(context: Any, left: Any, *links: Any) -> bool:
    """`left < middle < right`: operators and operands in turn, each pair compared until one fails."""
    for name, right in zip(links[::2], links[1::2], strict=True):
        if not compare(context.budget, name, left, right):
            return False
        left = right
    return True


@pass_context
def _concat(context: Any, *values: Any) -> str:
    return join_texts(context.budget, list(values))


@pass_context
def _slice(context: Any, value: Any, start: Any, stop: Any, step: Any) -> Any:
    return take_slice(context.budget, value, start, stop, step)


@pass_context
def _nothing(context: Any, _: None) -> Any:
    return context.environment.undefined("the `if` has no `else` and its condition is false")


operations: dict[str, Callable[..., Any]] = {
    "$compare": _compare,
    "$concat": _concat,
    "$iterate": _iterate,
    "$method": _method,
    "$nothing": _nothing,
    "$slice": _slice,
    "$toll": _toll,
}
