"""One internal move of a run: what is next, in a fixed order.

Gates that may have opened come first, then what has ended, then what may begin: so a patch re-evaluates admission
before anything else happens, and every order is the same after a crash.
"""

from collections.abc import Callable

from perdure.dialects.playbook.plan.program import OnFailure, Program
from perdure.dialects.playbook.run import admission, completion, ends, joins, pipeline, routing, starts
from perdure.dialects.playbook.state import body as b
from perdure.kernel.turn import Turn


def advance(turn: Turn) -> bool:
    body: b.Body = turn.body
    if not body.begun:
        return _start(turn, body)
    if body.stale:
        admission.decide_admission(turn, _first(body.stale))
    elif body.arriving:
        joins.arrive(turn, _first(body.arriving))
    elif body.closing:
        ends.close(turn, _first(body.closing))
    elif body.routing and not body.paused:
        _stop_if_hurried(turn, routing.route, _first(body.routing))
    elif body.dying and not body.paused:
        _stop_if_hurried(turn, joins.give_up, _first(body.dying))
    elif body.admitted and not body.paused:
        starts.start_step(turn, _first(body.admitted))
    elif body.looping:
        starts.start_iteration(turn, _first(body.looping))
    elif body.agenda:
        pipeline.move(turn, _first(body.agenda))
    elif body.runs or body.paused:
        return False
    else:
        return completion.settle(turn)
    return True


def _start(turn: Turn, body: b.Body) -> bool:
    """Before the first token: the request, and then its keychain, which a worker resolves."""
    if body.request is None:
        starts.begin(turn)
    elif body.request.is_resolved:
        starts.go_on(turn)
    else:
        return False
    return True


def _first(queue: b.Queue) -> int:
    return next(iter(queue))


def _stop_if_hurried(turn: Turn, move: Callable[[Turn, int], None], number: int) -> None:
    """A move that may end a branch badly; where the first such end ends everything, it does (`fail_fast`)."""
    body: b.Body = turn.body
    program: Program = turn.program
    before = body.unhandled
    move(turn, number)
    is_fast = program.completion.on_failure is OnFailure.FAIL_FAST
    if is_fast and body.unhandled > before and body.stopped is None:
        first = next(failure for failure in body.failures if not failure.handled)
        ends.stop(turn, first.error, is_failure=False)
