"""Jinja, closed and metered: no loader, no autoescape, no access to Python (PBK-147).

Where Jinja counts lines, this environment counts characters: a node's `lineno` is its offset plus one, so that errors
can point at the exact place. There are two environments, one for values and one for guards; they differ only in what is
undefined.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NoReturn

from jinja2 import TemplateSyntaxError, Undefined, pass_context
from jinja2.lexer import TokenStream
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace

from perdure.expressions.jinja import filters
from perdure.expressions.jinja.access import call, call_method, member
from perdure.expressions.jinja.budget import BYTES_OF_AN_ELEMENT, Budget
from perdure.expressions.jinja.errors import EvaluationFault, LimitExceeded
from perdure.expressions.jinja.operators import (
    BINARY_OPERATORS,
    calculate,
    compare,
    iterate,
    join_texts,
    negate,
    take_slice,
)
from perdure.expressions.jinja.undefined import LenientUndefined, StrictUndefined
from perdure.kernel.evaluation_trace import current_trace

# The filters behind rewritten operations. Their names begin with `$`, so no template can call them.


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
    """`left < middle < right`: operators and operands alternate; each pair is compared until one fails."""
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


class MeteredContext(Context):
    """The names of one rendering, and its budget."""

    budget: Budget


class ClosedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's own filters and tests, with access to data only as `access` allows."""

    def missing(self, value: Any, name: Any) -> Undefined:
        return self.undefined(obj=value, name=name)

    def getattr(self, obj: Any, attribute: str) -> Any:
        return member(obj, attribute, self.missing)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return member(obj, argument, self.missing)


class MeteredEnvironment(ClosedEnvironment):
    """What templates are compiled for: every operation is paid for."""

    context_class = MeteredContext
    traces = False
    intercepted_binops = BINARY_OPERATORS
    intercepted_unops = frozenset({"+", "-"})

    def __init__(self, undefined: type[Undefined]) -> None:
        super().__init__(
            undefined=undefined,
            finalize=_emit,
            optimized=False,  # nothing is computed before there is a budget
            autoescape=False,
            keep_trailing_newline=True,
            cache_size=0,
        )
        self.stock = ClosedEnvironment(undefined=undefined, autoescape=False)
        self.stock.filters = {**self.stock.filters, **filters.IN_PIECES}
        self.filters = {**filters.filters, **operations}
        self.tests = dict(filters.tests)
        self.globals = {
            "cycler": Cycler,
            "dict": dict,
            "joiner": Joiner,
            "namespace": Namespace,
            "range": range,
        }

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        tokens = self.lexer.tokeniter(source, name, filename, state)
        return TokenStream(self.lexer.wrap(_with_offsets(tokens, source), name, filename), name, filename)

    def handle_exception(self, source: str | None = None) -> NoReturn:
        raise  # Jinja calls this while it handles one; `program` explains it

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return calculate(context.budget, operator, left, right)  # type: ignore[attr-defined]

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        return negate(operator, arg)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        for internal in ("_loop_vars", "_block_vars"):
            kwargs.pop(internal, None)
        budget: Budget = __context.budget  # type: ignore[attr-defined]
        if __obj is range:
            return _range(budget, args)
        if __obj in (Cycler, Joiner, Namespace, dict):
            budget.charge_elements(len(kwargs) + sum(len(arg) for arg in args if isinstance(arg, dict | list | str)))
            budget.charge_keys(args)
            return __obj(*args, **kwargs)
        if isinstance(__obj, LoopContext) and args:
            args = (iterate(budget, args[0], 0), *args[1:])  # the next level of a recursive loop
        return call(budget, __obj, args, kwargs)


@pass_context
def _emit(context: Any, value: Any) -> str:
    """The text of a value for the output."""
    budget: Budget = context.budget
    text = budget.text_of(value)
    budget.charge_output(len(text))
    return text


_WIDEST_BOUND = 64  # bits of a number and its sign


def _range(budget: Budget, bounds: tuple[Any, ...]) -> range:
    if not 1 <= len(bounds) <= 3 or not all(isinstance(bound, int) for bound in bounds):
        raise EvaluationFault("`range` needs one to three whole numbers")
    if any(bound.bit_length() >= _WIDEST_BOUND for bound in bounds):
        raise LimitExceeded("`range` works on numbers of at most 64 bits")
    numbers = range(*bounds)
    try:
        budget.charge_elements(len(numbers), BYTES_OF_AN_ELEMENT)
    except OverflowError:
        budget.charge_elements(2**63)
    return numbers


def _with_offsets(tokens: Iterator[tuple[int, str, str]], source: str) -> Iterator[tuple[int, str, str]]:
    """The same tokens, numbered by their offset. Jinja drops blanks between tokens and nothing else."""
    at = 0
    try:
        for _, token, text in tokens:
            start = source.find(text, at)
            yield start + 1, token, text
            at = start + len(text)
    except TemplateSyntaxError as error:
        error.lineno = at + 1
        raise


VALUES = MeteredEnvironment(StrictUndefined)
GUARDS = MeteredEnvironment(LenientUndefined)


# The same, for templates that report what they read (`kernel.evaluation_trace`); never used to decide.


@pass_context
def _read(context: Any, value: Any, name: str) -> Any:
    """A name where it is used; those that the template itself has bound are not reported."""
    trace = current_trace.get()
    if trace is not None and context.parent.get(name, _UNBOUND) is value and name not in context.environment.globals:
        trace.read((name,), value)
    return value


@pass_context
def _traced_method(context: Any, value: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    result = _method(context, value, name, *args, **kwargs)
    trace = current_trace.get()
    if trace is not None and name == "get" and args and isinstance(value, Mapping) and isinstance(args[0], str):
        trace.read_member(value, args[0], result)
    return result


_UNBOUND = object()


class TracingEnvironment(MeteredEnvironment):
    traces = True

    def __init__(self, undefined: type[Undefined]) -> None:
        super().__init__(undefined)
        self.filters = {**self.filters, "$read": _read, "$method": _traced_method}

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        value = super().getitem(obj, argument)
        trace = current_trace.get()
        if trace is not None and isinstance(argument, str | int):
            trace.read_member(obj, argument, None if isinstance(value, Undefined) else value)
        return value


@cache
def tracing(environment: MeteredEnvironment) -> TracingEnvironment:
    return TracingEnvironment(environment.undefined)
