"""Match: routes by the first predicate that holds (MWL-210 to MWL-212)."""

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.plan.program import AMBIENT, Clause, Field, pointer
from perdure.dialects.flow.run.expression_roots import match_record, step_record
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.run.scope import Scope
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.failures import Fault
from perdure.dialects.flow.state.values import SHAPED, Carried
from perdure.dialects.flow.steps.protocol import Plain
from perdure.kernel.values import Instant

if TYPE_CHECKING:
    from perdure.dialects.flow.document.cursor import Cursor
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical


class Own(msgspec.Struct, frozen=True):
    input: Field | None
    cases: tuple[Clause, ...]
    default: Clause

    def own_fields(self) -> Any:
        return (self.input, self.cases, self.default)


class MatchAction(Plain):
    name = "Match"

    def check(self, cursor: "Cursor") -> None:
        members = {"input": parts.anything, "cases": parts.match_cases, "default": parts.match_default}
        cursor.step(members, required=("cases", "default"), code="MWL-039")

    def compile(self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical") -> Own:
        step = AMBIENT | {"step"}
        inside = step | {"match"}
        cases = tuple(compiler.clauses(raw["cases"], inside, pointer(site, "cases")))
        default = compiler.clause(raw["default"], inside, pointer(site, "default"))
        return Own(compiler.field(raw, "input", step, site), cases, default)

    def advance(self, move: Move, step: Step) -> None:
        own: Own = move.step_program(step).own
        try:
            if own.input is not None and step.shaped is None:
                event: f.StepShaped | f.StepLeft = f.StepShaped(move.number, move.step_scope(step).carried(own.input))
            else:
                predicates = self._scope(move, step)
                chosen = next((clause for clause in own.cases if predicates.holds(clause.when)), own.default)
                event = self._take(move, step, chosen)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
        else:
            move.emit(event)

    def _take(self, move: Move, step: Step, clause: Clause) -> f.StepLeft:
        output: Carried | None = SHAPED
        bound: dict[str, Carried] = {}
        if clause.output is not None or clause.assign:
            scope = self._scope(move, step, move.now)
            output = SHAPED if clause.output is None else scope.carried(clause.output)
            bound = scope.bindings(clause.assign)
        return f.StepLeft(move.number, clause.next, move.now, move.next_step, output, bound)

    def _scope(self, move: Move, step: Step, exited: Instant | None = None) -> Scope:
        turn = move.turn
        makers = {
            "step": lambda: step_record(turn, step, self.name, exited),
            "match": lambda: match_record(turn, step, exited),
        }
        return Scope(turn, move.frame, step.at, makers)


ACTION = MatchAction()
