"""Threads: attempts, outcomes, directives, and what the end of an iteration means to its loop."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook import body as b
from perdure.dialects.playbook import events as p
from perdure.dialects.playbook.body import Body, Phase
from perdure.dialects.playbook.folding.tokens import patch_ctx
from perdure.dialects.playbook.values import NOTHING, Value
from perdure.kernel.events import Event


def open_thread(body: Body, number: int, run: b.StepRun, index: int) -> None:
    body.threads_made += 1
    body.threads[body.threads_made] = b.Thread(number, index)
    run.threads[body.threads_made] = None
    body.agenda[body.threads_made] = None


def forget_threads(body: Body, run: b.StepRun) -> None:
    for number in run.threads:
        thread = body.threads.pop(number)
        body.agenda.pop(number, None)
        body.awaited.pop(thread.number, None)
        body.attempt_bounds.pop(thread.timer, None)
    run.threads.clear()


def hold(body: Body, stored: p.Stored, result: Value, run: b.StepRun | None = None) -> None:
    """From now on references lead to this body; one of scope `step` lives no longer than its step-run (PBK-177)."""
    value = result if stored.payload is None else Value(stored.payload)
    body.held[stored.uri] = b.Held(value.closed(), stored.reference, stored.scope, stored.expires)
    if stored.scope == "step" and run is not None:
        run.passing.append(stored.uri)


def _attempt_started(body: Body, event: p.AttemptStarted) -> None:
    thread = body.threads[event.thread]
    thread.began = event.at
    thread.label = event.label
    thread.number = event.number
    thread.language = event.language
    thread.recipe = event.recipe
    thread.phase = Phase.WORKING
    body.agenda.pop(event.thread, None)
    if event.number:
        body.awaited[event.number] = event.thread
    if event.timer:
        thread.timer = event.timer
        body.attempt_bounds[event.timer] = event.thread
    tally = body.tallies[body.runs[thread.run].step]
    tally.task_attempts[event.label] = tally.task_attempts.get(event.label, 0) + 1
    if thread.attempt == 1:
        tally.task_runs[event.label] = tally.task_runs.get(event.label, 0) + 1


def _pipeline_restarted(body: Body, event: p.PipelineRestarted) -> None:
    """From the first task, with nothing of the pipeline left; what was applied to `ctx` stays (PBK-195)."""
    thread = body.threads[event.thread]
    body.awaited.pop(thread.number, None)
    body.attempt_bounds.pop(thread.timer, None)
    body.threads[event.thread] = b.Thread(
        thread.run, thread.index, visits=thread.visits + 1, epoch=thread.epoch, earlier=thread.visits
    )
    body.agenda[event.thread] = None


def _attempt_ended(body: Body, event: p.AttemptEnded) -> None:
    thread = body.threads[event.thread]
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
    for one in event.stored:
        hold(body, one, result, body.runs[thread.run])
    recipe = thread.prev_recipe if event.source == "prev" else thread.recipe
    thread.outcome = b.Outcome(
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
    thread.phase = Phase.JUDGING
    body.agenda[event.thread] = None


def _outcome_judged(body: Body, event: p.OutcomeJudged) -> None:
    thread = body.threads[event.thread]
    run = body.runs[thread.run]
    assert thread.outcome is not None
    body.agenda.pop(event.thread, None)
    if event.set_ctx and event.keeps_back:
        thread.patch += event.set_ctx
    elif event.set_ctx:
        patch_ctx(body, event.set_ctx, event.size, thread.run)
    if event.set_iter:
        thread.iter.assign(event.set_iter)
    if event.set_step:
        thread.local.assign(event.set_step)
    thread.results[event.label] = thread.outcome.result
    if thread.outcome.recipe is not None:
        thread.recipes[event.label] = thread.outcome.recipe
    else:
        thread.recipes.pop(event.label, None)
    run.attempt = thread.attempt
    if event.fate in ("done", "failed"):
        _end_thread(body, event, thread, run)
        return
    if event.is_visit:
        thread.prev = thread.outcome.result
        thread.prev_recipe = thread.outcome.recipe
        thread.attempt = 1
        thread.visits += 1
        thread.position = event.to
    else:
        thread.attempt += 1
    if event.timer:
        thread.phase = Phase.RESTING
        thread.number = event.timer
        body.awaited[event.timer] = event.thread
    else:
        thread.phase = Phase.READY
        body.agenda[event.thread] = None


def _end_thread(body: Body, event: p.OutcomeJudged, thread: b.Thread, run: b.StepRun) -> None:
    assert thread.outcome is not None
    del body.threads[event.thread]
    del run.threads[event.thread]
    loop = run.loop
    if loop is None:
        run.result = thread.outcome.result.closed() if event.fate == "done" else NOTHING
        run.error, run.label, run.visits = event.error, event.label, thread.visits
        run.local = thread.local
        body.closing[thread.run] = None
        return
    index = thread.index
    loop.active -= 1
    if event.fate == "done":
        loop.results[index] = thread.outcome.result.closed()
        loop.size += loop.results[index].size
        if thread.patch:
            loop.patches[index] = thread.patch
    elif event.repeats:
        loop.again.append(index)
        loop.retries[index] = loop.retries.get(index, 0) + 1
    else:
        _fail_iteration(loop, index, event)
    queue_loop(body, thread.run, loop)


def _fail_iteration(loop: b.LoopState, index: int, event: p.OutcomeJudged) -> None:
    loop.failed += 1
    loop.stopped = loop.stopped or event.stops
    if loop.lowest < 0 or index < loop.lowest:
        loop.lowest, loop.error, loop.label = index, event.error, event.label


def _iteration_started(body: Body, event: p.IterationStarted) -> None:
    run = body.runs[event.run]
    loop = run.loop
    assert loop is not None
    loop.active += 1
    if event.index == loop.next:
        loop.next += 1
        body.tallies[run.step].iterations += 1
    else:
        loop.again.remove(event.index)
    open_thread(body, event.run, run, event.index)
    queue_loop(body, event.run, loop)


def queue_loop(body: Body, number: int, loop: b.LoopState) -> None:
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
    p.OutcomeJudged: _outcome_judged,
    p.IterationStarted: _iteration_started,
}
