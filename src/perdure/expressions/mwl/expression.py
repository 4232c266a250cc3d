"""One MWL expression: compiled against the roots in its scope, evaluated on JSON data, with a JSON result.

Compiling never fails: an error in the text is a fault when it is evaluated (O-04) and a problem before.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from perdure.expressions.cel import syntax
from perdure.expressions.cel.frame import DEFAULT_LIMITS, Limits
from perdure.expressions.cel.names import Scope, dotted_path
from perdure.expressions.cel.parser import parse
from perdure.expressions.cel.program import Environment, Program
from perdure.expressions.cel.values import Value, type_name
from perdure.expressions.errors import Failure, LimitExceeded, OutOfStack, SyntaxFault
from perdure.expressions.mwl.functions import LIBRARY, ClockPin, read_number
from perdure.expressions.mwl.results import ConstructBudget, Json, JsonResult, Unrepresentable, scalar_to_json
from perdure.expressions.source import Position, Source
from perdure.kernel.lazy_regex import lazy_regex

EVALUATION_ERROR = "System.ExpressionEvaluationError"
UNREPRESENTABLE_VALUE = "System.UnrepresentableValue"


class ExpressionFault(Exception):
    """An expression without a value. `code` is the failure code of the language.

    `position` and `expression` say where, if that is known. `str()` is the message with a picture of the place.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        position: Position | None = None,
        expression: str | None = None,
        text: str = "",
    ) -> None:
        super().__init__(text or message)
        self.code = code
        self.message = message
        self.position = position
        self.expression = expression


class Expression:
    """The body of one `{{ … }}`. Get one from `compile_expression`."""

    __slots__ = ("_limits", "_program", "_refusal", "body", "findings")

    def __init__(self, body: str, compiled: Program | SyntaxFault, limits: Limits) -> None:
        self.body = body
        self.findings = compiled.findings
        self._limits = limits
        self._program = compiled if isinstance(compiled, Program) else None
        self._refusal = compiled if isinstance(compiled, SyntaxFault) else None

    @property
    def is_valid(self) -> bool:
        """Whether it could be compiled; otherwise evaluating it is a fault."""
        return self._program is not None

    def evaluate(
        self, roots: Mapping[str, Any], clock: ClockPin | None = None, budget: ConstructBudget | None = None
    ) -> Json:
        """The JSON value for these roots, or `ExpressionFault`.

        Data are read in place; the result may contain parts of them. Expressions that share a `budget` may together
        use, and return, no more than one of them could alone.
        """
        value = self._evaluate(roots, clock, budget)
        kind = type(value)
        try:
            if kind is bool or kind is str or kind is dict or kind is list:
                if budget is not None and kind is not bool:
                    budget.count_data(value)
                return value  # type: ignore[no-any-return]
            if kind is float or kind is int:
                return scalar_to_json(value)
            return JsonResult(self._limits.size, budget).convert(value)
        except Unrepresentable as failure:
            raise self._fault_of_result(UNREPRESENTABLE_VALUE, str(failure)) from None
        except LimitExceeded as failure:
            raise self._fault_of_result(EVALUATION_ERROR, failure.message) from None
        except RecursionError:
            raise self._fault_of_result(EVALUATION_ERROR, "the result is nested too deeply") from None

    def holds(
        self, roots: Mapping[str, Any], clock: ClockPin | None = None, budget: ConstructBudget | None = None
    ) -> bool:
        """The result of a predicate (MWL-108): anything but a bool is a fault, there is no truthiness."""
        value = self._evaluate(roots, clock, budget)
        if value is True or value is False:
            return bool(value)
        raise self._fault_of_result(EVALUATION_ERROR, f"a predicate must be a bool, not {type_name(value)}")

    def _fault_of_result(self, code: str, message: str) -> ExpressionFault:
        """The fault is in the expression as a whole."""
        source = Source(self.body)
        start = len(self.body) - len(self.body.lstrip())
        text = f"{source.position(start)}: {message}\n{source.point_at(start)}"
        fragment = source.fragment(start, len(self.body.rstrip()))
        return ExpressionFault(code, message, position=source.position(start), expression=fragment, text=text)

    def _evaluate(self, roots: Mapping[str, Any], clock: ClockPin | None, budget: ConstructBudget | None) -> Value:
        if self._program is None:
            assert self._refusal is not None
            first = self._refusal.findings[0]
            raise ExpressionFault(EVALUATION_ERROR, first.message, position=first.position, text=str(self._refusal))
        try:
            return self._program.evaluate(roots, clock, budget)
        except Failure as failure:
            raise ExpressionFault(
                EVALUATION_ERROR,
                failure.message,
                position=failure.position,
                expression=failure.expression,
                text=str(failure),
            ) from None


ENVIRONMENT = Environment(LIBRARY, read_leaf=read_number)
_LONGEST_REMEMBERED = 2000


def compile_expression(body: str, roots: frozenset[str], limits: Limits = DEFAULT_LIMITS) -> Expression:
    """The expression, compiled now or cached if it is not very long. `roots` are the names in scope at its site."""
    compile_now = _remember if len(body) <= _LONGEST_REMEMBERED else _compile
    try:
        return compile_now(body, roots, limits)
    except OutOfStack as refusal:
        return Expression(body, refusal, limits)


