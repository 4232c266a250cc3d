"""How a Playbook handles inputs: ends of tasks and child runs, timers, control messages, cancellation."""

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.plan.program import Admission, Program, Step, Task
from perdure.dialects.playbook.run import ctx_patches, ends, keychain_resolution, redrive, starts
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import Error, error
from perdure.dialects.playbook.state.values import Patch
from perdure.dialects.playbook.tools.kind import end_attempt, error_kind, failure
from perdure.dialects.playbook.tools.playbook import wrap_result
from perdure.dialects.playbook.values import lent_references, result_uploads, results
from perdure.dialects.playbook.values.references import attempt_uri
from perdure.expressions.jinja import Guard
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.documents.problems import guess
from perdure.kernel.execution import Execution
from perdure.kernel.input_recording import describe_end
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.outcomes import Code, Failed, Outcome, Status, Succeeded
from perdure.kernel.turn import Turn

# The common case: a task without rules succeeded. What follows in its pipeline is decided at once, as one event.


def pass_without_rules(turn: Turn, number: int, step: Step, task: Task) -> bool:
    """Pass on the result of a thread's task unchanged if no rule applies to it; returns whether it was passed on."""
    body: b.Body = turn.body
    program: Program = turn.program
    thread = body.threads[number]
    run = body.runs[thread.run]
    assert thread.outcome is not None
    result = thread.outcome.result
    if task.policy is not None or result.size > task.result.inline_max:
        return False
    to = thread.position + 1
    is_last = to == len(step.tasks)
    if not is_last and thread.visits >= program.bounds.max_task_visits:
        return False
    if thread.timer:
        turn.drop_timer(thread.timer)
    if not is_last or step.loop is not None or step.set or run.timers:
        turn.emit(p.TaskPassed(number, task.label, turn.now, to, is_last))
        return True
    uri, keeps = "", False
    if not result.is_null:
        uri = attempt_uri(turn.execution.id, task, thread.run, b.ALONE, thread.visits, thread.attempt)
        keeps = program.reads_references
    turn.emit(p.StepPassed(thread.run, number, task.label, turn.now, to, uri, keeps))
    return True


TIMED_OUT = "EXECUTION_TIMEOUT"
ENDS = (e.TaskEnded, e.ChildEnded)


def accept(turn: Turn, entry: i.Input) -> None:
    if type(entry) is i.TaskResult:  # nearly always
        _on_end(turn)
        return
    match entry:
        case i.Cancel(reason):
            ends.cancel(turn, reason)
        case i.TaskResult() | i.TaskLost() | i.ChildResult():
            _on_end(turn)
        case i.TimerDue(timer):
            _on_timer(turn, timer)
        case i.Steer(verb, body, _, by):
            _steer(turn, verb, jsontext.decode(turn.text(body)), by)
        case i.Reopen():
            redrive.reopen(turn)
        case i.TaskReport():
            turn.answer = i.Accepted(b"null")


def end_exhausted(turn: Turn, reason: str, count: int) -> None:
    code, message = Code.MOVES_EXHAUSTED, f"{count} {reason} without outside input"
    if reason == "bytes":
        code, message = Code.RESULT_TOO_LARGE, f"values of {count} bytes are used at once"
    failed = error("limit", message, code)
    if turn.body.stopped is None:
        ends.stop(turn, failed, is_failure=True)
    else:
        turn.emit(p.WorkflowFinished("failed", code))
        turn.end(Status.FAILED, Failed(code, failed.message, retryable=False))


