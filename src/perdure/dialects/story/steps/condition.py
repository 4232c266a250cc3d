"""`condition`: only its `if` matters (STY-081)."""

from perdure.dialects.story.body import StepState
from perdure.dialects.story.program import Step
from perdure.dialects.story.verifying import succeed
from perdure.kernel.turn import Turn


class Condition:
    def start(self, turn: Turn, step: Step) -> None:
        succeed(turn, step, "Primitive evaluated and outputs are available.")

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """It waits for nothing."""

    def ring(self, turn: Turn, step: Step, state: StepState) -> None:
        """It has no deadline."""
