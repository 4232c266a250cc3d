"""What each event changes: total, dull, constant time in the number of steps."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.body import Body
from perdure.dialects.story.folding import arrivals, attempts, fans, steps, telling, whole
from perdure.kernel.events import Event

CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    **arrivals.CHANGES,
    **attempts.CHANGES,
    **fans.CHANGES,
    **steps.CHANGES,
    **telling.CHANGES,
    **whole.CHANGES,
}


def evolve(body: Body, event: Event) -> None:
    change = CHANGES.get(type(event))
    if change is not None:
        change(body, event)