def _on_end(turn: Turn) -> None:
    """A task or child has ended: record what that means in the language."""
    body: b.Body = turn.body
    event = turn.events[-1] if turn.events else None
    if isinstance(event, e.TaskEnded) and not body.begun and keychain_resolution.is_awaited(turn, event.task):
        keychain_resolution.on_result(turn, event.outcome)
        return
    if isinstance(event, e.TaskRedelivered):
        _restart_pipeline(turn, event)
        return
    number = body.ended_thread
    if not number or not isinstance(event, ENDS):
        return  # delivered again, or its step-run has ended meanwhile
    program: Program = turn.program
    thread = body.threads[number]
    step = program.steps[body.runs[thread.run].step]
    position = thread.position
    task = step.tasks[position] if position >= 0 else step.task_at(position)  # a call would be paid by every step
    if thread.storing is not None:
        _on_stored(turn, number, thread.storing, event.outcome)
        return
    tool_result = tools.kind_of(task.kind).on_result(event.outcome, turn.text)
    if tool_result is tools.UNCHANGED and not thread.language and pass_without_rules(turn, number, step, task):
        return
    if thread.language and isinstance(event.outcome, Succeeded):
        child = turn.execution.child_id(thread.number)
        tool_result = tools.ToolResult(result=wrap_result(child, turn.text(event.outcome.value)))
    extras = jsontext.encode(tool_result.extras) if tool_result.extras else None
    if tool_result.error is not None and tool_result.error.code == Code.DELIVERIES_EXHAUSTED:
        attempt = results.attempt_failed(turn, number, _lost_too_often(thread, event.outcome), extras)
    elif tool_result.error is not None:
        attempt = results.attempt_failed(turn, number, tool_result.error, extras)
    elif tool_result.result is not None:
        stored = lent_references.adopt(turn, tool_result.lent, tool_result.whole)
        attempt = results.attempt_ended(turn, number, "given", tool_result.result, extras, stored)
    else:
        assert thread.outcome is not None
        payload = thread.outcome.result.payload
        attempt = results.attempt_ended(turn, number, "landed", payload, extras, stays_here=tool_result.opens)
    turn.drop_timer(thread.timer)
    if tool_result.opens:
        attempt = msgspec.structs.replace(attempt, opens=attempt.reference is not None)
        turn.emit(attempt)
    else:
        end_attempt(turn, task, attempt)


def _on_stored(turn: Turn, number: int, attempt: p.AttemptEnded, outcome: Outcome) -> None:
    """The body of a result is in its object store, or cannot be: then the attempt has failed."""
    if isinstance(outcome, Succeeded):
        turn.emit(result_uploads.stored_attempt(turn, attempt, outcome.value))
        return
    kind = error_kind(outcome.code) if isinstance(outcome, Failed) else "cancelled"
    turn.emit(results.attempt_failed(turn, number, failure(outcome, kind, "STORE_NOT_AVAILABLE", source="result")))


def _lost_too_often(thread: b.PipelineThread, outcome: Outcome) -> Error:
    """The kernel counts lost deliveries per task; this is the sum over the pipeline."""
    reason = outcome.message.partition("; ")[2] if isinstance(outcome, Failed) else ""
    message = f"its process was lost {thread.charges + 1} times while nothing else was running there; {reason}"
    return error("lease_lost", message, Code.DELIVERIES_EXHAUSTED, source=thread.label)


def _restart_pipeline(turn: Turn, event: e.TaskRedelivered) -> None:
    """A worker was lost: its task is delivered again, or its whole pipeline starts again (PBK-195)."""
    body: b.Body = turn.body
    program: Program = turn.program
    number = body.awaited.get(event.task)
    if number is None:
        return
    thread = body.threads[number]
    if not program.steps[body.runs[thread.run].step].restarts or thread.visits == 1:
        return
    turn.cancel_task(event.task, "its pipeline starts again")
    turn.drop_timer(thread.timer)
    turn.emit(p.PipelineRestarted(number, event.reason))


