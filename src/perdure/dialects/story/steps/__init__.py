"""The kinds of steps, by the word that stands in `type`."""

from typing import Protocol

from perdure.dialects.story.plan.program import ENGRAM, Step
from perdure.dialects.story.state.body import StepState
from perdure.dialects.story.steps.condition import Condition
from perdure.dialects.story.steps.engram import EngramStep
from perdure.dialects.story.steps.execute_story import ExecuteStory
from perdure.dialects.story.steps.gate import GateStep
from perdure.dialects.story.steps.parallel import Parallel
from perdure.dialects.story.steps.sleep import Sleep
from perdure.dialects.story.steps.stop import Stop
from perdure.dialects.story.steps.wait import Wait
from perdure.kernel.turn import Turn

# What a kind of step must be able to do. A new kind is one file and one line in `steps/__init__`.


class Kind(Protocol):
    def start(self, turn: Turn, step: Step) -> None:
        """Its dependencies have ended and its `if` holds: begin, or end at once."""

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """It has begun, and something it waited for has come: go on."""

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        """Its deadline has passed."""


KINDS: dict[str, Kind] = {
    ENGRAM: EngramStep(),
    "condition": Condition(),
    "executeStory": ExecuteStory(),
    "gate": GateStep(),
    "parallel": Parallel(),
    "sleep": Sleep(),
    "stop": Stop(),
    "wait": Wait(),
}
