"""How a step ends: its permits and timers are released, then its end is recorded."""

from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import DEFAULT_REASONS, StoryPhase
from perdure.dialects.story.state.step_errors import StepError, safe
from perdure.expressions.gotemplate import BadStructure, ExpressionError, Failure, SyntaxFault
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.values import Payload
from perdure.kernel.turn import Turn


def end_step(
    turn: Turn,
    name: str,
    phase: StoryPhase,
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
    """End a step. With `landed`, its output is what its task has just returned; otherwise `output`, if any."""
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
    """Release the permits and timers of a step."""
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
    names = names + [
        helper for name in names for helper in body.plan.helpers(name) if _is_unstarted_helper(body, helper)
    ]
    for name in names:
        release(turn, body.steps.get(name))
    turn.emit(s.StepsSkipped(tuple(names), message, turn.now, follows_failure))


def _is_unstarted_helper(body: Body, helper: str) -> bool:
    """Whether a helper has not started yet; one that has started is left to finish."""
    state = body.steps.get(helper)
    return helper in body.helping and (state is None or not state.has_begun)


def error_text(problem: ExpressionError) -> str:
    """The error of a template in one line."""
    match problem:
        case Failure():
            return f"{problem.place}: {problem.message}" if problem.place else problem.message
        case SyntaxFault(findings=findings) if findings:
            return str(findings[0].message)
        case BadStructure(problems=problems) if problems:
            return "; ".join(str(part).partition("\n")[0] for part in problems)
    return str(problem).partition("\n")[0]


def ended_steps(execution: Execution, turns: object) -> frozenset[str]:
    body: Body = execution.body
    return frozenset(name for name, state in body.steps.items() if state.phase.is_terminal)