def _compile(body: str, roots: frozenset[str], limits: Limits) -> Expression:
    environment = ENVIRONMENT if limits is DEFAULT_LIMITS else Environment(LIBRARY, limits, read_number)
    try:
        return Expression(body, Program(body, Scope(roots), environment), limits)
    except OutOfStack:
        raise  # not to be cached
    except SyntaxFault as refusal:
        return Expression(body, refusal.with_traceback(None), limits)


_remember = lru_cache(maxsize=1024)(_compile)


# Expressions that append: `path + more`. Recognised when they are compiled, not by comparing values.

_NOT_BLANK = lazy_regex(r"[^\n]")

Path = tuple[str, ...]


class GrowthChoice(msgspec.Struct, frozen=True):
    when: Expression
    then: "More"
    otherwise: "More"


More = Expression | GrowthChoice | None
"""What is appended; None for an arm that appends nothing."""


class Growth(msgspec.Struct, frozen=True):
    path: Path  # to what grows
    more: More  # what is appended to it; faults point into the whole expression

    @property
    def bodies(self) -> list[str]:
        """Of all expressions that may be evaluated."""
        return [expression.body for expression in _expressions(self.more)]

    def added(
        self,
        is_text: bool,
        roots: Mapping[str, Any],
        clock: ClockPin | None = None,
        budget: ConstructBudget | None = None,
    ) -> Json:
        """What is appended to a text or a list; a value that is neither is left to the whole expression to report."""
        more = self.more
        while isinstance(more, GrowthChoice):
            holds = more.when.evaluate(roots, clock, budget)
            if not isinstance(holds, bool):
                return None
            more = more.then if holds else more.otherwise
        if more is None:
            return "" if is_text else []
        return more.evaluate(roots, clock, budget)

    def fits(self, is_text: bool, elements: int, weight: int, added: Json) -> bool:
        """Whether the sum is a list or a text, and as a whole not larger than an expression may create."""
        if isinstance(added, str):
            return is_text and weight + len(added) <= DEFAULT_LIMITS.size
        if is_text or not isinstance(added, list):
            return False
        texts = sum(len(item) for item in added if isinstance(item, str))
        return 8 * (elements + len(added)) + weight + texts <= DEFAULT_LIMITS.size


def _expressions(more: More) -> Iterator[Expression]:
    if isinstance(more, Expression):
        yield more
    elif isinstance(more, GrowthChoice):
        yield more.when
        yield from _expressions(more.then)
        yield from _expressions(more.otherwise)


def find_growth(body: str, roots: frozenset[str]) -> Growth | None:
    """The growth that an expression is, or None. `a.b + c + d` adds `c + d`."""
    if "+" not in body:
        return None
    try:
        tree = parse(Source(body), DEFAULT_LIMITS.depth)
        path, more = _Finder(body, roots).find(tree, 0, len(body))
    except (SyntaxFault, RecursionError, _NoGrowth):
        return None  # the expression itself reports what is wrong
    return None if more is None else Growth(path, more)


class _NoGrowth(Exception):
    """It is something else."""


class _Finder:
    def __init__(self, body: str, roots: frozenset[str]) -> None:
        self._body = body
        self._roots = roots

    def find(self, node: syntax.Node, start: int, end: int) -> tuple[Path, More]:
        """What the node, written between these places, appends to which path."""
        if isinstance(node, syntax.Ternary):
            return self._choice(node, start, end)
        if isinstance(node, syntax.Chain) and all(part.operator == "+" for part in node.rest):
            return self._path(node.first), self._compiled(node.rest[0].focus + 1, end)
        return self._path(node), None

    def _choice(self, node: syntax.Ternary, start: int, end: int) -> tuple[Path, More]:
        mark = self._body.index("?", node.condition.end, node.then.start)
        colon = self._body.index(":", node.then.end, node.otherwise.start)
        path, then = self.find(node.then, mark + 1, colon)
        other, otherwise = self.find(node.otherwise, colon + 1, end)
        if path != other:
            raise _NoGrowth
        if then is None and otherwise is None:
            return path, None
        return path, GrowthChoice(self._compiled(start, mark), then, otherwise)

    def _path(self, node: syntax.Node) -> Path:
        path = dotted_path(node)
        if path is None or path[1] or path[0][0] not in self._roots or len(path[0]) < 2:
            raise _NoGrowth
        return path[0]

    def _compiled(self, start: int, end: int) -> Expression:
        """This part of the text, at its place; parentheses around more than it are left out."""
        part = self._body[start:end]
        inside = part.count("(") - part.count(")")
        while inside < 0 and part.rstrip().endswith(")"):
            part, inside = part.rstrip()[:-1], inside + 1
        while inside > 0 and part.lstrip().startswith("("):
            start += len(part) - len(part.lstrip()) + 1
            part, inside = part.lstrip()[1:], inside - 1
        expression = compile_expression(_NOT_BLANK.sub(" ", self._body[:start]) + part, self._roots)
        if not expression.is_valid:
            raise _NoGrowth
        return expression
