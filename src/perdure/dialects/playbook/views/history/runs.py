"""Step-runs and the iterations of their loops, from `step.scheduled` to `next.evaluated`."""

from collections.abc import Callable, Iterator
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.names import run_id, token_id
from perdure.dialects.playbook.views.history.entries import (
    WORKER,
    Told,
    View,
    error_of,
    is_fanout,
    of_run,
    patched,
    result_of,
    told,
    whole_patch,
)
from perdure.dialects.playbook.views.history.tasks import abandoned
from perdure.dialects.playbook.views.history.tokens import created
from perdure.kernel.events import Event

LEASE = {"worker": WORKER, "expires_at": None}
FIRST = {"lease_epoch": 1}  # of a lease, in the envelope (PBK-161)


def _step_started(view: View, event: p.StepStarted) -> Iterator[Told]:
    about = run_id(event.run)
    rest = {"step": view.body.tokens[event.token].step, "step_run_id": about, "token_id": token_id(event.token)}
    rest["parent_id"] = rest["token_id"]
    has_work = bool(event.tasks) and event.error is None
    yield Told("step.scheduled", about, {"step_run_id": about, "pool": None}, rest)
    if has_work and event.items is None:
        yield Told("command.claimed", about, dict(LEASE), rest | FIRST)
    yield Told("step.started", about, {}, rest | FIRST, "worker" if has_work else "server")
    if event.items is None:
        return
    said = {"total": event.total, "mode": event.mode, "max_in_flight": event.limit}
    yield Told("loop.started", about, said, rest)
    if event.mode == "fanout":
        yield Told(
            "loop.fanout.started", about, {"loop_id": about, "expected": event.total}, {**rest, "loop_id": about}
        )


def _iteration(view: View, event: p.IterationStarted) -> Iterator[Told]:
    rest = of_run(view.body, event.run, event.index)
    about = rest["iteration_id"]
    shard = is_fanout(view.body.runs[event.run])
    yield Told("loop.shard.enqueued" if shard else "loop.iteration.scheduled", about, {"index": event.index}, rest)
    yield Told("command.claimed", about, dict(LEASE), rest | FIRST)
    name = "loop.shard.started" if shard else "loop.iteration.started"
    yield Told(name, about, {"index": event.index}, rest, "worker")


def _step_ended(view: View, event: p.StepEnded) -> Iterator[Told]:
    run = view.body.runs[event.run]
    rest = of_run(view.body, event.run)
    about = rest["step_run_id"]
    yield from abandoned(view, run, event.error)
    if event.set_ctx:
        why = "step set" if run.loop is None else "loop merge"
        yield patched(whole_patch(view, event.set_ctx), "server", why, rest)
    if event.manifest is not None:
        said = {"reference": told(event.manifest.reference or b"null")}
        yield Told("result.manifest.updated", event.manifest.uri, said, rest, "worker")
    if event.fanin and run.loop is not None:
        counts = {"succeeded": len(run.loop.results), "failed": run.loop.failed, "loop_id": about}
        yield Told("loop.fanin.completed", about, {"status": event.fanin, **counts}, {**rest, "loop_id": about})
    rest["duration_ms"] = (event.at - run.at) // 1000
    source = "worker" if run.loop is None and run.label and not run.threads else "server"
    yield Told(event.name, about, _boundary(event, run), rest, source)


def _boundary(event: p.StepEnded, run: b.StepRun) -> dict[str, Any]:
    said: dict[str, Any] = {"error": error_of(event.error), "result": None, "reference": event.uri or None}
    if run.loop is not None:
        loop = run.loop
        said["stats"] = {"total": loop.total, "success": len(loop.results), "failed": loop.failed}
        if event.manifest is not None:
            said["result"] = told(event.manifest.reference or b"null")
    elif event.error is None:
        said["result"] = result_of(run.result)
    return said


def _next(view: View, event: p.NextEvaluated) -> Iterator[Told]:
    if not event.mode:
        return
    rest = of_run(view.body, event.run)
    arcs = [{"step": step, "matched": matched, "error": error or None} for step, matched, error in event.arcs]
    tokens = [token_id(new.token) for new in event.tokens]
    yield Told("next.evaluated", rest["step_run_id"], {"mode": event.mode, "arcs": arcs, "tokens": tokens}, rest)
    if event.set_ctx:
        yield patched(whole_patch(view, event.set_ctx), "server", "arc set", rest)
    for new in event.tokens:
        yield from created(new, event.run)


def _withdrawn(view: View, event: p.RunWithdrawn) -> Iterator[Told]:
    rest = of_run(view.body, event.run)
    run = view.body.runs[event.run]
    yield from abandoned(view, run, None)
    yield Told("command.cancelled", rest["step_run_id"], {"reason": event.reason, "worker": WORKER}, rest)


TELLERS: dict[type[Event], Callable[[View, Any], Iterator[Told]]] = {
    p.StepStarted: _step_started,
    p.IterationStarted: _iteration,
    p.StepEnded: _step_ended,
    p.NextEvaluated: _next,
    p.RunWithdrawn: _withdrawn,
}
