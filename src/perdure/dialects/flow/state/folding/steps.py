"""Steps: entered, left for the next one, failed, caught, dropped."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.flow.plan.program import pointer
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import SLEEP, Body, Frame, Step
from perdure.dialects.flow.state.folding.checkpoints import keep, leave_top
from perdure.dialects.flow.state.folding.variables import bind, cells_of
from perdure.dialects.flow.state.values import Result
from perdure.kernel import events as e
from perdure.kernel.json_values.values import Instant


def _enter(body: Body, frame: Frame, name: str, at: Instant, number: int) -> None:
    frame.stack.append(Step(name, number, frame.passes, at, frame.value))
    frame.passes += 1
    body.steps = number
    if body.entered is not None:
        body.entered[pointer(frame.flow, "steps", name)] = None


def _step_entered(body: Body, event: f.StepEntered) -> None:
    _enter(body, body.frames[event.frame], event.name, event.at, event.number)


def top_step(frame: Frame) -> Step:
    top = frame.stack[-1]
    assert isinstance(top, Step)
    return top


def _step_shaped(body: Body, event: f.StepShaped) -> None:
    frame = body.frames[event.frame]
    step = top_step(frame)
    step.shaped = step.input if event.value is None else body.cell(frame, event.value)
    frame.value = step.shaped


def _move_on(body: Body, event: f.StepLeft | f.StepCaught | f.StepAnswered) -> Frame:
    frame = body.frames[event.frame]
    output = top_step(frame).input if event.output is None else body.cell(frame, event.output)
    cells = cells_of(body, frame, event.bound) if event.bound else {}
    frame.stack.pop()
    if cells:
        bind(frame, cells)
    frame.value = output
    frame.rising = None
    return frame


def step_left(body: Body, event: f.StepLeft | f.StepAnswered) -> None:
    frame = _move_on(body, event)
    frame.failure = None
    _enter(body, frame, event.next, event.at, event.number)


def _step_caught(body: Body, event: f.StepCaught) -> None:
    body.frames[event.frame].checkpoint = None
    _enter(body, _move_on(body, event), event.next, event.at, event.number)


def _step_failed(body: Body, event: f.StepFailed) -> None:
    frame = body.frames[event.frame]
    keep(frame)
    step = top_step(frame)
    step.failed = frame.failure = body.cell(frame, event.failure)
    step.exited = event.at
    frame.rising = None


def _step_ended(body: Body, event: f.StepEnded) -> None:
    frame = body.frames[event.frame]
    result = Result(event.ok, body.cell(frame, event.content))
    if not event.ok:
        keep(frame)
    leave_top(frame)
    frame.failure = None if event.ok else result.cell
    frame.rising = result


def _step_slept(body: Body, event: f.StepSlept) -> None:
    top_step(body.frames[event.frame]).timer = event.timer
    body.waits[event.timer] = (event.frame, SLEEP)
    body.dequeue(event.frame)


def _step_dropped(body: Body, event: f.StepDropped) -> None:
    leave_scope(body, event)


def leave_scope(body: Body, event: f.StepDropped | f.CallDropped) -> None:
    frame = body.frames[event.frame]
    if event.content is not None:
        frame.rising = Result(False, body.cell(frame, event.content))
    leave_top(frame)


CHANGES: dict[type[e.Event], Callable[[Body, Any], None]] = {
    f.StepEntered: _step_entered,
    f.StepShaped: _step_shaped,
    f.StepLeft: step_left,
    f.StepFailed: _step_failed,
    f.StepCaught: _step_caught,
    f.StepEnded: _step_ended,
    f.StepSlept: _step_slept,
    f.StepDropped: _step_dropped,
}
