"""How events change the state of a Flow. Total, without decisions, in constant time; nothing is evaluated here."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.flow.state.body import Body
from perdure.dialects.flow.state.folding import arrivals, calls, checkpoints, entries, frames, steps
from perdure.kernel.events import Event

CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    **arrivals.CHANGES,
    **frames.CHANGES,
    **steps.CHANGES,
    **entries.CHANGES,
    **calls.CHANGES,
    **checkpoints.CHANGES,
}


def evolve(body: Body, event: Event) -> None:
    change = CHANGES.get(type(event))
    if change is not None:
        change(body, event)
