"""One MWL expression: compiled against the roots in its scope, evaluated against JSON data, answered in JSON.

Compiling never fails: what is wrong with the text is a fault when it is evaluated (O-04) and a finding before.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from perdure.expressions.cel import Environment, Failure, LimitExceeded, Limits, Position, Program, SyntaxFault
from perdure.expressions.cel.errors import OutOfStack
from perdure.expressions.cel.frame import DEFAULT_LIMITS
from perdure.expressions.cel.names import Scope
from perdure.expressions.cel.values import Value, type_name
from perdure.expressions.mwl.functions import LIBRARY, ClockPin, read_number
from perdure.expressions.mwl.results import Json, JsonResult, Purse, Unrepresentable, scalar_to_json
from perdure.expressions.source import Source

EVALUATION_ERROR = "System.ExpressionEvaluationError"
UNREPRESENTABLE_VALUE = "System.UnrepresentableValue"


class Fault(Exception):
    """An expression that gave no value.

    `code` is the failure code of the language; `position` and `expression` say where, when that is known.
    `str()` is the message with a picture of the place.
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
    def is_sound(self) -> bool:
        """Whether it could be compiled; else to evaluate it is a fault."""
        return self._program is not None

    def evaluate(self, roots: Mapping[str, Any], clock: ClockPin | None = None, purse: Purse | None = None) -> Json:
        """The JSON value for these roots, or `Fault`. Data are read in place; parts of them may be in the answer.

        Expressions that share a `purse` may use, and give, no more together than one of them might alone.
        """
        value = self._evaluate(roots, clock, purse)
        kind = type(value)
        try:
            if kind is bool or kind is str or kind is dict or kind is list:
                if purse is not None and kind is not bool:
                    purse.meet(value)
                return value  # type: ignore[no-any-return]
            if kind is float or kind is int:
                return scalar_to_json(value)
            return JsonResult(self._limits.size, purse).convert(value)
        except Unrepresentable as failure:
            raise self._fault_of_result(UNREPRESENTABLE_VALUE, str(failure)) from None
        except LimitExceeded as failure:
            raise self._fault_of_result(EVALUATION_ERROR, failure.message) from None
        except RecursionError:
            raise self._fault_of_result(EVALUATION_ERROR, "the result is nested too deeply") from None

    def holds(self, roots: Mapping[str, Any], clock: ClockPin | None = None, purse: Purse | None = None) -> bool:
        """The answer of a predicate (MWL-108): anything but a bool is a fault, there is no truthiness."""
        value = self._evaluate(roots, clock, purse)
        if value is True or value is False:
            return bool(value)
        raise self._fault_of_result(EVALUATION_ERROR, f"a predicate must give a bool, not {type_name(value)}")

    def _fault_of_result(self, code: str, message: str) -> Fault:
        """The expression as a whole is to blame."""
        source = Source(self.body)
        start = len(self.body) - len(self.body.lstrip())
        text = f"{source.position(start)}: {message}\n{source.point_at(start)}"
        shown = source.fragment(start, len(self.body.rstrip()))
        return Fault(code, message, position=source.position(start), expression=shown, text=text)

    def _evaluate(self, roots: Mapping[str, Any], clock: ClockPin | None, purse: Purse | None) -> Value:
        if self._program is None:
            assert self._refusal is not None
            first = self._refusal.findings[0]
            raise Fault(EVALUATION_ERROR, first.message, position=first.position, text=str(self._refusal))
        try:
            return self._program.evaluate(roots, clock, purse)
        except Failure as failure:
            raise Fault(
                EVALUATION_ERROR,
                failure.message,
                position=failure.position,
                expression=failure.expression,
                text=str(failure),
            ) from None


ENVIRONMENT = Environment(LIBRARY, read_leaf=read_number)
_LONGEST_REMEMBERED = 2000


def compile_expression(body: str, roots: frozenset[str], limits: Limits = DEFAULT_LIMITS) -> Expression:
    """The expression, compiled now or remembered if it is not very long. `roots` are the names in scope at its site."""
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
        raise  # not to be remembered
    except SyntaxFault as refusal:
        return Expression(body, refusal.with_traceback(None), limits)


_remember = lru_cache(maxsize=1024)(_compile)
