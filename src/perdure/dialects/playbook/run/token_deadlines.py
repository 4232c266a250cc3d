"""The deadline of a step counts from its token, also while that token waits at a gate or a join (PBK-193).

A token that waits has a timer. It is dropped when the token goes on: the step-run then has a timer of its own, for the
time that is left.
"""

from perdure.dialects.playbook.plan.durations import BOUND_RANK
from perdure.dialects.playbook.plan.program import Program, Step
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import Error, error
from perdure.kernel.json_values.values import Instant
from perdure.kernel.turn import Turn

BOUNDED_SINCE = 11
"""The record version that has `TokenBounded`. Beside an older server tokens wait without a limit, as they did there."""


def bound_token(turn: Turn, number: int) -> None:
    """A token waits. After a move to another document the deadline may be another one."""
    body: b.Body = turn.body
    program: Program = turn.program
    token = body.tokens[number]
    due = due_of(program.steps[token.step], token)
    known = turn.state.timers.get(token.timer)
    if turn.record_version < BOUNDED_SINCE or due == (None if known is None else known.due):
        return
    turn.drop_timer(token.timer)
    turn.emit(p.TokenBounded(number, 0 if due is None else turn.set_timer(due, BOUND_RANK)))


def release_token(turn: Turn, number: int) -> None:
    """A token goes on, or ends: nothing has to be remembered about its deadline."""
    turn.drop_timer(turn.body.tokens[number].timer)


def due_of(step: Step, token: b.Token) -> Instant | None:
    return None if step.deadline is None else token.at + step.deadline


def why_too_late(turn: Turn, step: Step, token: b.Token) -> Error | None:
    """The failure of a step whose deadline has passed before it could start."""
    due = due_of(step, token)
    if due is None or due > turn.now:
        return None
    return error("timeout", f"step {step.name!r} did not start in time", "STEP_TIMEOUT", source=step.name)
