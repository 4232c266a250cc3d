"""What interrupts what, derived from a frame's stack (MWL-551 to MWL-558, MWL-712).

A bound that fired owns what is above it in the stack; an interruption of the whole frame owns everything.
An entry whose `onAlways` has begun shields what is above it: that runs to its end first.
"""

from perdure.dialects.flow.state.body import Frame, MiddlewareScope, ScopePosition
from perdure.dialects.flow.state.values import Cell, Result

BOTTOM = -1  # the boundary of an interruption of the whole frame


def boundary_of(frame: Frame, below: int | None = None) -> int | None:
    """The depth of the nearest interrupter of what is above it (or below that depth); None if nothing unwinds."""
    stack = frame.stack
    depth = len(stack) if below is None else below
    while depth:
        depth -= 1
        scope = stack[depth]
        if isinstance(scope, MiddlewareScope):
            if scope.position is ScopePosition.CLEANING:
                return None
            if scope.fired is not None and scope.position is ScopePosition.INSIDE:
                return depth
    return None if frame.interrupted is None else BOTTOM


def cancellation_at(frame: Frame, boundary: int) -> Cell:
    """The cancellation of the interrupter at that depth."""
    if boundary == BOTTOM:
        assert frame.interrupted is not None
        return frame.interrupted
    owner = frame.stack[boundary]
    assert isinstance(owner, MiddlewareScope) and owner.fired is not None
    return owner.fired


def set_rising_cancellation(frame: Frame, boundary: int, imposed: Cell) -> bool:
    """Make the cancellation the Result in flight; whether the frame has to move now.

    Inside a cleanup only the Result that the cleanup will emit changes. An unwind in progress continues: the outer
    interrupter takes over at the inner one's position.
    """
    stack = frame.stack
    shield = len(stack)
    for depth in range(boundary + 1, len(stack)):
        scope = stack[depth]
        if isinstance(scope, MiddlewareScope):
            if scope.fired is not None and scope.position is ScopePosition.INSIDE:
                return False
            if scope.position is ScopePosition.CLEANING:
                shield = depth
                break
    result = Result(False, imposed)
    if shield < len(stack):
        cleaning = stack[shield]
        assert isinstance(cleaning, MiddlewareScope)
        cleaning.pending = result
        return False
    frame.rising = result
    return True
