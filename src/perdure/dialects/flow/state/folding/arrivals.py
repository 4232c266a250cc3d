"""Events of the kernel: the start, and ends of timers, tasks and child runs."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.flow.state.body import GAP, SLEEP, Arrival, Body, MiddlewareScope, Step
from perdure.dialects.flow.state.values import Cell
from perdure.kernel import events as e
from perdure.kernel.outcomes import Outcome, Succeeded


def _run_started(body: Body, event: e.RunStarted) -> None:
    body.input = Cell(event.input)


def _timer_fired(body: Body, event: e.TimerFired) -> None:
    bound = body.bounds.pop(event.timer, None)
    if bound is not None:
        _owner(body, *bound).timer = 0
        body.arrival = Arrival(*bound, is_bound=True)
        return
    if event.timer not in body.waits:
        return  # the grace period of a child: handled by the kernel
    number, index = body.waits.pop(event.timer)
    top = body.frames[number].stack[-1]
    if index in (SLEEP, GAP):
        assert isinstance(top, Step | MiddlewareScope)
        top.woken = True
        top.timer = 0
        body.arrival = None
        body.enqueue(number)
    else:
        body.arrival = Arrival(number, index)


def _timer_dropped(body: Body, event: e.TimerDropped) -> None:
    bound = body.bounds.pop(event.timer, None)
    if bound is None:
        body.waits.pop(event.timer, None)
    else:
        _owner(body, *bound).timer = 0


def _owner(body: Body, frame: int, depth: int) -> MiddlewareScope:
    owner = body.frames[frame].stack[depth]
    assert isinstance(owner, MiddlewareScope)
    return owner


def _task_ended(body: Body, event: e.TaskEnded) -> None:
    body.arrival = Arrival(*body.waits.pop(event.task), event.outcome, cell=_value_cell(event.outcome))


def _child_ended(body: Body, event: e.ChildEnded) -> None:
    body.arrival = Arrival(*body.waits.pop(event.child), event.outcome, event.status, cell=_value_cell(event.outcome))


def _value_cell(outcome: Outcome) -> Cell | None:
    return Cell(outcome.value) if isinstance(outcome, Succeeded) else None


CHANGES: dict[type[e.Event], Callable[[Body, Any], None]] = {
    e.RunStarted: _run_started,
    e.TimerFired: _timer_fired,
    e.TimerDropped: _timer_dropped,
    e.TaskEnded: _task_ended,
    e.ChildEnded: _child_ended,
}
