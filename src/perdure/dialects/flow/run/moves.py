"""What a Flow does next: the frame that was woken last makes one move.

interrupted?    leave the innermost scope                    (`unwinding`)
Result rising?  into the entry, Step or call on top; at the bottom the frame is complete
otherwise       descend: the next entry, the Step, its action, its call
"""

from perdure.dialects.flow.plan.program import Call as CallProgram
from perdure.dialects.flow.plan.program import Entry as EntryProgram
from perdure.dialects.flow.run import calls, deadlines, middleware_phases
from perdure.dialects.flow.run.interruption import boundary_of
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.run.root_frame import root_bindings
from perdure.dialects.flow.run.unwinding import unwind
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Body, Call, Entry, Position, Step
from perdure.dialects.flow.state.failures import Envelope, cancellation
from perdure.dialects.flow.steps import ACTIONS, catching
from perdure.kernel import jsontext
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Status, Succeeded
from perdure.kernel.turn import Turn

ROOT = 1


def advance(turn: Turn) -> bool:
    body: Body = turn.body
    if not body.opened:
        _open_root(turn)
        return True
    number = next(reversed(body.agenda), None)
    if number is None:
        return False
    before = len(turn.events)
    _move(Move(turn, number))
    assert len(turn.events) > before, "a move that changes nothing would be made for ever"
    return True


def _open_root(turn: Turn) -> None:
    bound, failure = root_bindings(turn)
    turn.emit(f.FrameOpened(ROOT, turn.program.root.site, turn.now, "", bound=bound, failure=failure))


def _move(move: Move) -> None:
    frame = move.frame
    boundary = boundary_of(frame) if frame.stack else None
    if boundary is not None:
        unwind(move, boundary)
    elif not frame.stack and frame.rising is not None:
        _close(move)
    elif not frame.stack:
        _descend(move, move.flow.outermost)
    elif frame.rising is not None:
        _rise(move)
    elif not deadlines.fire_overdue(move):
        _go_on(move)


def _descend(move: Move, inner: EntryProgram | CallProgram | None) -> None:
    match inner:
        case EntryProgram():
            middleware_phases.open_entry(move, inner)
        case CallProgram():
            calls.enter(move, inner)
        case None:
            move.emit(f.StepEntered(move.number, move.flow.entrypoint, move.now, move.next_step))


def _rise(move: Move) -> None:
    top = move.top
    match top:
        case Entry():
            middleware_phases.rise(move, top)
        case Step():
            ACTIONS[move.step_program(top).action].resolve(move, top)
        case Call():
            raise AssertionError("a call takes its Result from its target, nothing rises into it")


def _go_on(move: Move) -> None:
    top = move.top
    match top:
        case Entry():
            program = move.program.entries[top.site]
            if top.position is Position.WAITING:
                move.emit(f.GapEnded(move.number, move.now))
            else:
                _descend(move, program.cleanup if top.position is Position.CLEANING else program.inner)
        case Step() if top.failed is not None:
            catching.catch(move, top)
        case Step():
            ACTIONS[move.step_program(top).action].advance(move, top)
        case Call():
            calls.leave(move, top)


def _close(move: Move) -> None:
    frame = move.frame
    result = frame.rising
    assert result is not None
    if frame.owner >= 0:
        move.emit(f.FrameClosed(move.number, move.now))
        return
    if result.ok:
        end: tuple[Status, Outcome] = (Status.SUCCEEDED, Succeeded(result.cell.kept(move.turn)))
    else:
        end = ending(result.cell.read(move.turn))
    move.emit(f.FrameClosed(move.number, move.now))
    move.turn.end(*end)


def ending(envelope: Envelope) -> tuple[Status, Outcome]:
    """How the kernel and other languages see a failure Result."""
    message = envelope.get("message", "")
    details = jsontext.encode(envelope["details"]) if "details" in envelope else None
    previous = jsontext.encode(envelope["previous"]) if isinstance(envelope.get("previous"), dict) else None
    failed = Failed(envelope["code"], message, envelope.get("retryable"), details, previous)
    match envelope["type"]:
        case "cancellation":
            return Status.CANCELLED, Cancelled(message)
        case "timeout":
            return Status.TIMED_OUT, failed
        case _:
            return Status.FAILED, failed


def interrupt_root(turn: Turn, envelope: Envelope | None = None) -> None:
    """External cancellation: operator, deadline, engine limit are all this one case (MWL-557)."""
    body: Body = turn.body
    if not body.opened:
        turn.end(*ending(envelope or cancellation()))
    elif ROOT in body.frames and body.frames[ROOT].interrupted is None:
        turn.emit(f.FrameInterrupted(ROOT, turn.keep(jsontext.encode(envelope or cancellation()))))
