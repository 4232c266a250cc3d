"""`condition`: a step without work; only its `if` matters (STY-081)."""

from typing import TYPE_CHECKING

from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.kernel.graphs.graph import Role
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.story.views.net import StoryNet


class ConditionStep(StepKind):
    role = Role.CHOICE

    def start(self, turn: Turn, step: Step) -> None:
        succeed(turn, step, "Primitive evaluated and outputs are available.")

    def build_net(self, net: "StoryNet", step: Step, at: int) -> None:
        net.succeed(step, at)
