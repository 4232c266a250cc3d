"""Deadlines. A bound fires at its instant, whether its timer or later work is processed first (MWL-703)."""

from perdure.dialects.flow.run.interruption import boundary_of
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Call, MiddlewareScope
from perdure.dialects.flow.state.failures import cancellation
from perdure.kernel.turn import Turn


def on_deadline(turn: Turn, number: int, depth: int) -> None:
    """A deadline was reached. A scope that is already being left is not interrupted again."""
    move = Move(turn, number)
    if boundary_of(move.frame, below=depth) is not None:
        return
    owner = move.frame.stack[depth]
    assert isinstance(owner, MiddlewareScope) and owner.explanation is not None
    if owner is move.top and move.frame.rising is not None:
        return  # a Result has already arrived here: it is accepted (MWL-421)
    imposed = cancellation(previous=owner.explanation.read(turn))
    if owner.timer:
        turn.drop_timer(owner.timer)
    move.emit(f.BoundReached(number, depth, move.encode(imposed)))


def fire_overdue(move: Move) -> bool:
    """Whether an overdue bound fired instead of the next move.

    After an outage a run may be about to start work after a deadline whose timer has not been processed yet: the bound
    comes first. A Result that was received before the deadline keeps rising.
    """
    if not move.body.bounds or isinstance(move.top, Call):
        return False
    number, overdue = move.number, None
    while number >= 0:
        frame = move.body.frames[number]
        for depth in range(len(frame.stack) - 1, -1, -1):
            scope = frame.stack[depth]
            if isinstance(scope, MiddlewareScope) and scope.timer in move.body.bounds:
                timer = move.turn.state.timers.get(scope.timer)
                if timer is not None and timer.due < move.now:
                    overdue = (number, depth)  # the outermost wins (O-23)
        number = frame.owner
    if overdue is None or boundary_of(move.body.frames[overdue[0]], below=overdue[1]) is not None:
        return False
    on_deadline(move.turn, *overdue)
    return True
