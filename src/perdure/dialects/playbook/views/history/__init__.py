"""The history of a run in the language's own event names (section 11): a view of what the kernel recorded.

One recorded event may be several canonical ones. `seq` is gap-free in this view; names, order and payloads follow the
table of PBK-163, and nothing is stored twice.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from perdure.dialects.playbook.state.composite_events import unfolded
from perdure.dialects.playbook.state.folding import evolve
from perdure.dialects.playbook.state.names import timestamp
from perdure.dialects.playbook.views.history import executions, runs, tasks, tokens
from perdure.dialects.playbook.views.history.entries import Told, View
from perdure.kernel.events import Event
from perdure.kernel.values import Instant

__all__ = ["history"]

SCHEMA = 1

_TELLERS: dict[type[Event], Callable[[View, Any], Iterator[Told]]] = {
    **executions.TELLERS,
    **tokens.TELLERS,
    **runs.TELLERS,
    **tasks.TELLERS,
}

_STATUS = {
    **dict.fromkeys(("done", "finished", "processed", "completed", "stored", "updated"), "success"),
    **dict.fromkeys(("failed", "cancelled"), "error"),
    **dict.fromkeys(("paused", "pending", "waiting"), "paused"),
    "discarded": "skipped",
}


def history(run: str, turns: Iterable[tuple[Instant, list[Event]]]) -> Iterator[dict[str, Any]]:
    """Every canonical event of a run, folded from its recorded turns."""
    view = View()
    seq = 0
    for at, recorded in turns:
        for event in chain.from_iterable(map(unfolded, recorded)):
            teller = _TELLERS.get(type(event))
            told = list(teller(view, event)) if teller is not None else []
            evolve(view.body, event)
            for one in told:
                seq += 1
                yield _envelope(run, seq, at, one)


def _envelope(run: str, seq: int, at: Instant, told: Told) -> dict[str, Any]:
    return {
        "event_id": f"{run}/{seq}",
        "execution_id": run,
        "event_type": told.name,
        "timestamp": timestamp(at),
        "source": told.source,
        "seq": seq,
        "entity_type": told.name.partition(".")[0].replace("execution", "playbook"),
        "entity_id": told.about or run,
        "status": told.status or _STATUS.get(told.name.rpartition(".")[2], "in_progress"),
        "schema_version": SCHEMA,
        "payload": told.payload,
        **told.rest,
    }
