"""The history of a run in the language's own event names (section 11): a view of what the kernel recorded.

One recorded event may be several canonical ones. `seq` is gap-free in this view; names, order and payloads follow the
table of PBK-163, and nothing is stored twice.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from perdure.dialects.playbook.plan.program import Directive
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.folding import evolve
from perdure.dialects.playbook.state.names import timestamp
from perdure.dialects.playbook.views.history import executions, runs, tasks, tokens
from perdure.dialects.playbook.views.history.entries import HistoryEntry, HistoryState
from perdure.kernel.events import Event
from perdure.kernel.json_values.values import Instant, RunId

# Composite events are expanded: the same history and the same state, one fact per event.


def expand(event: Event) -> tuple[Event, ...]:
    unfold = _UNFOLD.get(type(event))
    return (event,) if unfold is None else unfold(event)


def _started(event: p.WorkflowStarted) -> tuple[Event, ...]:
    if not event.entry.run:
        return (event,)
    return (msgspec.structs.replace(event, entry=_waiting(event.entry)), _start(event.entry, event.at))


def _next(event: p.NextEvaluated) -> tuple[Event, ...]:
    if not any(new.run for new in event.tokens):
        return (event,)
    expanded = msgspec.structs.replace(event, tokens=tuple(map(_waiting, event.tokens)))
    return (expanded, *(_start(new, event.at) for new in event.tokens))


def _waiting(new: p.NewToken) -> p.NewToken:
    return msgspec.structs.replace(new, run=0, tasks=0)


def _start(new: p.NewToken, at: Instant) -> p.StepStarted:
    return p.StepStarted(new.run, new.token, new.tasks, at)


def _attempt_ended(event: p.AttemptEnded) -> tuple[Event, ...]:
    if not event.label:
        return (event,)
    began = p.AttemptStarted(event.thread, event.label, event.kind, 0, event.at)
    return (began, msgspec.structs.replace(event, label="", kind=""))


def _task_passed(event: p.TaskPassed) -> tuple[Event, ...]:
    return _passed(event.thread, event.label, event.at, event.to, event.is_last)


def _step_passed(event: p.StepPassed) -> tuple[Event, ...]:
    passed = _passed(event.thread, event.label, event.at, event.to, is_last=True)
    return (*passed, p.StepEnded(event.run, "step.done", event.at, uri=event.uri, keeps=event.keeps))


def _passed(thread: int, label: str, at: Instant, to: int, is_last: bool) -> tuple[Event, ...]:
    fate = "done" if is_last else "ready"
    outcome = p.OutcomeJudged(thread, label, b.NO_RULE, Directive.CONTINUE, fate, to, is_visit=True)
    return (p.AttemptEnded(thread, at, source="landed"), outcome)


_UNFOLD: dict[type[Event], Callable[[Any], tuple[Event, ...]]] = {
    p.WorkflowStarted: _started,
    p.NextEvaluated: _next,
    p.AttemptEnded: _attempt_ended,
    p.TaskPassed: _task_passed,
    p.StepPassed: _step_passed,
}


__all__ = ["history", "history_teller"]

SCHEMA = 1

_TELLERS: dict[type[Event], Callable[[HistoryState, Any], Iterator[HistoryEntry]]] = {
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


def history_teller(run: str) -> Callable[[Instant, Event], Iterator[dict[str, Any]]]:
    """Tells the canonical events of a run, one recorded event after the other."""
    view = HistoryState(run=RunId(run))
    seq = 0

    def tell(at: Instant, recorded: Event) -> Iterator[dict[str, Any]]:
        nonlocal seq
        for entry in entries_of(view, recorded):
            seq += 1
            yield _envelope(run, seq, at, entry)

    return tell


def entries_of(view: HistoryState, recorded: Event) -> Iterator[HistoryEntry]:
    """The canonical events that a recorded one stands for; the state follows."""
    for event in expand(recorded):
        make_entries = _TELLERS.get(type(event))
        entries = list(make_entries(view, event)) if make_entries is not None else []
        evolve(view.body, event)
        yield from entries


def history(run: str, turns: Iterable[tuple[Instant, list[Event]]]) -> Iterator[dict[str, Any]]:
    """Every canonical event of a run, folded from its recorded turns."""
    tell = history_teller(run)
    for at, recorded in turns:
        for event in recorded:
            yield from tell(at, event)


def _envelope(run: str, seq: int, at: Instant, entry: HistoryEntry) -> dict[str, Any]:
    return {
        "event_id": f"{run}/{seq}",
        "execution_id": run,
        "event_type": entry.name,
        "timestamp": timestamp(at),
        "source": entry.source,
        "seq": seq,
        "entity_type": entry.name.partition(".")[0].replace("execution", "playbook"),
        "entity_id": entry.about or run,
        "status": entry.status or _STATUS.get(entry.name.rpartition(".")[2], "in_progress"),
        "schema_version": SCHEMA,
        "payload": entry.payload,
        **entry.rest,
    }
