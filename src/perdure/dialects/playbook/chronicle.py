"""The history of a run in the language's own event names (section 11): a view of what the kernel recorded.

One recorded event may be several canonical ones. `seq` is gap-free in this view; names, order and payloads follow the
table of PBK-163, and nothing is stored twice.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from perdure.dialects.playbook import body as b
from perdure.dialects.playbook import events as p
from perdure.dialects.playbook.errors import Error
from perdure.dialects.playbook.folding import evolve
from perdure.dialects.playbook.names import run_id, timestamp, token_id
from perdure.dialects.playbook.values import Patch
from perdure.kernel import events as e
from perdure.kernel import jsontext
from perdure.kernel.values import Instant, Payload

Told = tuple[str, str, dict[str, Any], dict[str, Any]]
"""An event's name, the id of what it is about, its payload, and what else its envelope says."""

_OUTCOMES = {"done": "success", "finished": "success", "processed": "success", "failed": "error", "cancelled": "error"}
_OUTCOMES |= {"discarded": "skipped", "paused": "paused", "pending": "paused", "waiting": "paused"}
_WORKERS = ("task.", "step.started", "loop.iteration.started", "loop.iteration.done", "loop.iteration.failed")


def chronicle(run: str, turns: Iterable[tuple[Instant, list[e.Event]]]) -> Iterator[dict[str, Any]]:
    """Every canonical event of a run, folded from its recorded turns."""
    body = b.Body()
    seq = 0
    for at, recorded in turns:
        for event in recorded:
            teller = _TELLERS.get(type(event))
            told = list(teller(body, event)) if teller is not None else []
            evolve(body, event)
            for name, about, payload, rest in told:
                seq += 1
                yield _envelope(run, seq, at, name, about, payload, rest)


def _envelope(
    run: str, seq: int, at: Instant, name: str, about: str, payload: dict[str, Any], rest: dict[str, Any]
) -> dict[str, Any]:
    return {
        "event_id": f"{run}/{seq}",
        "execution_id": run,
        "event_type": name,
        "timestamp": timestamp(at),
        "source": "worker" if name.startswith(_WORKERS) or name == "policy.task.evaluated" else "server",
        "seq": seq,
        "entity_type": name.partition(".")[0].replace("execution", "playbook"),
        "entity_id": about or run,
        "status": payload.pop("_status", None) or _OUTCOMES.get(name.rpartition(".")[2], "in_progress"),
        "payload": payload,
        **rest,
    }


# Tellers: what one recorded event says, before it changes the state.


def _requested(body: b.Body, event: e.RunStarted) -> Iterator[Told]:
    parent = None if event.parent is None else event.parent[0]
    yield "playbook.execution.requested", "", {"path": event.name, "parent_execution_id": parent}, {}


def _started(body: b.Body, event: p.WorkflowStarted) -> Iterator[Told]:
    if body.request is None:
        yield "playbook.request.evaluated", "", {"workload": _value(event.workload), "entry": event.entry.step}, {}
    yield "playbook.started", "", {}, {}
    yield "workflow.started", "", {"entry": event.entry.step}, {}
    yield from _created(event.entry, 0)


def _evaluated(body: b.Body, event: p.RequestEvaluated) -> Iterator[Told]:
    yield "playbook.request.evaluated", "", {"workload": _value(event.workload), "entry": event.entry}, {}


def _created(new: p.NewToken, parent: int) -> Iterator[Told]:
    rest = {"token_id": token_id(new.token), "step": new.step}
    payload = {
        "step": new.step,
        "args": _value(new.args),
        "parent_step_run_id": run_id(parent) if parent else None,
        "source_arc": new.arc if new.arc >= 0 else None,
    }
    yield "token.created", rest["token_id"], payload, rest
    if not new.gated and not new.branch:
        said = {"token_id": rest["token_id"], "allow": True, "matched_rule_index": None, "guard_errors": []}
        yield "policy.admit.evaluated", rest["token_id"], said, rest


def _admission(body: b.Body, event: p.AdmissionJudged) -> Iterator[Told]:
    token = token_id(event.token)
    rest = {"token_id": token, "step": body.tokens[event.token].step}
    said = {"token_id": token, "allow": event.allow, "matched_rule_index": _rule(event.rule)}
    yield "policy.admit.evaluated", token, {**said, "guard_errors": list(event.errors)}, rest
    if event.fate != "admitted":
        yield f"token.{event.fate}", token, {"reason": "denied"}, rest


def _dropped(body: b.Body, event: p.TokenDropped) -> Iterator[Told]:
    token = token_id(event.token)
    yield "token.discarded", token, {"reason": event.reason}, {"token_id": token, "step": body.tokens[event.token].step}


