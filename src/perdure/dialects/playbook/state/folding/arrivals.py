"""Events of the kernel: tasks, children and timers that ended."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.body import Body, ThreadPhase
from perdure.dialects.playbook.state.values import NOTHING, Value
from perdure.kernel import events as e
from perdure.kernel.events import Event
from perdure.kernel.outcomes import Succeeded


def _task_ended(body: Body, event: e.TaskEnded) -> None:
    _on_result(body, body.awaited.pop(event.task, 0), event.outcome)


def _child_ended(body: Body, event: e.ChildEnded) -> None:
    _on_result(body, body.awaited.pop(event.child, 0), event.outcome)


def _on_result(body: Body, number: int, outcome: Any) -> None:
    """Keep the outcome with its thread; the next move interprets it."""
    body.ended_thread = number
    if number:
        thread = body.threads[number]
        if thread.storing is not None:
            return  # the outcome of its tool stays
        value = Value(outcome.value) if isinstance(outcome, Succeeded) else NOTHING
        thread.outcome = b.TaskOutcome(value, None, None, 0, 0)


def _task_redelivered(body: Body, event: e.TaskRedelivered) -> None:
    number = body.awaited.get(event.task)
    if number is not None:
        body.threads[number].epoch += 1
        body.threads[number].charges += event.charged


def _task_cleared(body: Body, event: e.TaskCleared) -> None:
    number = body.awaited.get(event.task)
    if number is not None:
        body.threads[number].charges -= event.uncharged


def _timer_fired(body: Body, event: e.TimerFired) -> None:
    number = body.awaited.pop(event.timer, 0)
    if number:
        thread = body.threads[number]
        thread.number = 0
        thread.phase = ThreadPhase.READY
        body.ready_threads[number] = None


def _timer_dropped(body: Body, event: e.TimerDropped) -> None:
    body.awaited.pop(event.timer, None)
    if event.timer == body.wait_timer:
        body.wait_timer = 0


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    e.TaskEnded: _task_ended,
    e.ChildEnded: _child_ended,
    e.TaskRedelivered: _task_redelivered,
    e.TaskCleared: _task_cleared,
    e.TimerFired: _timer_fired,
    e.TimerDropped: _timer_dropped,
}
