"""Evaluating fields at a site: the roots that are in scope there, built when an expression reads them."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.dialects.flow.plan.instants import as_datetime
from perdure.dialects.flow.plan.program import AppendExpression, Assign, ExpressionReads, Field, Predicate
from perdure.dialects.flow.run.expression_roots import execution_record, frame_record
from perdure.dialects.flow.state.body import Frame, cell_at
from perdure.dialects.flow.state.failures import Fault, failure, invalid
from perdure.dialects.flow.state.values import FRAME_INPUT, STEP_INPUT, Carried, Place, is_deeper
from perdure.expressions import mwl
from perdure.expressions.mwl import ClockPin
from perdure.kernel.evaluation_trace import note_site
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.growth import joined
from perdure.kernel.json_values.values import Instant, Ref
from perdure.kernel.turn import Turn
from perdure.kernel.turn_budget import pay_for_each

RootBuilder = Callable[[], Any]

WORTH_SHARING = 200
"""Characters or members from which on it pays to check whether a place already holds the same value."""

GROWTH_SINCE = 3
"""The record version from which on events can say that a value has grown."""

WORK_OF_A_VARIABLE = 80

DEEPEST = 300
"""Levels of nesting that an expression may build; any value must be decodable everywhere."""


class Scope:
    """What the fields of one construct are evaluated against, with one budget. `at` is its clock pin (MWL-195)."""

    def __init__(self, turn: Turn, frame: Frame, at: Instant, makers: Mapping[str, RootBuilder]) -> None:
        self._turn = turn
        self._frame = frame
        self._builders = makers
        self._roots: dict[str, Any] = {}
        self._at = at
        self._pin: ClockPin | None = None
        self._budget: mwl.ConstructBudget | None = None

    @property
    def _clock(self) -> ClockPin:
        """Built on demand: most expressions do not need it."""
        if self._pin is None:
            self._pin = ClockPin(as_datetime(self._at), as_datetime(self._turn.now))
        return self._pin

    def value(self, field: Field) -> Any:
        """The field's value as data, or `Fault`."""
        try:
            return field.template.evaluate(*self._evaluation_context(field.reads, field.site))
        except mwl.ExpressionFault as fault:
            raise self._fault(fault, field.site) from None

    def member(self, field: Field) -> Any:
        """The value of a field that becomes a part of something larger: arguments, an envelope."""
        data = self.value(field)
        if not field.template.is_literal:
            _refuse_depth(data, field.site)
        return data

    def holds(self, predicate: Predicate | None) -> bool:
        if predicate is None:
            return True
        if predicate.expression is None:
            return bool(predicate.literal)
        try:
            return predicate.expression.holds(*self._evaluation_context(predicate.reads, predicate.site))
        except mwl.ExpressionFault as fault:
            raise self._fault(fault, predicate.site) from None

    def evaluate_to_carry(self, field: Field | None) -> Carried | None:
        """The field's value as an event carries it; None for a field that is absent."""
        if field is None:
            return None
        if field.text is not None:
            return self._turn.keep(field.text)
        if field.append is not None and (grown := self._appended(field.append, field.site)) is not None:
            return grown
        return self.carry(self.value(field), field.site)

    def _appended(self, growing: AppendExpression, site: str) -> Place | None:
        """The appended part, if a place holds a long list or text; only that part is evaluated and recorded."""
        turn, growth = self._turn, growing.growth
        place = self._place_at(growth.path) if turn.record_version >= GROWTH_SINCE else None
        if place is None:
            return None
        cell = cell_at(self._frame, place)
        if cell.size < WORTH_SHARING:
            return None
        measure = cell.measure(turn)
        if measure is None:
            return None
        try:
            added = growth.added(measure[0], *self._evaluation_context(growing.reads, site))
        except mwl.ExpressionFault as fault:
            raise self._fault(fault, site) from None
        if not growth.fits(*measure, added):
            return None  # evaluating the whole expression reports what is wrong
        if not added:
            return Place(place=place)
        carried = Place(grows=place, added=turn.keep(self._encode(added, site)))
        if unsealed := cell.unsealed:
            sealed = turn.keep(joined(turn.all_texts(unsealed)), 0)
            assert isinstance(sealed, Ref)
            carried["sealed"] = sealed
        return carried

    def carry(self, data: Any, site: str) -> Carried:
        """Data as an event carries them: by place if one already holds them, otherwise encoded."""
        place = self._place_of(data) if _is_worth_sharing(data) else None
        if place is not None:
            return place
        return self._turn.keep(self._encode(data, site))

    def _encode(self, data: Any, site: str) -> bytes:
        try:
            text = jsontext.encode(data)
        except jsontext.NotJson as error:
            raise Fault(failure(mwl.UNREPRESENTABLE_VALUE, str(error), details={"field": site})) from None
        if text.count(b"[") + text.count(b"{") > DEEPEST:
            _refuse_depth(data, site)
        return text

    def bindings(self, assign: Assign) -> dict[str, Carried]:
        """All values of an `assign` block, each read against the variables before it (MWL-181)."""
        if not assign:
            return {}
        pay_for_each(len(assign) * (1 + len(self._frame.stack)), WORK_OF_A_VARIABLE)
        return {name: value for name, field in assign.items() if (value := self.evaluate_to_carry(field)) is not None}

    def arguments(self, field: Field | None) -> dict[str, Any]:
        if field is None:
            return {}
        arguments = self.member(field)
        if not isinstance(arguments, dict):
            raise invalid("'with' must be an object", field.site, arguments)
        return arguments

    def _evaluation_context(
        self, reading: ExpressionReads, site: str
    ) -> tuple[dict[str, Any], ClockPin | None, mwl.ConstructBudget]:
        if self._budget is None:
            self._budget = mwl.ConstructBudget()
        note_site(site, self._frame)
        for root in reading.roots:
            if root == "vars":
                self._roots[root] = self._frame.vars.read(self._turn, reading.variables)
            elif root not in self._roots:
                self._roots[root] = self._build_root(root)
        return self._roots, self._clock if reading.reads_clock else None, self._budget

    def _build_root(self, root: str) -> Any:
        turn, frame = self._turn, self._frame
        match root:
            case "execution":
                return execution_record(turn)
            case "frame":
                return frame_record(turn, frame)
            case "failure":
                return None if frame.failure is None else frame.failure.read(turn)
            case _:
                return self._builders[root]()

    def _place_of(self, data: Any) -> Place | None:
        step = self._frame.step
        if step is not None and step.input.holds(data):
            return STEP_INPUT
        if self._frame.input.holds(data):
            return FRAME_INPUT
        name = self._frame.vars.name_of(data)
        return None if name is None else Place(place=f"vars.{name}")

    def _place_at(self, path: tuple[str, ...]) -> str | None:
        """The place that holds what a path leads to, if there is one that can grow."""
        match path:
            case ("vars", name):
                return f"vars.{name}" if name in self._frame.vars.cells else None
            case ("frame", "input"):
                return "frame.input"
            case ("step", "input") if self._frame.step is not None:
                return "step.input"
            case ("middleware" | "step", "result", "value"):
                return self._rising(path[0])
        return None

    def _rising(self, root: str) -> str | None:
        """The place of the rising Result, unless an action has replaced it."""
        result = self._evaluation_context(ExpressionReads([root], frozenset({root})), "")[0][root].get("result")
        rising = self._frame.rising
        is_rising = result is not None and rising is not None and rising.ok and rising.cell.holds(result.get("value"))
        return "rising" if is_rising else None

    def _fault(self, fault: mwl.ExpressionFault, site: str) -> Fault:
        details: dict[str, Any] = {"field": site}
        if fault.position is not None:
            details["position"] = str(fault.position)
        if fault.expression is not None:
            details["expression"] = fault.expression
        return Fault(failure(fault.code, fault.message, details=details))


def _refuse_depth(data: Any, site: str) -> None:
    if is_deeper(data, DEEPEST):
        message = f"the result is nested more than {DEEPEST} levels deep"
        raise Fault(failure(mwl.EVALUATION_ERROR, message, details={"field": site}))


def _is_worth_sharing(data: Any) -> bool:
    return isinstance(data, str | list | dict) and len(data) >= (WORTH_SHARING if isinstance(data, str) else 1)
