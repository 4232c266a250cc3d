"""Frames: opened by a call, interrupted as a whole, closed with what rose to their bottom."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.flow.run.interruption import BOTTOM, set_rising_cancellation
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import SINGLE, Body, Frame, Window, find_call
from perdure.dialects.flow.state.folding.calls import settle
from perdure.dialects.flow.state.folding.checkpoints import fallen, keep
from perdure.dialects.flow.state.values import NOTHING, Cell, Result, Vars
from perdure.kernel import events as e


def _frame_opened(body: Body, event: f.FrameOpened) -> None:
    depth, input = 0, body.input
    if event.owner >= 0:
        owner = body.frames[event.owner]
        call = find_call(owner, event.index)
        assert call.given is not None or call.received is not None
        input = call.given or call.received or NOTHING
        depth = owner.depth + len(owner.stack)
    cells = {name: Cell(payload) for name, payload in event.bound.items()}
    frame = Frame(event.flow, event.path, event.owner, event.index, depth, event.at, input, Vars(cells), input)
    if event.failure is not None:
        frame.rising = Result(False, Cell(event.failure))
    body.frames[event.frame] = frame
    body.opened = event.frame
    body.enqueue(event.frame)


def _frame_closed(body: Body, event: f.FrameClosed) -> None:
    frame = body.frames.pop(event.frame)
    body.dequeue(event.frame)
    assert frame.rising is not None
    if frame.owner < 0:
        body.result = frame.rising
        body.fallen = fallen(frame)
        return
    owner = body.frames[frame.owner]
    call = find_call(owner, frame.index)
    call.window = Window(frame.input, frame.vars, frame.at, event.at)
    if not frame.rising.ok:
        call.fallen = fallen(frame)
        if frame.index == SINGLE:
            keep(owner)
    settle(body, frame.owner, owner, call, frame.rising, event.at)


def _frame_interrupted(body: Body, event: f.FrameInterrupted) -> None:
    frame = body.frames[event.frame]
    keep(frame)
    imposed = Cell(event.imposed)
    if set_rising_cancellation(frame, BOTTOM, imposed):
        body.enqueue(event.frame)
    frame.interrupted = imposed


CHANGES: dict[type[e.Event], Callable[[Body, Any], None]] = {
    f.FrameOpened: _frame_opened,
    f.FrameClosed: _frame_closed,
    f.FrameInterrupted: _frame_interrupted,
}
