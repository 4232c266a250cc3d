"""Threads: attempts, outcomes, directives, and what the end of an iteration means to its loop."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.body import Body, ThreadPhase
from perdure.dialects.playbook.state.folding.births import open_thread
from perdure.dialects.playbook.state.folding.tokens import patch_ctx
from perdure.dialects.playbook.state.loop_state import CursorFrame, LoopState
from perdure.dialects.playbook.state.task_errors import Error
from perdure.dialects.playbook.state.values import NOTHING, Value
from perdure.kernel.events import Event
from perdure.kernel.json_values.values import Instant

_WORKING = ThreadPhase.WORKING  # access to members of an enumeration is slow, and every step needs these


def forget_threads(body: Body, run: b.StepRun) -> None:
    for number in run.threads:
        thread = body.threads.pop(number)
        run.stopped_threads[thread.index] = thread
        body.ready_threads.pop(number, None)
        body.awaited.pop(thread.number, None)
        body.attempt_bounds.pop(thread.timer, None)
    run.threads.clear()


def hold(body: Body, stored: p.Stored, result: Value, run: b.StepRun | None = None) -> None:
    """Make the body available to references; one of scope `step` is dropped with its step-run (PBK-177)."""
    value = result if stored.payload is None else Value(stored.payload)
    body.stored_bodies[stored.uri] = b.StoredBody(value.closed(), stored.reference, stored.scope, stored.expires)
    if stored.scope == "step" and run is not None:
        run.temporary_bodies.append(stored.uri)


def _attempt_started(body: Body, event: p.AttemptStarted) -> None:
    thread = body.threads[event.thread]
    _begin(body, event.thread, thread, event.label, event.at)
    thread.number = event.number
    thread.language = event.language
    thread.recipe = event.recipe
    if event.number:
        body.awaited[event.number] = event.thread
    if event.timer:
        thread.timer = event.timer
        body.attempt_bounds[event.timer] = event.thread


def _begin(body: Body, number: int, thread: b.PipelineThread, label: str, at: Instant) -> None:
    thread.began = at
    thread.label = label
    thread.phase = _WORKING
    body.ready_threads.pop(number, None)
    tally = body.tallies[body.runs[thread.run].step]
    attempts = tally.task_attempts
    attempts[label] = attempts.get(label, 0) + 1
    if thread.attempt == 1:
        runs = tally.task_runs
        runs[label] = runs.get(label, 0) + 1


def _pipeline_restarted(body: Body, event: p.PipelineRestarted) -> None:
    """Restart at the first task with an empty pipeline; what was applied to `ctx` stays (PBK-195)."""
    thread = body.threads[event.thread]
    body.awaited.pop(thread.number, None)
    body.attempt_bounds.pop(thread.timer, None)
    body.threads[event.thread] = b.PipelineThread(
        thread.run,
        thread.index,
        visits=thread.visits + 1,
        epoch=thread.epoch,
        earlier=thread.visits,
        charges=thread.charges,
    )
    body.ready_threads[event.thread] = None


def _attempt_ended(body: Body, event: p.AttemptEnded) -> None:
    thread = body.threads[event.thread]
    if event.label:
        body.seq += 1
        _begin(body, event.thread, thread, event.label, event.at)
        thread.number, thread.language, thread.recipe = 0, "", None
    match event.source:
        case "landed":
            assert thread.outcome is not None
            result = thread.outcome.result
        case "prev":
            result = thread.prev
        case _:
            result = Value(event.result)
    if event.reference is not None:
        result = Value(result.payload, reference=event.reference, is_open=event.opens)
    for stored in event.stored:
        hold(body, stored, result, body.runs[thread.run])
    recipe = thread.prev_recipe if event.source == "prev" else thread.recipe
    thread.outcome = b.TaskOutcome(
        result,
        event.error,
        event.extras,
        event.at - thread.began,
        event.at,
        recipe if event.error is None else None,
    )
    body.awaited.pop(thread.number, None)
    body.attempt_bounds.pop(thread.timer, None)
    thread.number = thread.timer = 0
    thread.storing = None
    thread.phase = ThreadPhase.JUDGING
    body.ready_threads[event.thread] = None


def _result_storing(body: Body, event: p.ResultStoring) -> None:
    thread = body.threads[event.attempt.thread]
    body.attempt_bounds.pop(thread.timer, None)
    thread.timer = 0
    thread.storing = event.attempt
    thread.number = event.number
    body.awaited[event.number] = event.attempt.thread


def _outcome_judged(body: Body, event: p.OutcomeJudged) -> None:
    thread = body.threads[event.thread]
    run = body.runs[thread.run]
    assert thread.outcome is not None
    body.ready_threads.pop(event.thread, None)
    if event.set_ctx and event.keeps_back:
        thread.patch += event.set_ctx
    elif event.set_ctx:
        patch_ctx(body, event.set_ctx, event.size, thread.run)
    if event.set_iter:
        thread.iter = thread.iter.assign_all(event.set_iter)
    if event.set_step:
        thread.local = thread.local.assign_all(event.set_step)
    _leave_result(thread, run, event.label, thread.outcome)
    if event.fate == "done":
        _finish(body, event.thread, thread, run, event.label, thread.outcome.result)
    elif event.fate == "failed":
        _fail(body, event, thread, run)
    elif event.is_visit:
        _visit(body, event.thread, thread, event.to, thread.outcome)
    else:
        thread.attempt += 1
        if event.timer:
            thread.phase = ThreadPhase.RESTING
            thread.number = event.timer
            body.awaited[event.timer] = event.thread
        else:
            thread.phase = ThreadPhase.READY
            body.ready_threads[event.thread] = None


def _leave_result(thread: b.PipelineThread, run: b.StepRun, label: str, outcome: b.TaskOutcome) -> None:
    """Later tasks of the pipeline find it under its label."""
    thread.results[label] = outcome.result
    if outcome.recipe is not None:
        thread.recipes[label] = outcome.recipe
    elif thread.recipes:
        thread.recipes.pop(label, None)
    run.attempt = thread.attempt


def _visit(body: Body, number: int, thread: b.PipelineThread, to: int, outcome: b.TaskOutcome) -> None:
    """The next task-run."""
    thread.prev = outcome.result
    thread.prev_recipe = outcome.recipe
    thread.attempt = 1
    thread.visits += 1
    thread.position = to
    thread.phase = ThreadPhase.READY
    body.ready_threads[number] = None


def _finish(body: Body, number: int, thread: b.PipelineThread, run: b.StepRun, label: str, result: Value) -> None:
    """The pipeline has ended."""
    del body.threads[number]
    del run.threads[number]
    result = result.closed()
    loop = run.loop
    if loop is None:
        _end_alone(body, thread, run, label, result, None)
        return
    if thread.index < b.ALONE:
        loop.claiming, loop.claimed = False, result
        queue_loop(body, thread.run, loop)
        return
    loop.active -= 1
    if loop.is_cursor:
        _finish_row(loop, thread.index)
    else:
        loop.results[thread.index] = result
        loop.size += result.size
    if thread.patch:
        loop.patches[thread.index] = thread.patch
    queue_loop(body, thread.run, loop)


def _fail(body: Body, event: p.OutcomeJudged, thread: b.PipelineThread, run: b.StepRun) -> None:
    del body.threads[event.thread]
    del run.threads[event.thread]
    loop = run.loop
    index = thread.index
    if loop is not None and index < b.ALONE:
        loop.claiming, loop.claims = False, loop.claims - 1  # a redrive repeats it, under the same key
        _stop_loop(loop, event.error, event.label)
        queue_loop(body, thread.run, loop)
        return
    if not event.repeats:
        thread.phase = ThreadPhase.FAILED
        run.stopped_threads[index] = thread
    if loop is None:
        _end_alone(body, thread, run, event.label, NOTHING, event.error)
        return
    loop.active -= 1
    if event.repeats:
        loop.repeats.append(index)
        loop.retries[index] = loop.retries.get(index, 0) + 1
    else:
        _fail_iteration(loop, index, event)
    queue_loop(body, thread.run, loop)


def _end_alone(
    body: Body, thread: b.PipelineThread, run: b.StepRun, label: str, result: Value, failed: Error | None
) -> None:
    """The only thread of its step-run has ended."""
    run.result, run.error, run.label, run.visits = result, failed, label, thread.visits
    run.local = thread.local
    body.closing[thread.run] = None


def _task_passed(body: Body, event: p.TaskPassed) -> None:
    pass_task(body, event.thread, event.label, event.at, event.to, event.is_last)


def pass_task(body: Body, number: int, label: str, at: Instant, to: int, is_last: bool) -> None:
    """The end of an attempt without rules; counts as two events."""
    body.seq += 1
    thread = body.threads[number]
    outcome = thread.outcome
    assert outcome is not None
    outcome.duration, outcome.at, outcome.recipe = at - thread.began, at, thread.recipe
    if thread.timer:
        body.attempt_bounds.pop(thread.timer, None)
    thread.number = thread.timer = 0
    run = body.runs[thread.run]
    _leave_result(thread, run, label, outcome)
    if is_last:
        _finish(body, number, thread, run, label, outcome.result)
    else:
        _visit(body, number, thread, to, outcome)


def end_only_thread(body: Body, number: int, label: str, at: Instant) -> None:
    """`pass_task` for the last task of a step-run without a loop."""
    thread = body.threads.pop(number)
    run, outcome = body.runs[thread.run], thread.outcome
    assert outcome is not None
    outcome.duration, outcome.at, outcome.recipe = at - thread.began, at, thread.recipe
    if thread.timer:
        body.attempt_bounds.pop(thread.timer, None)
    thread.number = thread.timer = 0
    del run.threads[number]
    result = outcome.result
    run.result = result.closed() if result.is_open else result
    run.error, run.label, run.visits, run.attempt = None, label, thread.visits, thread.attempt
    run.local = thread.local


def _fail_iteration(loop: LoopState, index: int, event: p.OutcomeJudged) -> None:
    loop.failed += 1
    loop.stopped = loop.stopped or event.stops
    if loop.lowest_failed < 0 or index < loop.lowest_failed:
        loop.lowest_failed, loop.error, loop.label = index, event.error, event.label


def _finish_row(loop: LoopState, index: int) -> None:
    """A frame is kept until all its rows are done: no loop holds more than it works on."""
    loop.done += 1
    first, frame = loop.frame_of(index)
    frame.left -= 1
    if not frame.left:
        del loop.frames[first]


def _stop_loop(loop: LoopState, failed: Error | None, label: str) -> None:
    loop.stopped, loop.claim_error, loop.label = True, failed, label


def _claim_started(body: Body, event: p.ClaimStarted) -> None:
    run = body.runs[event.run]
    loop = run.loop
    assert loop is not None
    loop.claims += 1
    loop.claiming = True
    open_thread(body, event.run, run, b.ALONE - loop.claims)
    queue_loop(body, event.run, loop)


def _frame_claimed(body: Body, event: p.FrameClaimed) -> None:
    loop = body.runs[event.run].loop
    assert loop is not None and loop.claimed is not None
    if event.error is not None:
        loop.claims -= 1  # a redrive repeats it, under the same key
        _stop_loop(loop, event.error, "")
    elif event.iterations:
        loop.frames[loop.total] = CursorFrame(loop.claimed, event.iterations)
        loop.total += event.iterations
    else:
        loop.drained = True
    loop.claimed = None
    queue_loop(body, event.run, loop)


def _iteration_started(body: Body, event: p.IterationStarted) -> None:
    run = body.runs[event.run]
    loop = run.loop
    assert loop is not None
    loop.active += 1
    if event.index == loop.next:
        loop.next += 1
        body.tallies[run.step].iterations += 1
    else:
        loop.repeats.remove(event.index)
    open_thread(body, event.run, run, event.index)
    queue_loop(body, event.run, loop)


def queue_loop(body: Body, number: int, loop: LoopState) -> None:
    if loop.is_over:
        body.looping.pop(number, None)
        body.closing[number] = None
    elif loop.can_start:
        body.looping[number] = None
    else:
        body.looping.pop(number, None)


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    p.AttemptStarted: _attempt_started,
    p.AttemptEnded: _attempt_ended,
    p.PipelineRestarted: _pipeline_restarted,
    p.ResultStoring: _result_storing,
    p.OutcomeJudged: _outcome_judged,
    p.TaskPassed: _task_passed,
    p.ClaimStarted: _claim_started,
    p.FrameClaimed: _frame_claimed,
    p.IterationStarted: _iteration_started,
}
