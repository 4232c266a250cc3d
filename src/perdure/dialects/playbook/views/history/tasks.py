"""Task-runs: attempts, outcomes, decisions of rules, lost leases."""

from collections.abc import Callable, Iterator
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import Error, error
from perdure.dialects.playbook.state.values import Value
from perdure.dialects.playbook.views.history.entries import (
    WORKER,
    HistoryEntry,
    HistoryState,
    brief_value_of,
    error_of,
    is_fanout,
    patch_entry,
    result_of,
    rule_of,
    run_ids,
    task_ids,
    value_of,
    whole_patch,
)
from perdure.kernel import events as e
from perdure.kernel.ids import child_run
from perdure.kernel.json_values import jsontext

SEALED = jsontext.encode({"sealed": True})  # arguments that are completed at the worker, with secrets


def _scheduled(view: HistoryState, event: e.TaskScheduled) -> Iterator[HistoryEntry]:
    view.arguments[event.task] = SEALED if event.sealed else event.arguments
    return iter(())


def _child_started(view: HistoryState, event: e.ChildStarted) -> Iterator[HistoryEntry]:
    view.children.add(event.child)
    return iter(())


def _attempt_started(view: HistoryState, event: p.AttemptStarted) -> Iterator[HistoryEntry]:
    rest = task_ids(view.body, event.thread, event.label)
    about = rest["task_run_id"]
    inputs = view.arguments.pop(event.number, b"null")
    if rest["attempt"] == 1:
        payload = {"label": event.label, "kind": event.kind, "inputs": brief_value_of(inputs)}
        yield HistoryEntry("task.started", about, payload, rest, "worker")
    started: dict[str, Any] = {"attempt": rest["attempt"]}
    if event.number in view.children:
        view.children.remove(event.number)
        assert view.run is not None
        started["child_execution_id"] = child_run(view.run, event.number)
    yield HistoryEntry("task.attempt.started", about, started, rest, "worker")


def _storing(view: HistoryState, event: p.ResultStoring) -> Iterator[HistoryEntry]:
    """`result.stored` is told when the object is there, with the end of the attempt."""
    view.arguments.pop(event.number, None)
    return iter(())


