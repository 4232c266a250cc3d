"""Kernel events that are recorded before the dialect reacts: results, timers, permits."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.resources.labels import PARENT_STEP
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.folding.topologies import keep_packet_result, note_end, restart_workers
from perdure.kernel import events as e
from perdure.kernel.events import Event
from perdure.kernel.outcomes import Succeeded


def _task_ended(body: Body, event: e.TaskEnded) -> None:
    if body.topology is not None:
        note_end(body, event)
    _keep_result(body, event.task, event.outcome)


def _child_ended(body: Body, event: e.ChildEnded) -> None:
    if body.topology is not None:
        keep_packet_result(body, event)
    _keep_result(body, event.child, event.outcome)


def _keep_result(body: Body, number: int, outcome: Any) -> None:
    step = body.tasks.get(number)
    if step is not None and isinstance(outcome, Succeeded):
        body.steps[step].task_result = outcome.value


def _task_redelivered(body: Body, event: e.TaskRedelivered) -> None:
    if restart_workers(body, event):
        return
    step = body.tasks.get(event.task)
    run = body.steps[step].run if step is not None else None
    if run is not None and run.attempt:
        run.restarts += 1
        run.execution = f"{event.task}.{event.delivery}"


def _timer_fired(body: Body, event: e.TimerFired) -> None:
    step = body.timers.get(event.timer)
    is_deadline = event.timer == (body.timer if step is None else body.steps[step].timer)
    _forget_timer(body, event.timer)
    body.fired_timer = (step or "", is_deadline)
    if step is not None and not is_deadline:
        body.enqueue(step)


def _timer_dropped(body: Body, event: e.TimerDropped) -> None:
    _forget_timer(body, event.timer)


def _forget_timer(body: Body, timer: int) -> None:
    step = body.timers.pop(timer, None)
    if step is not None:
        state = body.steps[step]
        if state.timer == timer:
            state.timer = 0
        if state.poll == timer:
            state.poll = 0
    elif timer == body.timer:
        body.timer = 0


def _permit_granted(body: Body, event: e.PermitGranted) -> None:
    step = body.permits.get(event.permit)
    if step is not None and (step in body.unstarted or step in body.helping):
        state = body.steps[step]
        state.permits.append(event.permit)
        state.awaited = 0
        body.enqueue(step)


def _permit_released(body: Body, event: e.PermitReleased) -> None:
    step = body.permits.pop(event.permit, None)
    if step is not None:
        state = body.steps[step]
        state.permits = [permit for permit in state.permits if permit != event.permit]
        state.awaited = 0 if state.awaited == event.permit else state.awaited


def _child_started(body: Body, event: e.ChildStarted) -> None:
    body.launched.setdefault(event.labels.get(PARENT_STEP, ""), []).append(event.child)


def _run_reopened(body: Body, event: e.RunReopened) -> None:
    body.life = event.incarnation


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    e.TaskEnded: _task_ended,
    e.ChildStarted: _child_started,
    e.ChildEnded: _child_ended,
    e.TaskRedelivered: _task_redelivered,
    e.TimerFired: _timer_fired,
    e.TimerDropped: _timer_dropped,
    e.PermitGranted: _permit_granted,
    e.PermitReleased: _permit_released,
    e.RunReopened: _run_reopened,
}
