"""StepRuns: their attempts, retries and restarts, and the cache lookup before the first attempt."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import LOGS_KEPT, Body, CacheUse, StepRun, StepState
from perdure.dialects.story.state.folding.steps import begin
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.kernel import events as e
from perdure.kernel.events import Event

CREATED = "StepRun created and awaiting processing"  # STY-118
SCHEDULED = "Scheduled"

_RUNNING, _RUNS = StoryPhase.RUNNING, Reason.RUNNING  # enum lookups are slow, and every step needs them


def _created(body: Body, event: s.StepRunCreated) -> None:
    state = begin(body, event.step, StoryPhase.PENDING, Reason.PENDING, CREATED, event.at)
    state.run = StepRun(body.life, event.key, event.engram, event.template, event.generation, event.at)
    state.run.arguments = event.arguments


def _launched(body: Body, event: s.StepLaunched) -> None:
    name, task, at = event.step, event.task, event.at
    state = begin(body, name, _RUNNING, _RUNS, SCHEDULED, at)
    state.run = StepRun(body.life, event.key, event.engram, event.template, event.generation, at, None, 1, at)
    state.task = task
    body.tasks[task] = name


def _timer_set(body: Body, event: e.TimerSet) -> None:
    """A timer that bounds a task is the deadline of the attempt."""
    step = body.tasks.get(event.task)
    if step is not None:
        body.steps[step].timer = event.timer
        body.timers[event.timer] = step


def _task_scheduled(body: Body, event: e.TaskScheduled) -> None:
    """The task's arguments are the step's resolved input: stored once, reused by every retry (STY-205)."""
    state = body.steps.get(event.path)
    if state is not None and state.run is not None:
        state.run.arguments = event.arguments
        state.run.execution = f"{event.task}.1"


def _attempt_started(body: Body, event: s.AttemptStarted) -> None:
    state = body.steps[event.step]
    run = _run(state)
    body.agenda.pop(event.step, None)
    body.timers.pop(state.poll, None)
    state.phase, state.reason, state.message = StoryPhase.RUNNING, Reason.RUNNING, SCHEDULED
    state.task, state.timer, state.poll = event.task, event.timer, 0
    run.attempt += 1
    run.began_at = event.at if run.began_at is None else run.began_at
    run.next_retry_at = None
    run.exit_code, run.exit_class, run.expired = None, "", False
    body.tasks[event.task] = event.step
    if event.timer:
        body.timers[event.timer] = event.step


def _retry_scheduled(body: Body, event: s.RetryScheduled) -> None:
    state = body.steps[event.step]
    run = _run(state)
    body.tasks.pop(state.task, None)
    body.timers.pop(state.timer, None)
    state.phase, state.reason, state.message = StoryPhase.PENDING, Reason.RETRY_SCHEDULED, event.message
    state.task, state.timer, state.poll = 0, 0, event.timer
    state.task_result = None
    run.retries, run.next_retry_at = event.retries, event.due
    run.last_failure, run.exit_code, run.exit_class = event.failure, event.exit_code, event.exit_class
    run.error = event.error
    run.expired = False
    body.timers[event.timer] = event.step


def _log_kept(body: Body, event: s.LogKept) -> None:
    run = body.steps[event.step].run if event.step in body.steps else None
    if run is not None:
        run.logs.append((event.attempt, event.body))
        del run.logs[:-LOGS_KEPT]


def _retry_hastened(body: Body, event: s.RetryHastened) -> None:
    state = body.steps[event.step]
    body.timers.pop(state.poll, None)
    state.poll = 0
    body.enqueue(event.step)


def _expired(body: Body, event: s.StepExpired) -> None:
    state = body.steps[event.step]
    _run(state).expired = True
    state.timer = 0


def _recalled(body: Body, event: s.StepRecalled) -> None:
    state = body.steps[event.step]
    _run(state).recalled = True
    state.message = event.message


def _cache_noted(body: Body, event: s.CacheNoted) -> None:
    _run(body.steps[event.step]).cached = CacheUse(event.entry, event.mode, event.ttl, event.status)


def _run(state: StepState) -> StepRun:
    assert state.run is not None
    return state.run


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    e.TaskScheduled: _task_scheduled,
    e.TimerSet: _timer_set,
    s.StepRunCreated: _created,
    s.StepLaunched: _launched,
    s.AttemptStarted: _attempt_started,
    s.RetryScheduled: _retry_scheduled,
    s.RetryHastened: _retry_hastened,
    s.LogKept: _log_kept,
    s.StepExpired: _expired,
    s.StepRecalled: _recalled,
    s.CacheNoted: _cache_noted,
}
