"""Which Steps of a Flow have ended, read from its events: their frames are gone."""

from collections.abc import Iterable

from perdure.dialects.flow.state import events as f
from perdure.kernel.events import Event
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.values import Instant


def ended_steps(execution: Execution, turns: Iterable[tuple[Instant, list[Event]]]) -> frozenset[str]:
    current: dict[int, str] = {}
    ended: set[str] = set()
    for _, events in turns:
        for event in events:
            match event:
                case f.StepEntered(frame, name):
                    current[frame] = name
                case f.StepLeft() | f.StepCaught() | f.StepAnswered():
                    ended.add(current[event.frame])
                    current[event.frame] = event.next
                case f.StepEnded() | f.StepDropped():
                    ended.add(current[event.frame])
    return frozenset(ended)
