"""The execution as a whole: requested, started, waiting, paused, cancelled, finished."""

from collections.abc import Callable, Iterator
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.names import timestamp, token_id
from perdure.dialects.playbook.views.history.entries import Told, View, error_of, of_token, patched, rule_of, told
from perdure.dialects.playbook.views.history.tokens import created
from perdure.kernel import events as e
from perdure.kernel.values import Payload, Ref, digest


def _requested(view: View, event: e.RunStarted) -> Iterator[Told]:
    view.document = event.program.hex()
    parent = None if event.parent is None else event.parent[0]
    payload = event.input.digest if isinstance(event.input, Ref) else digest(event.input)
    said = {"path": event.name, "payload_sha256": payload.hex(), "parent_execution_id": parent}
    yield Told("playbook.execution.requested", "", said, {})


def _started(view: View, event: p.WorkflowStarted) -> Iterator[Told]:
    entry = event.entry.step
    if view.body.request is None:
        yield _evaluation(view, event.workload, entry)
    yield Told("playbook.started", "", {"entry": entry}, {})
    yield Told("workflow.started", "", {"entry": entry}, {})
    if event.ctx:
        yield patched(event.ctx, "request", "seed", {})
    for one in event.stored:
        yield Told("result.stored", one.uri, {"reference": told(one.reference or b"null")}, {})
    yield from created(event.entry, 0)


def _evaluated(view: View, event: p.RequestEvaluated) -> Iterator[Told]:
    """Where a keychain is to be resolved first (PBK-180)."""
    yield _evaluation(view, event.workload, event.entry)


def _evaluation(view: View, workload: Payload, entry: str) -> Told:
    said = {"content_sha256": view.document, "workload": told(workload), "entry": entry}
    return Told("playbook.request.evaluated", "", said, {})


def _from_outside(view: View, event: p.CtxPatched) -> Iterator[Told]:
    yield patched(event.set_ctx, event.by or "operator", event.reason, {})


def _waiting(view: View, event: p.WorkflowWaiting) -> Iterator[Told]:
    tokens = []
    for number, reads in event.tokens:
        token = view.body.tokens[number]
        tokens.append({**of_token(number, token.step), "decision": _decision(token.decision), "reads": list(reads)})
    yield Told("workflow.waiting", "", {"tokens": tokens}, {})


def _decision(last: b.Decision | None) -> dict[str, Any] | None:
    if last is None:
        return None
    return {"allow": last.allow, "matched_rule_index": rule_of(last.rule), "guard_errors": list(last.errors)}


def _quiesced(view: View, event: p.WorkflowQuiesced) -> Iterator[Told]:
    yield Told("workflow.quiesced", "", {"status": event.status, "token_id": token_id(event.token.token)}, {})
    yield from created(event.token, 0)


def _cancelled(view: View, event: e.CancelRequested) -> Iterator[Told]:
    yield Told("execution.cancelled", "", {"reason": event.reason, "principal": event.by}, {})


def _finished(view: View, event: p.WorkflowFinished) -> Iterator[Told]:
    status = "success" if event.status in ("success", "partial") else "error"
    said: dict[str, Any] = {"status": event.status, "code": event.code or None, "branches": dict(view.body.branches)}
    if view.body.stopped is not None:
        said["error"] = error_of(view.body.stopped)
    for name in ("workflow.finished", "playbook.finished", "playbook.processed"):
        yield Told(name, "", dict(said), {}, status=status)


def _pause(view: View, event: p.Paused | p.Resumed) -> Iterator[Told]:
    name = "playbook.paused" if isinstance(event, p.Paused) else "playbook.resumed"
    yield Told(name, "", {"reason": event.reason, "principal": event.by}, {})


def _declined(view: View, event: e.InputDeclined) -> Iterator[Told]:
    said = {"kind": event.kind, "key": event.key, "arrived": timestamp(event.arrived), "reason": event.reason}
    yield Told("input.declined", "", {**said, "principal": event.by}, {}, status="skipped")


TELLERS: dict[type[e.Event], Callable[[View, Any], Iterator[Told]]] = {
    e.RunStarted: _requested,
    p.RequestEvaluated: _evaluated,
    p.WorkflowStarted: _started,
    p.CtxPatched: _from_outside,
    p.WorkflowWaiting: _waiting,
    p.WorkflowQuiesced: _quiesced,
    e.CancelRequested: _cancelled,
    p.WorkflowFinished: _finished,
    p.Paused: _pause,
    p.Resumed: _pause,
    e.InputDeclined: _declined,
}
