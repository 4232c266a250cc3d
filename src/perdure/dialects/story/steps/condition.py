"""`condition`: only its `if` matters (STY-081)."""

from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.state.body import StepState
from perdure.kernel.turn import Turn


class Condition:
    def start(self, turn: Turn, step: Step) -> None:
        succeed(turn, step, "Primitive evaluated and outputs are available.")

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """It waits for nothing."""

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        """It has no deadline."""