def _attempt_ended(view: HistoryState, event: p.AttemptEnded) -> Iterator[HistoryEntry]:
    thread = view.body.threads[event.thread]
    rest = task_ids(view.body, event.thread)
    about = rest["task_run_id"]
    for stored in event.stored:
        yield HistoryEntry(
            "result.stored", stored.uri, {"reference": value_of(stored.reference or b"null")}, rest, "worker"
        )
    outcome: dict[str, Any] = {"status": "ok" if event.error is None else "error", "error": error_of(event.error)}
    outcome["result"] = None if event.error is not None else _result(thread, event)
    rest = {**rest, "duration_ms": (event.at - thread.began) // 1000}
    verb = "done" if event.error is None else "failed"
    yield HistoryEntry(f"task.attempt.{verb}", about, {"attempt": rest["attempt"], "outcome": outcome}, rest, "worker")


def _result(thread: b.PipelineThread, event: p.AttemptEnded) -> Any:
    if event.reference is not None:
        return value_of(event.reference)
    if event.source == "prev":
        return result_of(thread.prev)
    landed = thread.outcome.result if event.source == "landed" and thread.outcome is not None else Value(event.result)
    return result_of(landed)


def _judged(view: HistoryState, event: p.OutcomeJudged) -> Iterator[HistoryEntry]:
    thread = view.body.threads[event.thread]
    assert thread.outcome is not None
    rest = task_ids(view.body, event.thread, event.label)
    about = rest["task_run_id"]
    keys = {"set_ctx": [key for key, _ in event.set_ctx], "set_iter": [key for key, _ in event.set_iter]}
    payload = {
        "matched_rule_index": rule_of(event.rule),
        "directive": event.directive,
        "guard_errors": list(event.errors),
    }
    yield HistoryEntry("policy.task.evaluated", about, {**payload, **keys}, rest, "worker")
    if event.set_ctx and not event.keeps_back:
        yield patch_entry(
            whole_patch(view, event.set_ctx), f"worker:{WORKER}", "", rest, conflict=bool(event.conflicts)
        )
    if event.is_visit or event.fate in ("done", "failed"):
        yield _task_over(thread, rest, thread.outcome.error, result_of(thread.outcome.result))
    if thread.index > b.ALONE and event.fate in ("done", "failed"):
        yield _iteration_over(view, thread, event.error, event.repeats)


def _task_over(thread: b.PipelineThread, rest: dict[str, Any], failed: Error | None, result: Any) -> HistoryEntry:
    verb = "done" if failed is None else "failed"
    outcome = {"status": "ok" if failed is None else "error", "error": error_of(failed)}
    outcome["result"] = result if failed is None else None
    payload = {"attempts": thread.attempt, "outcome": outcome, "error": outcome["error"]}
    return HistoryEntry(f"task.{verb}", rest["task_run_id"], payload, rest, "worker")


def _iteration_over(
    view: HistoryState, thread: b.PipelineThread, failed: Error | None, repeats: bool = False
) -> HistoryEntry:
    rest = run_ids(view.body, thread.run, thread.index)
    kind = "shard" if is_fanout(view.body.runs[thread.run]) else "iteration"
    payload: dict[str, Any] = {"index": thread.index, "error": error_of(failed)}
    if failed is None and thread.outcome is not None:
        payload["result"] = result_of(thread.outcome.result.closed())
    if repeats:
        payload["repeated"] = True
    return HistoryEntry(
        f"loop.{kind}.{'done' if failed is None else 'failed'}", rest["iteration_id"], payload, rest, "worker"
    )


def abandoned_entries(view: HistoryState, run: b.StepRun, failed: Error | None) -> Iterator[HistoryEntry]:
    """Entries that end what was open in a step-run when it was ended from outside."""
    failed = failed or error("cancelled", "the step-run was withdrawn")  # as in histories shown before
    for number in run.threads:
        thread = view.body.threads[number]
        rest = task_ids(view.body, number)
        if thread.phase is b.ThreadPhase.WORKING:
            outcome = {"status": "error", "error": error_of(failed), "result": None}
            payload = {"attempt": thread.attempt, "outcome": outcome}
            yield HistoryEntry("task.attempt.failed", rest["task_run_id"], payload, rest)
        if thread.phase is not b.ThreadPhase.READY or thread.attempt > 1:
            yield _task_over(thread, rest, failed, None)
        if thread.index > b.ALONE:
            yield _iteration_over(view, thread, failed)


def _redelivered(view: HistoryState, event: e.TaskRedelivered) -> Iterator[HistoryEntry]:
    number = view.body.awaited.get(event.task)
    if number is None:
        return
    rest = task_ids(view.body, number)
    about = rest["parent_id"]
    epoch = rest["lease_epoch"]
    lost = {"worker": WORKER, "reason": event.reason}
    yield HistoryEntry("command.released", about, lost, rest)
    payload = {"worker": WORKER, "expires_at": None}
    yield HistoryEntry("command.claimed", about, payload, {**rest, "lease_epoch": epoch + 1})


def _restarted(view: HistoryState, event: p.PipelineRestarted) -> Iterator[HistoryEntry]:
    thread = view.body.threads[event.thread]
    rest = task_ids(view.body, event.thread)
    failed = error("lease_lost", event.reason)
    outcome = {"status": "error", "error": error_of(failed), "result": None}
    yield HistoryEntry(
        "task.attempt.failed", rest["task_run_id"], {"attempt": thread.attempt, "outcome": outcome}, rest
    )
    yield _task_over(thread, rest, failed, None)


TELLERS: dict[type[e.Event], Callable[[HistoryState, Any], Iterator[HistoryEntry]]] = {
    e.TaskScheduled: _scheduled,
    e.ChildStarted: _child_started,
    p.AttemptStarted: _attempt_started,
    p.ResultStoring: _storing,
    p.AttemptEnded: _attempt_ended,
    p.OutcomeJudged: _judged,
    e.TaskRedelivered: _redelivered,
    p.PipelineRestarted: _restarted,
}
