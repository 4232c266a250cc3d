"""Leaving what was interrupted, innermost outward: targets stop, established entries run `onAlways`, nothing else.

The Result in flight is `frame.rising`; who interrupts is read off the stack (`interruption`).
"""

from perdure.dialects.flow.run import calls, middleware_phases
from perdure.dialects.flow.run.interruption import boundary_of, imposed_at
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Call, Entry, Step
from perdure.dialects.flow.state.values import RISING


def unwind(move: Move, boundary: int) -> None:
    """One move outward, up to the owner of the interruption."""
    top = move.top
    if len(move.frame.stack) - 1 == boundary:
        assert isinstance(top, Entry)
        _arrive(move, top, boundary)
        return
    match top:
        case Entry():
            middleware_phases.leave(move, top)
        case Call():
            _leave_call(move, top)
        case Step():
            _leave_step(move, top)


def _arrive(move: Move, owner: Entry, boundary: int) -> None:
    """The conversion seam (MWL-555): a bare cancellation of one's own becomes what it explained.

    When something further out interrupts as well, that takes over here, and nothing is converted (MWL-712).
    """
    arrived = move.frame.rising
    assert arrived is not None and owner.fired is not None and owner.explanation is not None
    is_bare = owner.fired.is_same(arrived.cell)
    outer = boundary_of(move.frame, below=boundary)
    if not is_bare:
        content = arrived.cell.kept(move.turn)
    elif outer is None:
        content = owner.explanation.payload
    else:
        content = imposed_at(move.frame, outer).kept(move.turn)
    move.emit(f.BoundConverted(move.number, content))


def _leave_call(move: Move, call: Call) -> None:
    if call.result is None:
        calls.interrupt(move, call, RISING)
        return
    # A Result accepted before the interruption is dropped with its scope; one that came out of the target's own
    # unwind goes on upward, for a failed cleanup must not hide behind a converted timeout (O-25).
    content = call.result.cell.kept(move.turn) if call.imposed is not None else None
    move.emit(f.CallDropped(move.number, content))


def _leave_step(move: Move, step: Step) -> None:
    fan = step.fan
    if fan is None:
        if step.timer:
            move.turn.drop_timer(step.timer)
        move.emit(f.StepDropped(move.number))
    elif not fan.unwinding:
        move.emit(f.FanInterrupted(move.number))
    elif fan.running:
        calls.interrupt(move, fan.calls[next(reversed(fan.running))], RISING)
    else:
        failed = fan.calls.get(fan.cleanup_failed)
        content = None if failed is None or failed.result is None else failed.result.cell.kept(move.turn)
        move.emit(f.StepDropped(move.number, content))
