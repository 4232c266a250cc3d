"""What a kind of step must be able to do. A new kind is one file and one line in `steps/__init__`."""

from typing import Protocol

from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.state.body import StepState
from perdure.kernel.turn import Turn


class Kind(Protocol):
    def start(self, turn: Turn, step: Step) -> None:
        """Its dependencies have ended and its `if` holds: begin, or end at once."""

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """It has begun, and something it waited for has come: go on."""

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        """Its deadline has passed."""
