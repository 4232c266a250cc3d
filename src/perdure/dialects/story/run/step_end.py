"""How a step ends: what it holds is given back, then its end is recorded."""

from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import DEFAULT_REASONS, Phase
from perdure.dialects.story.state.step_errors import StepError, safe
from perdure.expressions.gotemplate import BadStructure, ExpressionError, Failure, SyntaxFault
from perdure.kernel.turn import Turn
from perdure.kernel.values import Payload


def end_step(
    turn: Turn,
    name: str,
    phase: Phase,
    message: str,
    *,
    reason: str = "",
    output: Payload | None = None,
    landed: bool = False,
    error: StepError | None = None,
    exit_code: int | None = None,
    exit_class: str = "",
    interrupted: bool = False,
) -> None:
    """`landed`: its output is what its task has just given; otherwise `output`, if any."""
    body: Body = turn.body
    release(turn, body.steps.get(name))
    turn.emit(
        s.StepEnded(
            name,
            phase,
            reason or DEFAULT_REASONS[phase],
            safe(message),
            turn.now,
            "landed" if landed else "none" if output is None else "given",
            b"{}" if output is None else turn.keep(output),
            None if error is None else error.encode(),
            exit_code,
            exit_class,
            interrupted,
        )
    )


def release(turn: Turn, state: StepState | None) -> None:
    """Give back permits and timers."""
    if state is None:
        return
    if state.permits or state.awaited:
        for permit in [*state.permits, state.awaited]:
            turn.release_permit(permit)
    if state.timer:
        turn.drop_timer(state.timer)
    if state.poll:
        turn.drop_timer(state.poll)


def skip(turn: Turn, names: list[str], message: str, *, follows_failure: bool = False) -> None:
    body: Body = turn.body
    if not names:
        return
    names = names + [one for name in names for one in body.plan.helpers(name) if _is_held_up(body, one)]
    for name in names:
        release(turn, body.steps.get(name))
    turn.emit(s.StepsSkipped(tuple(names), message, turn.now, follows_failure))


def _is_held_up(body: Body, helper: str) -> bool:
    """A helper that could not begin to work yet; one that works is left to finish."""
    state = body.steps.get(helper)
    return helper in body.helping and (state is None or not state.has_begun)


def error_text(problem: ExpressionError) -> str:
    """What went wrong in a template, in one line."""
    match problem:
        case Failure():
            return f"{problem.place}: {problem.message}" if problem.place else problem.message
        case SyntaxFault(findings=findings) if findings:
            return str(findings[0].message)
        case BadStructure(problems=problems) if problems:
            return "; ".join(str(one).partition("\n")[0] for one in problems)
    return str(problem).partition("\n")[0]
