"""Match: routes by the first predicate that holds (MWL-210 to MWL-212)."""

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.document.cursor import Cursor, Rule, comment
from perdure.dialects.flow.plan.program import AMBIENT, Clause, Field, pointer
from perdure.dialects.flow.plan.program import Step as PlannedStep
from perdure.dialects.flow.run.expression_roots import match_record, step_record
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.run.scope import Scope
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.failures import Fault
from perdure.dialects.flow.state.values import SHAPED, Carried
from perdure.dialects.flow.steps.protocol import Action
from perdure.kernel.graphs.graph import Role
from perdure.kernel.graphs.net import answers
from perdure.kernel.json_values.values import Instant

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical
    from perdure.dialects.flow.views.net import FlowNet


def match_cases(cursor: Cursor) -> None:
    parts.each(cursor, _match_case, code="MWL-039")


def _match_case(cursor: Cursor) -> None:
    if cursor.closed(CASE, ("next",), subject="a Match case") and "when" not in cursor.value:
        cursor.problem("MWL-039", "a Match case is missing 'when'")


def predicate(cursor: Cursor) -> None:
    if not cursor.is_expression:
        cursor.problem("MWL-039", "'when' of a Match case must be an expression", hint='Write "{{ … }}".')


def match_default(cursor: Cursor) -> None:
    cursor.closed(DEFAULT, ("next",), "MWL-022", "a Match default", foreign={"when": "MWL-039"})


DEFAULT: dict[str, Rule] = {
    "output": parts.anything,
    "assign": parts.assign,
    "next": parts.next_step,
    "comment": comment,
}
CASE: dict[str, Rule] = {"when": predicate, **DEFAULT}


class MatchFields(msgspec.Struct, frozen=True):
    input: Field | None
    cases: tuple[Clause, ...]
    default: Clause

    def all_fields(self) -> Any:
        return (self.input, self.cases, self.default)


class MatchAction(Action):
    name = "Match"
    text = "Goes on with the first case whose condition holds (MWL-210 to MWL-212)."
    role = Role.CHOICE

    members: ClassVar = {"input": parts.anything, "cases": match_cases, "default": match_default}
    required = ("cases", "default")
    code_of_missing = "MWL-039"

    def compile(self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical") -> MatchFields:
        step = AMBIENT | {"step"}
        inside = step | {"match"}
        cases = tuple(compiler.clauses(raw["cases"], inside, pointer(site, "cases")))
        default = compiler.clause(raw["default"], inside, pointer(site, "default"))
        return MatchFields(compiler.field(raw, "input", step, site), cases, default)

    def advance(self, move: Move, step: Step) -> None:
        fields: MatchFields = move.step_program(step).fields
        try:
            if fields.input is not None and step.shaped is None:
                event: f.StepShaped | f.StepLeft = f.StepShaped(
                    move.number, move.step_scope(step).evaluate_to_carry(fields.input)
                )
            else:
                predicates = self._scope(move, step)
                clause = next((clause for clause in fields.cases if predicates.holds(clause.when)), fields.default)
                event = self._follow(move, step, clause)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
        else:
            move.emit(event)

    def _follow(self, move: Move, step: Step, clause: Clause) -> f.StepLeft:
        output: Carried | None = SHAPED
        bound: dict[str, Carried] = {}
        if clause.output is not None or clause.assign:
            scope = self._scope(move, step, move.now)
            output = SHAPED if clause.output is None else scope.evaluate_to_carry(clause.output)
            bound = scope.bindings(clause.assign)
        return f.StepLeft(move.number, clause.next, move.now, move.next_step, output, bound)

    def _scope(self, move: Move, step: Step, exited: Instant | None = None) -> Scope:
        turn = move.turn
        makers = {
            "step": lambda: step_record(turn, step, self, exited),
            "match": lambda: match_record(turn, step, exited),
        }
        return Scope(turn, move.frame, step.at, makers)

    def branches(self, fields: MatchFields) -> list[tuple[str, Clause]]:
        return [*((_condition(case), case) for case in fields.cases), ("default", fields.default)]

    def build_net(self, net: "FlowNet", step: PlannedStep, at: int) -> None:
        fields: MatchFields = step.fields
        part = net.step_part(step)
        conditions = [net.condition(case.when) for case in fields.cases]
        ways = [*fields.cases, fields.default]
        taken = {next((index for index, holds in enumerate(item) if holds), -1) for item in answers(conditions)}
        may_fail = not net.is_literal(fields.input) or any(not isinstance(item, bool) for item in conditions)
        for index, (label, clause) in enumerate(self.branches(fields)):
            if index in taken or (index == len(fields.cases) and -1 in taken):
                net.go(part, label, at, net.start_of(clause.next))
            may_fail = may_fail or not net.is_literal(ways[index].output, ways[index].assign)
        if may_fail:
            net.fail(step, at, net.unknown)


def _condition(case: Clause) -> str:
    assert case.when is not None and case.when.expression is not None
    return case.when.expression.body.strip()


ACTION = MatchAction()
