"""Where a run that failed can go on: each frame as it was before the failure, or the interruption, that it ends with.

A checkpoint is made when a frame begins to fail, and dropped when the failure is caught or the scope runs again. So a
run that ends well never pays for one. A redrive puts the frames back: what had finished stays, a call that failed or
was stopped is entered again, and a Flow that was called goes on inside, in the same way.
"""

from collections.abc import Callable
from copy import copy
from typing import Any

from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import (
    Body,
    Call,
    Checkpoint,
    FanOut,
    Frame,
    Kind,
    MiddlewareScope,
    Scope,
    Step,
)
from perdure.dialects.flow.state.values import Cell, Vars
from perdure.kernel import events as e

ROOT = 1


def keep(frame: Frame) -> None:
    """The frame begins to fail, or to unwind; what follows from that changes nothing of its checkpoint."""
    if frame.checkpoint is None:
        stack = [_copied(scope) for scope in frame.stack]
        frame.checkpoint = Checkpoint(
            stack, Vars(dict(frame.vars.cells)), frame.value, frame.rising, frame.failure, frame.passes
        )


def _copied(scope: Scope) -> Scope:
    """What is shared with the frame is moved into the checkpoint when the frame leaves the scope."""
    kept = copy(scope)
    match kept:
        case Step():
            kept.fan = None
        case Call():
            kept.fallen = None
        case MiddlewareScope():
            kept.undo, kept.bound = dict(kept.undo), dict(kept.bound)
    return kept


def leave_top(frame: Frame) -> None:
    """Pop the scope on top."""
    scope = frame.stack.pop()
    checkpoint, depth = frame.checkpoint, len(frame.stack)
    if checkpoint is None or depth >= len(checkpoint.stack):
        return
    match scope, checkpoint.stack[depth]:
        case Step(), Step() as kept if kept.number == scope.number:
            kept.fan = scope.fan
        case Call(), Call() as kept if kept.target == scope.target and kept.at == scope.at:
            kept.fallen = scope.fallen
            if kept.result is None and scope.answer is not None:
                kept.result, kept.accepted, kept.prepared = scope.answer, scope.accepted, None


def fallen(frame: Frame) -> Frame | None:
    """The frame as it was; None where it did not fail, or failed before anything of it ran."""
    kept = frame.checkpoint
    if kept is None:
        return None
    return Frame(
        frame.flow,
        frame.path,
        frame.owner,
        frame.index,
        frame.depth,
        frame.at,
        frame.input,
        kept.vars,
        kept.value,
        kept.rising,
        kept.failure,
        None,
        kept.passes,
        kept.stack,
    )


# Putting back.


def _run_reopened(body: Body, event: e.RunReopened) -> None:
    body.result = None
    if body.fallen is not None:
        frame, body.fallen = body.fallen, None
        _put_back(body, ROOT, frame)


def _run_forked(body: Body, event: e.RunForked) -> None:
    if event.input is None:
        return
    before, body.input = body.input, Cell(event.input)
    if body.fallen is not None:
        _replace_input(body.fallen, before, body.input)


def _replace_input(frame: Frame, before: Cell, input: Cell) -> None:
    """Of the root frame. A Step or an entry that has received the run's input unchanged receives the new one."""
    frame.input = input
    if frame.value.is_same(before):
        frame.value = input
    for scope in frame.stack:
        if not isinstance(scope, Call) and scope.input.is_same(before):
            scope.input = input
        if isinstance(scope, Step) and scope.shaped is not None and scope.shaped.is_same(before):
            scope.shaped = input
        if isinstance(scope, MiddlewareScope) and scope.output.is_same(before):
            scope.output = input


def _dispatch_reopened(body: Body, event: f.DispatchReopened) -> None:
    frame = body.frames[event.frame]
    step = frame.entered
    assert step.fan is not None
    del step.fan.again[event.index]
    step.fan.running[event.index] = None
    call = step.fan.calls[event.index]
    assert call.fallen is not None
    inner, call.fallen = call.fallen, None
    if not step.fan.can_move:
        body.dequeue(event.frame)
    _put_back(body, call.target, inner)


def _put_back(body: Body, number: int, frame: Frame) -> None:
    body.frames[number] = frame
    body.reopened[number] = None
    for scope in frame.stack:
        if isinstance(scope, MiddlewareScope):
            scope.timer, scope.woken = 0, False
    top = frame.stack[-1] if frame.stack else None
    match top:
        case Call(result=None, kind=Kind.FRAME, fallen=Frame() as inner):
            top.fallen = None
            _put_back(body, top.target, inner)
            return
        case Call(result=None):
            frame.stack.pop()  # it is entered again
        case Step():
            top.timer, top.woken = 0, False
            if top.fan is not None:
                _revive(top.fan)
        case _:
            pass
    body.enqueue(number)


def _revive(fan: FanOut) -> None:
    """Dispatches that were stopped start once more, and those that failed where the policy cannot be met without them.

    Those that have succeeded stay, and their arms do not run twice.
    """
    was_stopped, fan.unwinding, fan.cleanup_failed = fan.unwinding, False, -1
    for call in fan.calls.values():
        if call.answer is not None:
            call.result, call.imposed, call.answer = call.answer, None, None
    fan.successes = sum(call.result is not None and call.result.ok for call in fan.calls.values())
    is_met = fan.successes >= fan.need
    if not is_met or (was_stopped and fan.wait):
        stopped = [index for index, call in fan.calls.items() if call.imposed is not None or call.result is None]
        failed = [index for index, call in fan.calls.items() if call.result is not None and not call.result.ok]
        can_be_met = fan.successes + fan.total - (len(fan.calls) - len(stopped)) >= fan.need
        fan.decided = False
        for index in sorted(stopped if was_stopped and can_be_met else {*stopped, *failed}):
            call = fan.calls[index]
            if call.fallen is None:
                del fan.calls[index]
            else:
                call.result = call.accepted = call.imposed = call.window = None
                call.settled = True
            fan.again[index] = None
    for index in range(fan.arm):
        if index not in fan.again:
            fan.calls[index].settled = False
    fan.arm = 0
    fan.running = {}
    fan.resolved = sum(call.result is not None for call in fan.calls.values())


def _frame_renewed(body: Body, event: f.FrameRenewed) -> None:
    del body.reopened[event.frame]
    for renewed in event.entries:
        entry = body.frames[event.frame].stack[renewed.depth]
        assert isinstance(entry, MiddlewareScope)
        if renewed.memory is not None:
            entry.memory = Cell(renewed.memory)
        if renewed.metadata is not None:
            entry.metadata = Cell(renewed.metadata)
        if renewed.timer:
            entry.timer = renewed.timer
            body.bounds[renewed.timer] = (event.frame, renewed.depth)


CHANGES: dict[type[e.Event], Callable[[Body, Any], None]] = {
    e.RunReopened: _run_reopened,
    e.RunForked: _run_forked,
    f.DispatchReopened: _dispatch_reopened,
    f.FrameRenewed: _frame_renewed,
}
