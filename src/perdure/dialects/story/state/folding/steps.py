"""Steps in the graph: skipped, queued, blocked, started, ended, and what their end makes possible."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.plan.helper_steps import IF
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import DEFAULT_REASONS, PHASES, Reason, StoryPhase
from perdure.kernel.events import Event
from perdure.kernel.json_values.values import Instant

_SUCCEEDED = StoryPhase.SUCCEEDED  # enum lookups are slow, and every step needs it


def _steps_skipped(body: Body, event: s.StepsSkipped) -> None:
    for name in event.steps:
        previous = body.steps.get(name)
        if previous is not None:
            _clear_waits(body, previous)
        started = event.at if previous is None else previous.started_at
        state = StepState(StoryPhase.SKIPPED, Reason.SKIPPED, event.message, started, event.at)
        state.follows_failure = event.follows_failure
        body.steps[name] = state
        _settle(body, name, state)


def _step_queued(body: Body, event: s.StepQueued) -> None:
    state = _waiting(body, event.step, StoryPhase.PENDING, Reason.PENDING, event.message, event.at)
    state.awaited = event.permit
    body.permits[event.permit] = event.step


def _step_blocked(body: Body, event: s.StepBlocked) -> None:
    state = _waiting(body, event.step, StoryPhase.BLOCKED, event.reason, event.message, event.at)
    state.awaited, state.poll = event.permit, event.poll
    if event.permit:
        body.permits[event.permit] = event.step
    if event.poll:
        body.timers[event.poll] = event.step


def _waiting(body: Body, name: str, phase: StoryPhase, reason: str, message: str, at: Instant) -> StepState:
    """A step that is ready but must not start yet: it has a state and counts as not started (STY-065)."""
    body.agenda.pop(name, None)
    state = body.steps.get(name)
    if state is None:
        state = body.steps[name] = StepState(phase, reason, message, at)
    state.phase, state.reason, state.message = phase, reason, message
    return state


def begin(body: Body, name: str, phase: StoryPhase, reason: str, message: str, at: Instant) -> StepState:
    """Mark a step as started: it can no longer be skipped."""
    body.agenda.pop(name, None)
    body.unstarted.pop(name, None)
    state = body.steps.get(name)
    if state is None:
        state = body.steps[name] = StepState(phase, reason, message, at)
    state.phase, state.reason, state.message = phase, reason, message
    return state


def _step_started(body: Body, event: s.StepStarted) -> None:
    phase = StoryPhase(event.phase)
    state = begin(body, event.step, phase, DEFAULT_REASONS[phase], event.message, event.at)
    state.timer, state.due, state.poll = event.timer, event.due, event.poll
    state.child, state.sub_run = event.child, event.sub_run
    for timer in (event.timer, event.poll):
        if timer:
            body.timers[timer] = event.step
    if event.child:
        body.tasks[event.child] = event.step
    if event.reads_steps:
        state.reads_steps = True
        body.waits[event.step] = None
    branches = body.plan.branches.get(event.step, ())
    for branch in branches:
        body.unstarted[branch] = None
        body.enqueue(branch)
    state.open = len(branches)


def _step_ended(body: Body, event: s.StepEnded) -> None:
    name, phase, at, source = event.step, PHASES[event.phase], event.at, event.source
    state = body.steps.get(name)
    if state is None:
        state = body.steps[name] = StepState(phase, event.reason, event.message, at)
    state.phase, state.reason, state.message = phase, event.reason, event.message
    state.finished_at = at
    state.interrupted = event.interrupted
    if source == "landed":
        state.output = state.task_result
    elif source == "given":
        state.output = event.output
    run = state.run
    if run is not None:
        run.error, run.exit_class, run.exit_code = event.error, event.exit_class, event.exit_code
        run.next_retry_at = None
        if source != "none":
            run.last_output_at = at
        if phase is not _SUCCEEDED and run.attempt:
            run.last_failure = event.message
    _clear_waits(body, state)
    _settle(body, name, state)


def _clear_waits(body: Body, state: StepState) -> None:
    """Clear everything that an ended step was waiting for."""
    if state.task:
        body.tasks.pop(state.task, None)
    if state.child:
        body.tasks.pop(state.child, None)
    if state.timer:
        body.timers.pop(state.timer, None)
    if state.poll:
        body.timers.pop(state.poll, None)
    if state.permits or state.awaited:
        for permit in (*state.permits, state.awaited):
            body.permits.pop(permit, None)
        state.permits = []
    if state.fan is not None:
        for child in state.fan.children:
            body.tasks.pop(child, None)
        state.fan = None
    state.task = state.timer = state.poll = state.awaited = 0
    state.due = state.task_result = None


def _help_wanted(body: Body, event: s.HelpWanted) -> None:
    """Start a helper. Its target waits: without a state before its `if` is decided, afterwards as Pending."""
    body.steps.pop(event.step, None)
    body.help[event.step], body.help_inputs[event.step] = event.key, event.inputs
    body.helping[event.step] = None
    body.agenda.pop(event.target, None)
    body.enqueue(event.step)
    if event.target in body.unstarted and event.purpose != IF:
        _waiting(body, event.target, StoryPhase.PENDING, Reason.PENDING, event.message, event.at)


def _helped(body: Body, helper: str) -> None:
    """A helper has ended: its target continues if it still waits."""
    target = body.plan.helped[helper]
    body.helping.pop(helper, None)
    state = body.steps.get(target)
    if target in body.unstarted or (state is not None and not state.phase.is_terminal):
        body.enqueue(target)


def _settle(body: Body, name: str, state: StepState) -> None:
    """Follow up on the end of a step: the end of its block or parent, or the start of its dependents."""
    plan = body.plan
    body.agenda.pop(name, None)
    body.unstarted.pop(name, None)
    if name in plan.helped:
        _helped(body, name)
        return
    body.stale.pop(name, None)
    if body.waits:
        body.waits.pop(name, None)
        for waiting in body.waits:
            body.stale[waiting] = None
    parent = plan.parents.get(name)
    if parent is not None:
        owner = body.steps[parent]
        owner.open -= 1
        if not owner.open:
            body.enqueue(parent)
        return
    body.open -= 1
    fails = state.phase.is_failure and name not in plan.allowed_to_fail and not state.interrupted
    if fails and plan.block_of[name] == "steps":
        body.failed[name] = None
    will_be_skipped = (fails or state.follows_failure) and body.block == "steps"
    for dependent in plan.dependents.get(name, ()):
        open_dependencies = body.waiting[dependent] = body.waiting[dependent] - 1
        if dependent in body.unstarted and (will_be_skipped or not open_dependencies):
            body.enqueue(dependent)


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    s.HelpWanted: _help_wanted,
    s.StepsSkipped: _steps_skipped,
    s.StepQueued: _step_queued,
    s.StepBlocked: _step_blocked,
    s.StepStarted: _step_started,
    s.StepEnded: _step_ended,
}
