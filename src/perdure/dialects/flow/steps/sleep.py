"""Sleep: pauses the frame for a duration or until an instant (MWL-220 to MWL-222)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.document.cursor import Cursor, warning
from perdure.dialects.flow.plan.instants import clamp, parse_duration, parse_timestamp
from perdure.dialects.flow.plan.program import AMBIENT, Field
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.failures import Fault, invalid
from perdure.dialects.flow.steps.protocol import Action
from perdure.documents.cursor import Finding
from perdure.expressions.mwl import find_expression
from perdure.kernel.inputs import CALENDAR_RANK
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.values import Instant

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical


_CALENDAR = lazy_regex(r"-?P[^T]*[YM]")


class Own(msgspec.Struct, frozen=True):
    length: Field | None
    until: Field | None

    def own_fields(self) -> Any:
        return (self.length, self.until)


class SleepAction(Action):
    name = "Sleep"

    members: ClassVar = {"for": parts.string, "until": parts.string, "next": parts.next_step}
    required = ("next",)

    def check(self, cursor: Cursor) -> None:
        cursor.exactly_one("for", "until", code="MWL-038")

    def compile(self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical") -> Own:
        roots = AMBIENT | {"step"}
        return Own(compiler.field(raw, "for", roots, site), compiler.field(raw, "until", roots, site))

    def advise(self, own: Own) -> Iterator[Finding]:
        field = own.length or own.until
        assert field is not None
        written = field.template.document
        if not isinstance(written, str) or find_expression(written) is not None:
            return
        try:
            (parse_duration if own.length is not None else parse_timestamp)(written)
        except ValueError as error:
            yield warning("MWL-046", f"this will fail at run time: {error}", field.site)
            return
        if own.length is not None and _CALENDAR.match(written):
            yield warning("MWL-088", "a year counts 365 days and a month 30", field.site, "Write days to be clear.")

    def advance(self, move: Move, step: Step) -> None:
        program = move.step_program(step)
        is_calendar = program.own.until is not None  # an instant on the wall, however that is set
        now = move.now + move.turn.ahead if is_calendar else move.now
        try:
            due = now if step.woken else self._due(move, step, program.own)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
            return
        if due > now:
            timer = move.turn.set_timer(due, CALENDAR_RANK if is_calendar else 0)
            move.emit(f.StepSlept(move.number, timer))
        else:
            move.emit(f.StepLeft(move.number, program.next, move.now, move.next_step))

    def _due(self, move: Move, step: Step, own: Own) -> Instant:
        field = own.length or own.until
        assert field is not None
        written = move.step_scope(step).value(field)
        if not isinstance(written, str):
            raise invalid("a duration or timestamp must be a string", field.site, written)
        try:
            if own.length is not None:
                return clamp(step.at + parse_duration(written))
            return parse_timestamp(written)
        except ValueError as error:
            raise invalid(str(error), field.site, written) from None


ACTION = SleepAction()