def _step_started(body: b.Body, event: p.StepStarted) -> Iterator[Told]:
    about = run_id(event.run)
    rest = {"step": body.tokens[event.token].step, "step_run_id": about, "token_id": token_id(event.token)}
    yield "step.scheduled", about, {"step_run_id": about}, rest
    yield "step.started", about, {"lease_epoch": 1}, rest
    if event.items is not None:
        yield "loop.started", about, {"total": event.total, "max_in_flight": event.limit}, rest


def _iteration(body: b.Body, event: p.IterationStarted) -> Iterator[Told]:
    rest = _run_rest(body, event.run, event.index)
    for verb in ("scheduled", "started"):
        yield f"loop.iteration.{verb}", rest["iteration_id"], {"index": event.index}, rest


def _attempt_started(body: b.Body, event: p.AttemptStarted) -> Iterator[Told]:
    about, rest = _task_rest(body, event.thread, event.label)
    if rest["attempt"] == 1:
        yield "task.started", about, {"label": event.label, "kind": event.kind}, rest
    yield "task.attempt.started", about, {"attempt": rest["attempt"]}, rest


def _attempt_ended(body: b.Body, event: p.AttemptEnded) -> Iterator[Told]:
    thread = body.threads[event.thread]
    about, rest = _task_rest(body, event.thread, "")
    outcome: dict[str, Any] = {"status": "ok" if event.error is None else "error", "error": _error(event.error)}
    if event.error is None and event.source == "given":
        outcome["result"] = _value(event.result)
    verb = "done" if event.error is None else "failed"
    rest["duration_ms"] = (event.at - thread.began) // 1000
    yield f"task.attempt.{verb}", about, {"attempt": rest["attempt"], "outcome": outcome}, rest


def _judged(body: b.Body, event: p.OutcomeJudged) -> Iterator[Told]:
    thread = body.threads[event.thread]
    about, rest = _task_rest(body, event.thread, event.label)
    keys = {"set_ctx": [key for key, _ in event.set_ctx], "set_iter": [key for key, _ in event.set_iter]}
    said = {"matched_rule_index": _rule(event.rule), "directive": event.directive, "guard_errors": list(event.errors)}
    yield "policy.task.evaluated", about, {**said, **keys}, rest
    if event.set_ctx and not event.keeps_back:
        yield _patched(event.set_ctx, "worker", "", rest, event.conflicts)
    assert thread.outcome is not None
    if event.is_visit or event.fate in ("done", "failed"):
        verb = "done" if thread.outcome.error is None else "failed"
        yield f"task.{verb}", about, {"attempts": thread.attempt, "error": _error(thread.outcome.error)}, rest
    if thread.index != b.ALONE and event.fate in ("done", "failed"):
        of_run = _run_rest(body, thread.run, thread.index)
        ended = {"index": thread.index, "error": _error(event.error)}
        yield f"loop.iteration.{event.fate}", of_run["iteration_id"], ended, of_run


def _step_ended(body: b.Body, event: p.StepEnded) -> Iterator[Told]:
    rest = _run_rest(body, event.run)
    if event.set_ctx:
        reason = "step set" if body.runs[event.run].loop is None else "loop merge"
        yield _patched(event.set_ctx, "server", reason, rest)
    if event.fanin:
        yield "loop.fanin.completed", rest["step_run_id"], {"status": event.fanin}, rest
    yield event.name, rest["step_run_id"], {"error": _error(event.error)}, rest


def _next(body: b.Body, event: p.NextEvaluated) -> Iterator[Told]:
    if not event.mode:
        return
    rest = _run_rest(body, event.run)
    arcs = [{"step": step, "matched": matched, "error": error or None} for step, matched, error in event.arcs]
    tokens = [token_id(new.token) for new in event.tokens]
    yield "next.evaluated", rest["step_run_id"], {"mode": event.mode, "arcs": arcs, "tokens": tokens}, rest
    if event.set_ctx:
        yield _patched(event.set_ctx, "server", "arc set", rest)
    for new in event.tokens:
        yield from _created(new, event.run)


def _patched(patch: Patch, principal: str, reason: str, rest: dict[str, Any], conflicts: tuple[str, ...] = ()) -> Told:
    values = {key: jsontext.decode(text) for key, text in patch}
    payload = {"keys": list(values), "values": values, "principal": principal, "reason": reason}
    return "ctx.patched", "", {**payload, "conflict": bool(conflicts)}, rest


def _from_outside(body: b.Body, event: p.CtxPatched) -> Iterator[Told]:
    yield _patched(event.set_ctx, event.by or "operator", event.reason, {})


def _waiting(body: b.Body, event: p.WorkflowWaiting) -> Iterator[Told]:
    tokens = [{"token_id": token_id(number), "reads": list(reads)} for number, reads in event.tokens]
    yield "workflow.waiting", "", {"tokens": tokens}, {}


