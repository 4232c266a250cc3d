"""`condition`: a step without work; only its `if` matters (STY-081)."""

from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.kernel.graph import Role
from perdure.kernel.turn import Turn


class ConditionStep(StepKind):
    role = Role.CHOICE

    def start(self, turn: Turn, step: Step) -> None:
        succeed(turn, step, "Primitive evaluated and outputs are available.")
