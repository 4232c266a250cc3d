"""What a Flow does next: the frame that was queued last makes one move.

interrupted?    leave the innermost scope                    (`unwind`)
Result rising?  into the entry, Step or call on top; at the bottom the frame is complete
otherwise       descend: the next entry, the Step, its action, its call
"""

from typing import Any

from perdure.dialects.flow.plan.program import MiddlewareEntry as EntryProgram
from perdure.dialects.flow.plan.program import PlannedCall as CallProgram
from perdure.dialects.flow.plan.program import Program
from perdure.dialects.flow.run import calls, deadlines, middleware_phases, redrive
from perdure.dialects.flow.run.interruption import boundary_of, cancellation_at
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Body, Call, MiddlewareScope, ScopePosition, Step
from perdure.dialects.flow.state.failures import Envelope, Fault, cancellation, invalid, matches
from perdure.dialects.flow.state.values import FAILURE, RISING, Result
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Status, Succeeded
from perdure.kernel.turn import Turn
from perdure.kernel.turn_budget import pay_for_each

# A Step that resolved to a failure: its catch clauses in order, the first match wins (MWL-505).


def catch(move: Move, step: Step) -> None:
    assert step.failed is not None and step.exited is not None
    clauses = move.step_program(step).catch
    envelope = step.failed.head(move.turn) if clauses else {}
    pay_for_each(len(clauses))
    for index, clause in enumerate(clauses):
        if not matches(clause.match or {}, envelope):
            continue
        scope = move.step_scope(step, step.exited, Result(False, step.failed))
        try:
            output, bound = scope.evaluate_to_carry(clause.output), scope.bindings(clause.assign)
        except Fault as fault:
            # A new failure over the one being handled; this Step's clauses do not see it (O-09).
            move.emit(f.StepEnded(move.number, False, move.chain_onto(fault.envelope, "failure")))
        else:
            move.turn.caught += 1
            move.emit(f.StepCaught(move.number, index, clause.next, move.now, move.next_step, output, bound))
        return
    move.emit(f.StepEnded(move.number, False, FAILURE))


# Leaving interrupted scopes from the inside out: targets stop, established entries run `onAlways`, nothing else.


def unwind(move: Move, boundary: int) -> None:
    """One move outward, up to the owner of the interruption."""
    top = move.top
    if len(move.frame.stack) - 1 == boundary:
        assert isinstance(top, MiddlewareScope)
        _end_unwinding(move, top, boundary)
        return
    match top:
        case MiddlewareScope():
            middleware_phases.leave(move, top)
        case Call():
            _leave_call(move, top)
        case Step():
            _leave_step(move, top)


def _end_unwinding(move: Move, owner: MiddlewareScope, boundary: int) -> None:
    """Conversion (MWL-555): the bound's own cancellation, if unchanged, becomes the failure that explains it.

    If something further out interrupts too, it takes over here, and nothing is converted (MWL-712).
    """
    arrived = move.frame.rising
    assert arrived is not None and owner.fired is not None and owner.explanation is not None
    is_bare = owner.fired.is_same(arrived.cell)
    outer = boundary_of(move.frame, below=boundary)
    if not is_bare:
        content = arrived.cell.to_payload(move.turn)
    elif outer is None:
        content = owner.explanation.payload
    else:
        content = cancellation_at(move.frame, outer).to_payload(move.turn)
    move.emit(f.BoundConverted(move.number, content))


def _leave_call(move: Move, call: Call) -> None:
    if call.result is None:
        calls.interrupt(move, call, RISING)
        return
    # A Result accepted before the interruption is dropped with its scope; one that came out of the target's own
    # unwind goes on upward, so that a converted timeout does not hide a failed cleanup (O-25).
    content = call.result.cell.to_payload(move.turn) if call.imposed is not None else None
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
        content = None if failed is None or failed.result is None else failed.result.cell.to_payload(move.turn)
        move.emit(f.StepDropped(move.number, content))


# The root frame: the platform is its caller and may supply arguments (MWL-075).


def root_bindings(turn: Turn) -> tuple[dict[str, Payload], Payload | None]:
    program: Program = turn.program
    options: dict[str, Any] = jsontext.decode(turn.state.options)
    arguments = options.get("args", {})
    parameters = program.root.parameters
    try:
        if not isinstance(arguments, dict):
            raise invalid("arguments must be an object", "", arguments)
        parameters.validate(arguments, "arguments of the run")
    except Fault as fault:
        return {}, turn.keep(jsontext.encode(fault.envelope))
    bound = {**parameters.defaults, **arguments}
    return {name: turn.keep(jsontext.encode(value)) for name, value in bound.items()}, None


ROOT = 1


def advance(turn: Turn) -> bool:
    body: Body = turn.body
    if not body.opened:
        _open_root(turn)
        return True
    if body.reopened:
        redrive.renew(Move(turn, next(iter(body.reopened))))
        return True
    number = next(reversed(body.agenda), None)
    if number is None:
        return False
    before = len(turn.events)
    _move(Move(turn, number))
    assert len(turn.events) > before, "a move without events would be repeated forever"
    return True


def _open_root(turn: Turn) -> None:
    bound, failure = root_bindings(turn)
    turn.emit(f.FrameOpened(ROOT, turn.program.root.site, turn.now, "", bound=bound, failure=failure))


def _move(move: Move) -> None:
    frame = move.frame
    may_unwind = frame.interrupted is not None or move.program.entries  # nothing else interrupts what is in a frame
    boundary = boundary_of(frame) if may_unwind and frame.stack else None
    if boundary is not None:
        unwind(move, boundary)
    elif not frame.stack and frame.rising is not None:
        _close(move)
    elif not frame.stack:
        _descend(move, move.flow.outermost)
    elif frame.rising is not None:
        _rise(move)
    elif not deadlines.fire_overdue(move):
        _continue(move)


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
        case MiddlewareScope():
            middleware_phases.rise(move, top)
        case Step():
            move.step_program(top).action.resolve(move, top)
        case Call():
            raise AssertionError("a call takes its Result from its target, nothing rises into it")


def _continue(move: Move) -> None:
    top = move.top
    match top:
        case MiddlewareScope():
            program = move.program.entries[top.site]
            if top.position is ScopePosition.WAITING:
                move.emit(f.GapEnded(move.number, move.now))
            else:
                _descend(move, program.cleanup if top.position is ScopePosition.CLEANING else program.inner)
        case Step() if top.failed is not None:
            catch(move, top)
        case Step():
            move.step_program(top).action.advance(move, top)
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
        end: tuple[Status, Outcome] = (Status.SUCCEEDED, Succeeded(result.cell.to_payload(move.turn)))
    else:
        end = status_and_outcome(result.cell.read(move.turn))
    move.emit(f.FrameClosed(move.number, move.now))
    move.turn.end(*end)


def status_and_outcome(envelope: Envelope) -> tuple[Status, Outcome]:
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
    """External cancellation, by an operator, a deadline or an engine limit (MWL-557)."""
    body: Body = turn.body
    if not body.opened:
        turn.end(*status_and_outcome(envelope or cancellation()))
    elif ROOT in body.frames and body.frames[ROOT].interrupted is None:
        turn.emit(f.FrameInterrupted(ROOT, turn.keep(jsontext.encode(envelope or cancellation()))))
