"""Step-runs and the iterations of their loops, from `step.scheduled` to `next.evaluated`."""

from collections.abc import Callable, Iterator
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.names import run_id, token_id
from perdure.dialects.playbook.views.history.entries import (
    WORKER,
    HistoryEntry,
    HistoryState,
    error_of,
    is_fanout,
    patch_entry,
    result_of,
    run_ids,
    value_of,
    whole_patch,
)
from perdure.dialects.playbook.views.history.tasks import abandoned_entries
from perdure.dialects.playbook.views.history.tokens import token_created
from perdure.kernel.events import Event

LEASE = {"worker": WORKER, "expires_at": None}
FIRST = {"lease_epoch": 1}  # of a lease, in the envelope (PBK-161)


def _step_started(view: HistoryState, event: p.StepStarted) -> Iterator[HistoryEntry]:
    about = run_id(event.run)
    rest = {"step": view.body.tokens[event.token].step, "step_run_id": about, "token_id": token_id(event.token)}
    rest["parent_id"] = rest["token_id"]
    has_work = bool(event.tasks) and event.error is None
    yield HistoryEntry("step.scheduled", about, {"step_run_id": about, "pool": None}, rest)
    if has_work and event.items is None:
        yield HistoryEntry("command.claimed", about, dict(LEASE), rest | FIRST)
    yield HistoryEntry("step.started", about, {}, rest | FIRST, "worker" if has_work else "server")
    if event.items is None:
        return
    total = None if event.mode == "cursor" else event.total
    payload = {"total": total, "mode": event.mode, "max_in_flight": event.limit}
    yield HistoryEntry("loop.started", about, payload, rest)
    if event.mode == "fanout":
        yield HistoryEntry(
            "loop.fanout.started", about, {"loop_id": about, "expected": event.total}, {**rest, "loop_id": about}
        )


def _frame_claimed(view: HistoryState, event: p.FrameClaimed) -> Iterator[HistoryEntry]:
    """An extension of the canonical events, as cursor loops are one of the language."""
    rest = run_ids(view.body, event.run)
    loop = view.body.runs[event.run].loop
    assert loop is not None
    payload = {"frame": loop.claims, "rows": event.rows, "first_index": loop.total, "iterations": event.iterations}
    status = "error" if event.error is not None else ""
    yield HistoryEntry(
        "loop.frame.claimed", rest["step_run_id"], {**payload, "error": error_of(event.error)}, rest, "server", status
    )


def _iteration(view: HistoryState, event: p.IterationStarted) -> Iterator[HistoryEntry]:
    rest = run_ids(view.body, event.run, event.index)
    about = rest["iteration_id"]
    shard = is_fanout(view.body.runs[event.run])
    yield HistoryEntry(
        "loop.shard.enqueued" if shard else "loop.iteration.scheduled", about, {"index": event.index}, rest
    )
    yield HistoryEntry("command.claimed", about, dict(LEASE), rest | FIRST)
    name = "loop.shard.started" if shard else "loop.iteration.started"
    yield HistoryEntry(name, about, {"index": event.index}, rest, "worker")


def _step_ended(view: HistoryState, event: p.StepEnded) -> Iterator[HistoryEntry]:
    run = view.body.runs[event.run]
    rest = run_ids(view.body, event.run)
    about = rest["step_run_id"]
    yield from abandoned_entries(view, run, event.error)
    if event.set_ctx:
        why = "step set" if run.loop is None else "loop merge"
        yield patch_entry(whole_patch(view, event.set_ctx), "server", why, rest)
    if event.manifest is not None:
        payload = {"reference": value_of(event.manifest.reference or b"null")}
        yield HistoryEntry("result.manifest.updated", event.manifest.uri, payload, rest, "worker")
    if event.fanin and run.loop is not None:
        counts = {"succeeded": run.loop.succeeded, "failed": run.loop.failed, "loop_id": about}
        yield HistoryEntry("loop.fanin.completed", about, {"status": event.fanin, **counts}, {**rest, "loop_id": about})
    rest["duration_ms"] = (event.at - run.at) // 1000
    source = "worker" if run.loop is None and run.label and not run.threads else "server"
    yield HistoryEntry(event.name, about, _boundary(event, run), rest, source)


def _boundary(event: p.StepEnded, run: b.StepRun) -> dict[str, Any]:
    payload: dict[str, Any] = {"error": error_of(event.error), "result": None, "reference": event.uri or None}
    if run.loop is not None:
        loop = run.loop
        payload["stats"] = {"total": loop.total, "success": loop.succeeded, "failed": loop.failed}
        if event.manifest is not None:
            payload["result"] = value_of(event.manifest.reference or b"null")
    if run.loop is None and event.error is None:
        payload["result"] = result_of(run.result)
    return payload


def _next(view: HistoryState, event: p.NextEvaluated) -> Iterator[HistoryEntry]:
    if not event.mode:
        return
    rest = run_ids(view.body, event.run)
    arcs = [{"step": step, "matched": matched, "error": error or None} for step, matched, error in event.arcs]
    tokens = [token_id(new.token) for new in event.tokens]
    yield HistoryEntry(
        "next.evaluated", rest["step_run_id"], {"mode": event.mode, "arcs": arcs, "tokens": tokens}, rest
    )
    if event.set_ctx:
        yield patch_entry(whole_patch(view, event.set_ctx), "server", "arc set", rest)
    for new in event.tokens:
        yield from token_created(new, event.run)


def _withdrawn(view: HistoryState, event: p.RunWithdrawn) -> Iterator[HistoryEntry]:
    rest = run_ids(view.body, event.run)
    run = view.body.runs[event.run]
    yield from abandoned_entries(view, run, None)
    yield HistoryEntry("command.cancelled", rest["step_run_id"], {"reason": event.reason, "worker": WORKER}, rest)


TELLERS: dict[type[Event], Callable[[HistoryState, Any], Iterator[HistoryEntry]]] = {
    p.StepStarted: _step_started,
    p.FrameClaimed: _frame_claimed,
    p.IterationStarted: _iteration,
    p.StepEnded: _step_ended,
    p.NextEvaluated: _next,
    p.RunWithdrawn: _withdrawn,
}
