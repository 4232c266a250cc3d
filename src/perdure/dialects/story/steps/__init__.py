"""The kinds of steps, by the word that stands in `type`."""

from perdure.dialects.story.plan.program import ENGRAM
from perdure.dialects.story.steps.condition import Condition
from perdure.dialects.story.steps.engram import EngramStep
from perdure.dialects.story.steps.execute_story import ExecuteStory
from perdure.dialects.story.steps.gate import GateStep
from perdure.dialects.story.steps.parallel import Parallel
from perdure.dialects.story.steps.protocol import Kind
from perdure.dialects.story.steps.sleep import Sleep
from perdure.dialects.story.steps.stop import Stop
from perdure.dialects.story.steps.wait import Wait

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
