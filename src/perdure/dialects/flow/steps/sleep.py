"""Sleep: pauses the frame for a duration or until an instant (MWL-220 to MWL-222)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.document.cursor import Cursor, warning
from perdure.dialects.flow.plan.instants import clamp, parse_duration, parse_timestamp
from perdure.dialects.flow.plan.program import AMBIENT, Field
from perdure.dialects.flow.plan.program import Step as PlannedStep
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.failures import Fault, invalid
from perdure.dialects.flow.steps.protocol import Action
from perdure.documents.cursor import DocumentFinding
from perdure.expressions.mwl import find_expression
from perdure.kernel.graphs.graph import Role
from perdure.kernel.inputs import CALENDAR_RANK
from perdure.kernel.json_values.values import Instant
from perdure.kernel.lazy_regex import lazy_regex

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical
    from perdure.dialects.flow.views.net import FlowNet


_CALENDAR = lazy_regex(r"-?P[^T]*[YM]")


class SleepFields(msgspec.Struct, frozen=True):
    length: Field | None
    until: Field | None

    def all_fields(self) -> Any:
        return (self.length, self.until)


class SleepAction(Action):
    name = "Sleep"
    text = "Waits for a duration, or until an instant (MWL-220 to MWL-222)."
    role = Role.WAIT

    members: ClassVar = {"for": parts.string, "until": parts.string, "next": parts.next_step}
    required = ("next",)
    one_of = (("for",), ("until",))

    def check(self, cursor: Cursor) -> None:
        cursor.exactly_one("for", "until", code="MWL-038")

    def compile(self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical") -> SleepFields:
        roots = AMBIENT | {"step"}
        return SleepFields(compiler.field(raw, "for", roots, site), compiler.field(raw, "until", roots, site))

    def advise(self, fields: SleepFields) -> Iterator[DocumentFinding]:
        field = fields.length or fields.until
        assert field is not None
        text = field.template.document
        if not isinstance(text, str) or find_expression(text) is not None:
            return
        try:
            (parse_duration if fields.length is not None else parse_timestamp)(text)
        except ValueError as error:
            yield warning("MWL-046", f"this will fail at run time: {error}", field.site)
            return
        if fields.length is not None and _CALENDAR.match(text):
            yield warning("MWL-088", "a year counts 365 days and a month 30", field.site, "Write days to be clear.")

    def advance(self, move: Move, step: Step) -> None:
        program = move.step_program(step)
        is_calendar = program.fields.until is not None  # follows the wall clock, even if that is set
        now = move.now + move.turn.ahead if is_calendar else move.now
        try:
            due = now if step.woken else self._due(move, step, program.fields)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
            return
        if due > now:
            timer = move.turn.set_timer(due, CALENDAR_RANK if is_calendar else 0)
            move.emit(f.StepSlept(move.number, timer))
        else:
            move.emit(f.StepLeft(move.number, program.next, move.now, move.next_step))

    def _due(self, move: Move, step: Step, fields: SleepFields) -> Instant:
        field = fields.length or fields.until
        assert field is not None
        text = move.step_scope(step).value(field)
        if not isinstance(text, str):
            raise invalid("a duration or timestamp must be a string", field.site, text)
        try:
            if fields.length is not None:
                return clamp(step.at + parse_duration(text))
            return parse_timestamp(text)
        except ValueError as error:
            raise invalid(str(error), field.site, text) from None

    def build_net(self, net: "FlowNet", step: PlannedStep, at: int) -> None:
        """A sleep of nothing, or until an instant that has passed, is no wait."""
        fields: SleepFields = step.fields
        waits = fields.length is not None and _may_last(fields.length)
        net.waits += waits
        net.go(net.step_part(step), "sleeps", at, net.start_of(step.next), waits=waits)
        if not net.is_literal(fields.length, fields.until):
            net.fail(step, at, net.unknown)


def _may_last(field: Field) -> bool:
    if not field.is_literal:
        return True
    try:
        return parse_duration(str(field.template.document)) > 0
    except ValueError:
        return False


ACTION = SleepAction()
