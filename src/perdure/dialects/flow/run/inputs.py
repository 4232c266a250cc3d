"""How a Flow reacts to inputs: ends of tasks, timers and child runs, and a cancel."""

from perdure.dialects.flow.run import calls, deadlines, moves
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state.body import Body
from perdure.dialects.flow.state.failures import cancellation
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.turn import Turn

_ENDS = (e.TaskEnded, e.TimerFired, e.ChildEnded)


def accept(turn: Turn, input: i.Input) -> None:
    match input:
        case i.Cancel(reason):
            moves.interrupt_root(turn, cancellation(message=reason) if reason else cancellation())
        case i.TaskResult() | i.TaskLost() | i.TimerDue() | i.ChildResult():
            _on_end(turn)
        case i.TaskReport():
            turn.answer = i.Accepted(b"null")


def _on_end(turn: Turn) -> None:
    """React to what the kernel has just recorded as the end of a task, a timer or a child run."""
    arrival = turn.body.arrival
    if not turn.events or type(turn.events[-1]) not in _ENDS:
        return  # a task was redelivered: not an attempt, nothing to do (MWL-709)
    if arrival is None:
        return  # the end of a sleep or a gap: its frame is queued already
    if arrival.is_bound:
        deadlines.on_deadline(turn, arrival.frame, arrival.index)
    else:
        calls.on_result(Move(turn, arrival.frame), arrival.index, arrival.outcome, arrival.status, turn.arrived)


def end_exhausted(turn: Turn, reason: str, count: int) -> None:
    """The run made too many moves, or caught too many failures, without outside input, or uses values too large."""
    verb = "caught" if reason == "failures" else "made"
    message = f"the run {verb} {count} {reason} without any outside input"
    if reason == "bytes":
        message = f"the run uses values of {count} bytes at once"
    envelope = cancellation(message=message, details={"reason": reason, "limit": count})
    body: Body = turn.body
    root = body.frames.get(moves.ROOT)
    if root is not None and root.interrupted is not None:
        turn.end(*moves.status_and_outcome(envelope))  # it does not end even when interrupted
    else:
        moves.interrupt_root(turn, envelope)
