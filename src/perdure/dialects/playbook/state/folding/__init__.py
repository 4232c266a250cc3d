"""How events change the state. Nothing is rendered or decided here, and the cost does not depend on the run's width."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook.state.body import Body
from perdure.dialects.playbook.state.folding import arrivals, executions, joins, redrives, runs, threads, tokens
from perdure.kernel.events import Event

CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    **arrivals.CHANGES,
    **tokens.CHANGES,
    **runs.CHANGES,
    **threads.CHANGES,
    **joins.CHANGES,
    **executions.CHANGES,
    **redrives.CHANGES,
}


def evolve(body: Body, event: Event) -> None:
    body.seq += 1
    change = CHANGES.get(type(event))
    if change is not None:
        change(body, event)
