"""Return: the frame's graph ends with a success (MWL-225)."""

from typing import TYPE_CHECKING, Any, ClassVar

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.plan.program import AMBIENT, Field
from perdure.dialects.flow.plan.program import Step as PlannedStep
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.failures import Fault
from perdure.dialects.flow.state.values import STEP_INPUT
from perdure.dialects.flow.steps.protocol import Action
from perdure.kernel.graphs.graph import Role

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical
    from perdure.dialects.flow.views.net import FlowNet


class ReturnAction(Action):
    name = "Return"
    text = "Ends the Flow with a result (MWL-225)."
    role = Role.END

    members: ClassVar = {"value": parts.anything}
    is_terminal = True

    def compile(self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical") -> Field | None:
        return compiler.field(raw, "value", AMBIENT | {"step"}, site)

    def advance(self, move: Move, step: Step) -> None:
        fields: Field | None = move.step_program(step).fields
        try:
            value = None if fields is None else move.step_scope(step).evaluate_to_carry(fields)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
        else:
            move.emit(f.StepEnded(move.number, True, STEP_INPUT if value is None else value))

    def build_net(self, net: "FlowNet", step: PlannedStep, at: int) -> None:
        part = net.step_part(step)
        net.go(part, "returns", at, net.frame_ends.ok)
        if not net.is_literal(step.fields):
            net.go(part, "fails", at, net.failed(net.frame_ends, net.unknown))


ACTION = ReturnAction()
