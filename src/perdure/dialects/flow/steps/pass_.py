"""Pass: emits a value, captures variables, and continues (MWL-215)."""

from typing import TYPE_CHECKING, Any, ClassVar

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.plan.program import Step as PlannedStep
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.failures import Fault
from perdure.dialects.flow.steps.protocol import Action

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical
    from perdure.dialects.flow.views.net import FlowNet


class PassAction(Action):
    name = "Pass"
    text = "Changes data, sets variables, and continues (MWL-215)."

    members: ClassVar = {"output": parts.anything, "assign": parts.assign, "next": parts.next_step}
    required = ("next",)

    def compile(self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical") -> None:
        return None

    def advance(self, move: Move, step: Step) -> None:
        program = move.step_program(step)
        scope = move.step_scope(step, move.now)
        try:
            output, bound = scope.evaluate_to_carry(program.output), scope.bindings(program.assign)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
        else:
            move.emit(f.StepLeft(move.number, program.next, move.now, move.next_step, output, bound))

    def build_net(self, net: "FlowNet", step: PlannedStep, at: int) -> None:
        net.next(step, at)


ACTION = PassAction()
