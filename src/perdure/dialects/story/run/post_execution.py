"""`postExecution`: checked after a step has done its work and before it counts as successful (STY-216)."""

from typing import Any

from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.run.step_end import end_step, error_text
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.state.step_errors import StepError
from perdure.dialects.story.values import offloaded_data
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn import Turn


def succeed(turn: Turn, step: Step, message: str, output: dict[str, Any] | None = None) -> None:
    """End a built-in step successfully, if its postExecution condition holds."""
    if verified(turn, step, output or {}):
        text = None if output is None else jsontext.encode(output)
        end_step(turn, step.name, StoryPhase.SUCCEEDED, message, output=text)


def verified(turn: Turn, step: Step, output: dict[str, Any]) -> bool:
    """Whether the step may succeed with this output; otherwise it has failed, without retry."""
    problem = _problem(turn, step, output)
    if problem is None:
        return True
    error = StepError.make("execution_error", problem, exit_code=0, exit_class="terminal", retryable=False)
    end_step(
        turn, step.name, StoryPhase.FAILED, problem, reason=Reason.EXPRESSION_FAILED, error=error, exit_code=0,
        exit_class="terminal",
    )  # fmt: skip
    return False


def _problem(turn: Turn, step: Step, output: dict[str, Any]) -> str | None:
    check = step.data.get("postExecution")
    if not isinstance(check, dict) or not isinstance(check.get("condition"), str):
        return None
    readable_output = offloaded_data.hydrated(turn, output)  # the step's own output is readable, however large
    try:
        if Scope(turn, step, "postExecution").verifies(check["condition"], step.name, readable_output):
            return None
        text = "the condition is false"
    except ExpressionError as problem:
        text = error_text(problem)
    return f"Post-execution verification failed: {check.get('failureMessage') or text}"