def _quiesced(body: b.Body, event: p.WorkflowQuiesced) -> Iterator[Told]:
    yield "workflow.quiesced", "", {"status": event.status}, {}
    yield from _created(event.token, 0)


def _withdrawn(body: b.Body, event: p.RunWithdrawn) -> Iterator[Told]:
    rest = _run_rest(body, event.run)
    yield "command.cancelled", rest["step_run_id"], {}, rest


def _cancelled(body: b.Body, event: e.CancelRequested) -> Iterator[Told]:
    yield "execution.cancelled", "", {"reason": event.reason, "principal": event.by}, {}


def _finished(body: b.Body, event: p.WorkflowFinished) -> Iterator[Told]:
    status = {"success": "success", "partial": "success"}.get(event.status, "error")
    payload = {"status": event.status, "code": event.code or None, "branches": dict(body.branches), "_status": status}
    if body.stopped is not None:
        payload["error"] = _error(body.stopped)
    for name in ("workflow.finished", "playbook.finished", "playbook.processed"):
        yield name, "", dict(payload), {}


def _pause(body: b.Body, event: p.Paused | p.Resumed) -> Iterator[Told]:
    name = "playbook.paused" if isinstance(event, p.Paused) else "playbook.resumed"
    yield name, "", {"reason": event.reason, "principal": event.by}, {}


# What tellers share.


def _run_rest(body: b.Body, number: int, index: int = b.ALONE) -> dict[str, Any]:
    run = body.runs[number]
    rest: dict[str, Any] = {"step": run.step, "step_run_id": run_id(number), "token_id": token_id(run.token)}
    if index != b.ALONE:
        rest |= {"iteration": index, "iteration_id": f"{run_id(number)}/{index}"}
    return rest


def _task_rest(body: b.Body, number: int, label: str) -> tuple[str, dict[str, Any]]:
    thread = body.threads[number]
    rest = _run_rest(body, thread.run, thread.index)
    about = f"{rest.get('iteration_id', rest['step_run_id'])}/{thread.visits}"
    rest |= {"task_run_id": about, "attempt": thread.attempt}
    if label:
        rest["task"] = label
    return about, rest


def _rule(rule: int) -> int | str | None:
    return {b.ELSE: "else", b.NO_RULE: None}.get(rule, rule)


def _error(error: Error | None) -> dict[str, Any] | None:
    return None if error is None else error.data()


def _value(payload: Payload) -> Any:
    if isinstance(payload, bytes):
        return jsontext.decode(payload)
    return {"kind": "result_ref", "store": "eventlog", "meta": {"bytes": payload.size, "sha256": payload.digest.hex()}}


def _reached(body: b.Body, event: p.JoinReached) -> Iterator[Told]:
    token, step = token_id(event.token), body.tokens[event.token].step
    name, reason = ("token.discarded", "join_satisfied") if event.is_late else ("token.pending", "join")
    yield name, token, {"reason": reason}, {"token_id": token, "step": step}


def _joined(body: b.Body, event: p.JoinCompleted) -> Iterator[Told]:
    created, *rest = _created(event.token, body.tokens[event.last].parent)
    created[2]["joined"] = [token_id(number) for number in event.tokens]
    yield from (created, *rest)


def _not_joined(body: b.Body, event: p.JoinFailed) -> Iterator[Told]:
    for number in event.tokens:
        token = token_id(number)
        said = {"reason": "join_incomplete", "error": _error(event.error)}
        yield "token.discarded", token, said, {"token_id": token, "step": event.step}


_TELLERS: dict[type[e.Event], Callable[[b.Body, Any], Iterator[Told]]] = {
    e.RunStarted: _requested,
    p.RequestEvaluated: _evaluated,
    p.WorkflowStarted: _started,
    p.AdmissionJudged: _admission,
    p.TokenDropped: _dropped,
    p.StepStarted: _step_started,
    p.IterationStarted: _iteration,
    p.AttemptStarted: _attempt_started,
    p.AttemptEnded: _attempt_ended,
    p.OutcomeJudged: _judged,
    p.StepEnded: _step_ended,
    p.NextEvaluated: _next,
    p.CtxPatched: _from_outside,
    p.WorkflowWaiting: _waiting,
    p.WorkflowQuiesced: _quiesced,
    p.RunWithdrawn: _withdrawn,
    e.CancelRequested: _cancelled,
    p.WorkflowFinished: _finished,
    p.Paused: _pause,
    p.Resumed: _pause,
    p.JoinReached: _reached,
    p.JoinCompleted: _joined,
    p.JoinFailed: _not_joined,
}
