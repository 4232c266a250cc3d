"""A JSON value whose string leaves may be expressions (MWL-104): compiled once, evaluated many times."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.expressions.cel.frame import DEFAULT_LIMITS, Limits
from perdure.expressions.mwl.embedded import find_expression
from perdure.expressions.mwl.expression import EVALUATION_ERROR, Expression, ExpressionFault, compile_expression
from perdure.expressions.mwl.functions import ClockPin
from perdure.expressions.mwl.results import ConstructBudget, Json
from perdure.expressions.source import ExpressionProblem
from perdure.kernel.evaluation_trace import EvaluationTrace, current_trace
from perdure.kernel.turn_budget import pay, price_of_parts

_Fill = Callable[[Mapping[str, Any], ClockPin | None, ConstructBudget | None], Json]


class Template:
    """A field's value as written. Without any expression it is the value itself, by reference."""

    __slots__ = ("_fill", "document", "expressions")

    def __init__(self, document: Any, roots: frozenset[str], limits: Limits = DEFAULT_LIMITS) -> None:
        self.document: Json = document
        self.expressions: dict[str, Expression] = {}  # by JSON pointer
        try:
            self._fill = self._plan(document, "", roots, limits)
        except RecursionError:
            self._fill = _refuse

    @property
    def is_literal(self) -> bool:
        return self._fill is None

    @property
    def findings(self) -> list[tuple[str, ExpressionProblem]]:
        """What `check` warns about: (JSON pointer, problem)."""
        return [
            (pointer, finding) for pointer, expression in self.expressions.items() for finding in expression.findings
        ]

    def evaluate(
        self, roots: Mapping[str, Any], clock: ClockPin | None = None, budget: ConstructBudget | None = None
    ) -> Json:
        """The value with every expression replaced by its result; the first fault ends it.

        All of them together may use no more than one expression, together with everything else that pays from this
        `budget`.
        """
        if self._fill is None:
            return self.document
        trace = current_trace.get()
        if trace is not None:
            return self._traced(trace, roots, clock, budget)
        try:
            return self._fill(roots, clock, budget or ConstructBudget())
        except RecursionError:
            return _refuse(roots, clock, budget)

    def _traced(
        self,
        trace: EvaluationTrace,
        roots: Mapping[str, Any],
        clock: ClockPin | None,
        budget: ConstructBudget | None,
    ) -> Json:
        """The same, and the trace is told where in the value each expression is written."""
        assert self._fill is not None
        first = len(trace.evaluations)
        try:
            return self._fill(roots, clock, budget or ConstructBudget())
        finally:
            for evaluation, pointer in zip(trace.evaluations[first:], self.expressions, strict=False):
                evaluation.place = tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])

    def _plan(self, value: Json, pointer: str, roots: frozenset[str], limits: Limits) -> _Fill | None:
        if isinstance(value, str):
            body = find_expression(value)
            if body is None:
                return None
            expression = self.expressions[pointer] = compile_expression(body, roots, limits)
            return expression.evaluate
        if isinstance(value, dict):
            members = {
                key: self._plan(item, f"{pointer}/{_escaped(key)}", roots, limits) for key, item in value.items()
            }
            return _fill_object(value, members) if any(members.values()) else None
        if isinstance(value, list):
            items = [self._plan(item, f"{pointer}/{at}", roots, limits) for at, item in enumerate(value)]
            return _fill_array(value, items) if any(items) else None
        return None


def _refuse(roots: Mapping[str, Any], clock: ClockPin | None, budget: ConstructBudget | None) -> Json:
    raise ExpressionFault(EVALUATION_ERROR, "the value is nested too deeply")


def _fill_object(value: dict[str, Json], members: dict[str, _Fill | None]) -> _Fill:
    price = price_of_parts(len(members))

    def fill(roots: Mapping[str, Any], clock: ClockPin | None, budget: ConstructBudget | None) -> Json:
        if price:
            pay(price)
        return {key: value[key] if part is None else part(roots, clock, budget) for key, part in members.items()}

    return fill


def _fill_array(value: list[Json], items: list[_Fill | None]) -> _Fill:
    price = price_of_parts(len(items))

    def fill(roots: Mapping[str, Any], clock: ClockPin | None, budget: ConstructBudget | None) -> Json:
        if price:
            pay(price)
        return [item if part is None else part(roots, clock, budget) for item, part in zip(value, items, strict=True)]

    return fill


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
