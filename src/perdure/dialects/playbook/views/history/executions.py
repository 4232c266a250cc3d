"""The execution as a whole: requested, started, waiting, paused, cancelled, finished."""

from collections.abc import Callable, Iterator
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.names import run_id, timestamp, token_id
from perdure.dialects.playbook.views.history.entries import (
    HistoryEntry,
    HistoryState,
    error_of,
    patch_entry,
    rule_of,
    token_ids,
    value_of,
)
from perdure.dialects.playbook.views.history.tokens import token_created
from perdure.kernel import events as e
from perdure.kernel.json_values.values import Payload, Ref, digest


def _requested(view: HistoryState, event: e.RunStarted) -> Iterator[HistoryEntry]:
    view.document = event.program.hex()
    parent = None if event.parent is None else event.parent[0]
    payload = event.input.digest if isinstance(event.input, Ref) else digest(event.input)
    details = {"path": event.name, "payload_sha256": payload.hex(), "parent_execution_id": parent}
    yield HistoryEntry("playbook.execution.requested", "", details, {})


def _started(view: HistoryState, event: p.WorkflowStarted) -> Iterator[HistoryEntry]:
    entry = event.entry.step
    if view.body.request is None:
        yield _evaluation(view, event.workload, entry)
    yield HistoryEntry("playbook.started", "", {"entry": entry}, {})
    yield HistoryEntry("workflow.started", "", {"entry": entry}, {})
    if event.ctx:
        yield patch_entry(event.ctx, "request", "seed", {})
    for stored in event.stored:
        yield HistoryEntry("result.stored", stored.uri, {"reference": value_of(stored.reference or b"null")}, {})
    yield from token_created(event.entry, 0)


def _evaluated(view: HistoryState, event: p.RequestEvaluated) -> Iterator[HistoryEntry]:
    """Where a keychain is to be resolved first (PBK-180)."""
    yield _evaluation(view, event.workload, event.entry)


def _evaluation(view: HistoryState, workload: Payload, entry: str) -> HistoryEntry:
    details = {"content_sha256": view.document, "workload": value_of(workload), "entry": entry}
    return HistoryEntry("playbook.request.evaluated", "", details, {})


def _from_outside(view: HistoryState, event: p.CtxPatched) -> Iterator[HistoryEntry]:
    yield patch_entry(event.set_ctx, event.by or "operator", event.reason, {})


def _waiting(view: HistoryState, event: p.WorkflowWaiting) -> Iterator[HistoryEntry]:
    tokens = []
    for number, reads in event.tokens:
        token = view.body.tokens[number]
        tokens.append({**token_ids(number, token.step), "decision": _decision(token.decision), "reads": list(reads)})
    yield HistoryEntry("workflow.waiting", "", {"tokens": tokens}, {})


def _decision(last: b.AdmissionDecision | None) -> dict[str, Any] | None:
    if last is None:
        return None
    return {"allow": last.allow, "matched_rule_index": rule_of(last.rule), "guard_errors": list(last.errors)}


def _quiesced(view: HistoryState, event: p.WorkflowQuiesced) -> Iterator[HistoryEntry]:
    yield HistoryEntry("workflow.quiesced", "", {"status": event.status, "token_id": token_id(event.token.token)}, {})
    yield from token_created(event.token, 0)


def _cancelled(view: HistoryState, event: e.CancelRequested) -> Iterator[HistoryEntry]:
    yield HistoryEntry("execution.cancelled", "", {"reason": event.reason, "principal": event.by}, {})


def _finished(view: HistoryState, event: p.WorkflowFinished) -> Iterator[HistoryEntry]:
    status = "success" if event.status in ("success", "partial") else "error"
    details: dict[str, Any] = {"status": event.status, "code": event.code or None, "branches": dict(view.body.branches)}
    if view.body.stopped is not None:
        details["error"] = error_of(view.body.stopped)
    for name in ("workflow.finished", "playbook.finished", "playbook.processed"):
        yield HistoryEntry(name, "", dict(details), {}, status=status)


def _pause(view: HistoryState, event: p.Paused | p.Resumed) -> Iterator[HistoryEntry]:
    name = "playbook.paused" if isinstance(event, p.Paused) else "playbook.resumed"
    yield HistoryEntry(name, "", {"reason": event.reason, "principal": event.by}, {})


def _redriven(view: HistoryState, event: p.WorkflowReopened) -> Iterator[HistoryEntry]:
    steps = [{"step": run.step, "step_run_id": run_id(number)} for number, run in view.body.runs.items()]
    yield HistoryEntry("playbook.redriven", "", {"steps": steps}, {})


def _declined(view: HistoryState, event: e.InputDeclined) -> Iterator[HistoryEntry]:
    details = {"kind": event.kind, "key": event.key, "arrived": timestamp(event.arrived), "reason": event.reason}
    yield HistoryEntry("input.declined", "", {**details, "principal": event.by}, {}, status="skipped")


def _migrated(view: HistoryState, event: e.RunMigrated) -> Iterator[HistoryEntry]:
    details = {"document": event.program.hex(), "before": event.before.hex(), "mapping": event.mapping}
    yield HistoryEntry("playbook.migrated", "", {**details, "undoes": event.undoes, "principal": event.by}, {})


TELLERS: dict[type[e.Event], Callable[[HistoryState, Any], Iterator[HistoryEntry]]] = {
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
    p.WorkflowReopened: _redriven,
    e.InputDeclined: _declined,
    e.RunMigrated: _migrated,
}
