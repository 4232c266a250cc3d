"""Calls and the fan-outs made of them: entered, settled, left, interrupted."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import SINGLE, Body, Call, FanOut, Frame, Kind, Step, find_call
from perdure.dialects.flow.state.folding.checkpoints import keep, leave_top
from perdure.dialects.flow.state.folding.steps import leave_scope, step_left, top_step
from perdure.dialects.flow.state.folding.variables import bind, cells_of, optional_cell
from perdure.dialects.flow.state.values import ARRIVAL, NOTHING, Cell, Result
from perdure.kernel import events as e
from perdure.kernel.json_values.values import Instant

_MOCK, _FRAME = Kind.MOCK, Kind.FRAME  # access to members of an enumeration is slow, and every step needs these

_KINDS = tuple(Kind)


def fan_of(frame: Frame) -> FanOut:
    fan = top_step(frame).fan
    assert fan is not None
    return fan


def _add_call(frame: Frame, call: Call) -> None:
    if call.index == SINGLE:
        frame.stack.append(call)
    else:
        fan = fan_of(frame)
        fan.calls[call.index] = call
        fan.running[call.index] = None
        if call.index in fan.again:
            del fan.again[call.index]
        else:
            fan.started += 1


def _received(frame: Frame, index: int) -> Cell | None:
    if index == SINGLE:
        return frame.value
    step = top_step(frame)
    assert step.fan is not None
    return step.input if step.fan.elements is None else None


def _call_entered(body: Body, event: f.CallEntered) -> None:
    frame = body.frames[event.frame]
    input = None if event.given is None else body.cell(frame, event.given)
    received = _received(frame, event.index)
    kind = _KINDS[event.kind]
    call = Call(event.call, event.index, event.at, kind, event.target, received, input)
    if not event.ok and not event.target and event.index == SINGLE:
        keep(frame)
    _add_call(frame, call)
    if kind is _MOCK:
        call.metadata = optional_cell(event.metadata)
        echoed = input or received
        content = echoed if event.content is None else body.cell(frame, event.content)
        assert content is not None
        call.prepared = Result(event.ok, content)
        if not event.target:
            settle(body, event.frame, frame, call, call.prepared, event.at)
            return
    if kind is not _FRAME:
        body.waits[event.target] = (event.frame, event.index)
    dequeue_if_waiting(body, event.frame, frame)


def dequeue_if_waiting(body: Body, number: int, frame: Frame) -> None:
    top = frame.stack[-1]
    if isinstance(top, Call) or (isinstance(top, Step) and top.fan is not None and not top.fan.can_move):
        body.dequeue(number)


def _call_faulted(body: Body, event: f.CallFaulted) -> None:
    frame = body.frames[event.frame]
    result = Result(False, body.cell(frame, event.failure))
    if event.index == SINGLE:
        keep(frame)
        frame.rising = result
        return
    received = _received(frame, event.index)
    call = Call(event.call, event.index, event.at, Kind.MOCK, 0, received, None, settled=False)
    _add_call(frame, call)
    settle(body, event.frame, frame, call, result, event.at)


def _call_settled(body: Body, event: f.CallSettled) -> None:
    frame = body.frames[event.frame]
    call = find_call(frame, event.index)
    body.waits.pop(call.target, None)
    if event.content is None:
        result = call.prepared or Result(True, NOTHING)
    else:
        result = Result(event.ok, body.cell(frame, event.content))
    if not result.ok:
        _keep_before(body, frame, call)
    body.arrival = None
    settle(body, event.frame, frame, call, result, event.at)
    if event.is_left:
        _rise(frame, result)


def _keep_before(body: Body, frame: Frame, call: Call) -> None:
    """A call fails, or has stopped. What it was asked to stop and did all the same is not lost to a redrive."""
    if call.imposed is not None and body.arrival is not None and body.arrival.cell is not None:
        call.answer = Result(True, body.arrival.cell)
    if call.index == SINGLE:
        keep(frame)


def _step_answered(body: Body, event: f.StepAnswered) -> None:
    frame = body.frames[event.frame]
    result = Result(True, body.cell(frame, ARRIVAL))
    body.waits.pop(find_call(frame, SINGLE).target, None)
    body.arrival = None
    body.enqueue(event.frame)
    _rise(frame, result)
    step_left(body, event)


def _rise(frame: Frame, result: Result) -> None:
    leave_top(frame)
    frame.rising = result


def settle(body: Body, number: int, frame: Frame, call: Call, result: Result, at: Instant) -> None:
    call.result = result
    call.accepted = max(at, call.at)
    call.prepared = None
    if call.index == SINGLE:
        body.enqueue(number)
        return
    fan = fan_of(frame)
    fan.resolved += 1
    fan.successes += result.ok
    fan.running.pop(call.index, None)
    if fan.unwinding and call.imposed is not None and not call.imposed.is_same(result.cell):
        others = (fan.cleanup_failed, call.index)
        fan.cleanup_failed = call.index if fan.cleanup_failed < 0 else min(others)
    if fan.can_move:
        body.enqueue(number)
    else:
        body.dequeue(number)


def _call_left(body: Body, event: f.CallLeft) -> None:
    frame = body.frames[event.frame]
    call = find_call(frame, event.index)
    assert call.result is not None
    result = call.result if event.content is None else Result(event.ok, body.cell(frame, event.content))
    cells = cells_of(body, frame, event.bound) if event.bound else {}
    if event.index == SINGLE:
        if not result.ok:
            keep(frame)
        _rise(frame, result)
    else:
        call.result = result
        call.window = call.given = call.metadata = None
        fan_of(frame).arm = event.index + 1
    if cells:
        bind(frame, cells)


def _call_interrupted(body: Body, event: f.CallInterrupted) -> None:
    frame = body.frames[event.frame]
    call = find_call(frame, event.index)
    call.imposed = body.cell(frame, event.imposed)
    if event.index != SINGLE:
        _remove_last(fan_of(frame).running, event.index)
    dequeue_if_waiting(body, event.frame, frame)


def _remove_last(running: dict[int, None], index: int) -> None:
    """The call started last is interrupted first. `popitem` leaves no gap at the end that later lookups would skip."""
    last, _ = running.popitem()
    assert last == index


def _call_dropped(body: Body, event: f.CallDropped) -> None:
    leave_scope(body, event)


def _gather_began(body: Body, event: f.GatherBegan) -> None:
    frame = body.frames[event.frame]
    elements = None if event.elements is None else body.cell(frame, event.elements)
    top_step(frame).fan = FanOut(event.total, event.need, event.wait, event.limit, elements)


def _gather_decided(body: Body, event: f.GatherDecided) -> None:
    frame = body.frames[event.frame]
    fan = fan_of(frame)
    fan.decided = True
    dequeue_if_waiting(body, event.frame, frame)


def _fan_interrupted(body: Body, event: f.FanInterrupted) -> None:
    frame = body.frames[event.frame]
    fan = fan_of(frame)
    fan.decided = fan.unwinding = True
    dequeue_if_waiting(body, event.frame, frame)


CHANGES: dict[type[e.Event], Callable[[Body, Any], None]] = {
    f.CallEntered: _call_entered,
    f.CallFaulted: _call_faulted,
    f.CallSettled: _call_settled,
    f.StepAnswered: _step_answered,
    f.CallLeft: _call_left,
    f.CallInterrupted: _call_interrupted,
    f.CallDropped: _call_dropped,
    f.GatherBegan: _gather_began,
    f.GatherDecided: _gather_decided,
    f.FanInterrupted: _fan_interrupted,
}
