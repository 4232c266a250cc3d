"""Raise: the frame's graph ends with a failure, constructed or re-emitted (MWL-230 to MWL-235)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.document.cursor import Cursor, warning
from perdure.dialects.flow.plan.program import AMBIENT, Field, Flow, pointer
from perdure.dialects.flow.plan.program import Step as PlannedStep
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.failures import EMPTY_RAISE, MEMBERS, Envelope, Fault, checked_member, failure
from perdure.dialects.flow.state.values import FAILURE
from perdure.dialects.flow.steps.protocol import Action
from perdure.documents.cursor import DocumentFinding
from perdure.kernel.graphs.graph import Role

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical
    from perdure.dialects.flow.views.net import FlowNet


def raised(cursor: Cursor) -> None:
    if cursor.closed(parts.ENVELOPE, subject="a Raise result"):
        if "code" not in cursor.value:
            cursor.problem("MWL-040", "a Raise result is missing 'code'")
        parts.refuse_success(cursor)


class RaiseAction(Action):
    name = "Raise"
    text = "Ends the Flow with a failure: a new one, or the current one (MWL-230 to MWL-235)."
    role = Role.FAILURE

    members: ClassVar = {"result": raised}
    is_terminal = True

    def compile(
        self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical"
    ) -> dict[str, Field] | None:
        if "result" not in raw:
            return None
        inside, roots = pointer(site, "result"), AMBIENT | {"step"}
        members = raw["result"]
        return {name: Field(members[name], roots, pointer(inside, name)) for name in MEMBERS if name in members}

    def advise_place(self, step: PlannedStep, flow: Flow) -> Iterator[DocumentFinding]:
        """Only a catch clause leads to a Step with the failure still active: every success clears it (MWL-510)."""
        if step.fields is None and not any(
            clause.next == step.name for other in flow.steps.values() for clause in other.catch
        ):
            message = f"this Raise can only end with {EMPTY_RAISE}: no catch clause leads directly to it"
            hint = "Give it a `result`, or make it the `next` of a catch clause."
            yield warning("MWL-234", message, step.site, hint)

    def advance(self, move: Move, step: Step) -> None:
        members: dict[str, Field] | None = move.step_program(step).fields
        active = move.frame.failure
        if members is None:
            empty = failure(EMPTY_RAISE, "there is no failure to raise again")
            move.emit(f.StepEnded(move.number, False, move.encode(empty) if active is None else FAILURE))
            return
        try:
            envelope = self._constructed(move, step, members)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
            return
        severed = active is None or "previous" in members
        content = move.carry_failure(envelope) if severed else move.chain_onto(envelope, "failure")
        move.emit(f.StepEnded(move.number, False, content))

    def _constructed(self, move: Move, step: Step, members: dict[str, Field]) -> Envelope:
        scope = move.step_scope(step)
        evaluated = {name: checked_member(name, scope.member(field), field.site) for name, field in members.items()}
        return {"type": "error", **evaluated}

    def build_net(self, net: "FlowNet", step: PlannedStep, at: int) -> None:
        part, members = net.step_part(step), step.fields
        failure = net.unknown
        if members is not None and net.is_literal(members["code"], members.get("type")):
            kind = members["type"].template.document if "type" in members else "error"
            if "retryable" not in members:
                failure = net.known(members["code"].template.document, kind)
        net.go(part, "raises", at, net.failed(net.frame_ends, failure))
        if members is not None and not net.is_literal(members):
            net.go(part, "fails", at, net.failed(net.frame_ends, net.unknown))


ACTION = RaiseAction()