def _on_timer(turn: Turn, timer: int) -> None:
    """A time limit was reached; the end of a retry delay needs no event."""
    body: b.Body = turn.body
    if timer == body.wait_timer and body.waiting:
        turn.emit(p.WaitExpired())
    elif timer in body.token_bounds:
        starts.expire_token(turn, body.token_bounds[timer])
    elif timer in body.attempt_bounds:
        ends.interrupt(turn, body.attempt_bounds[timer])
    elif timer in body.bounds:
        run = body.bounds[timer]
        if run:
            ends.expire(turn, run)
        elif not body.begun:
            ends.end_at_once(turn, TIMED_OUT, "the execution did not end in time")
        else:
            ends.time_out(turn)


# Messages of operators.


def _steer(turn: Turn, verb: str, document: Any, by: str) -> None:
    reason = document.get("reason", "") if isinstance(document, dict) else ""
    match verb:
        case "patch":
            patch = _patch(document)
            turn.emit(p.CtxPatched(patch, ctx_patches.measure(turn.body, patch), by, reason))
        case "pause":
            turn.emit(p.Paused(by, reason))
        case _:
            turn.emit(p.Resumed(by, reason))


def _patch(document: dict[str, Any]) -> Patch:
    return tuple((name, jsontext.encode(value)) for name, value in document["ctx"].items())


def remarks(execution: Execution, verb: str, body: Any) -> list[str]:
    """Names that a patch sets and no guard reads: nothing will be decided differently, so they may be misspelt."""
    if verb != "patch":
        return []
    program: Program = execution.program
    read: set[str] = set()
    for guard in _guards(program):
        members = guard.reads.members.get("ctx", frozenset())
        if members is None:
            return []
        read |= members | guard.reads.names  # in profile "io" a bare name may be a key of ctx
    names = dict.fromkeys(str(name).removeprefix("ctx.").partition(".")[0] for name in body.get("ctx") or {})
    return [
        f"warning: no guard of this document reads ctx.{name}{guess(name, sorted(read))}"
        for name in names
        if name not in read
    ]


def _guards(program: Program) -> Iterator[Admission | Guard]:
    for step in program.steps.values():
        if step.admission is not None:
            yield step.admission
        for arc in step.router.arcs if step.router is not None else ():
            if arc.when is not None:
                yield arc.when
        for task in step.all_tasks:
            for rule in task.policy.rules if task.policy is not None else ():
                if rule.when is not None:
                    yield rule.when


def refusal(execution: Execution, message: i.Signal | i.Steer | i.Reopen) -> str | None:
    """Why a control message cannot be accepted now."""
    match message:
        case i.Signal():
            return "a Playbook does not accept signals; patch its ctx instead"
        case i.Reopen():
            return redrive.why_not_reopened(execution, message)
        case i.Steer(verb) if execution.state.status.is_final:
            return describe_end(execution)
        case i.Steer("patch") if (stopped := execution.body.stopped) is not None and stopped.code == TIMED_OUT:
            return f"{stopped.message}; its ctx is not read any more"
        case i.Steer("patch", body):
            return _why_no_patch(execution.body, body)
        case i.Steer("pause"):
            return "the run is already paused" if execution.body.paused else None
        case i.Steer("resume"):
            return None if execution.body.paused else "the run is not paused"
        case i.Steer("redrive"):
            return "the run is open; only a run that has ended can be redriven"
        case i.Steer(verb):
            return f"a Playbook does not support {verb!r}"


def _why_no_patch(body: b.Body, body_text: Payload) -> str | None:
    if not isinstance(body_text, bytes):
        return "a patch may have 64 KiB; pass larger data by reference"
    document = jsontext.decode(body_text)
    if not isinstance(document, dict) or not isinstance(document.get("ctx"), dict) or not document["ctx"]:
        return 'a patch is {"ctx": {"name": value, …}}'
    if not set(document) <= {"ctx", "reason"}:
        return "a patch may change ctx only"
    if not all(all(name.split(".")) for name in document["ctx"]):
        return "a name in ctx must not be empty"
    patch = _patch(document)
    try:
        ctx_patches.check_values(patch, "ctx")
        ctx_patches.measure(body, patch)
    except ctx_patches.BadPatch as bad:
        return bad.problem.message
    return None
