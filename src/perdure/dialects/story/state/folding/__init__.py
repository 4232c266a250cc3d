"""How each event changes the state: total functions, constant time in the number of steps."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.folding import arrivals, attempts, maps, runs, signals, steps, topologies
from perdure.kernel.events import Event

CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    **arrivals.CHANGES,
    **attempts.CHANGES,
    **maps.CHANGES,
    **steps.CHANGES,
    **signals.CHANGES,
    **runs.CHANGES,
    **topologies.CHANGES,
}


def evolve(body: Body, event: Event) -> None:
    change = CHANGES.get(type(event))
    if change is not None:
        change(body, event)
