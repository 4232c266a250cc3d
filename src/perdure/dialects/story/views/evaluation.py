"""Expressions that somebody asks about: evaluated against what a step of a run sees, and nothing is recorded.

It also says what a start may contain, and what a step passes to its Engram as it is written.
"""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.values.offloaded_data import BrokenReference
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError, is_template
from perdure.kernel.errors import ExpressionFailed
from perdure.kernel.execution import Execution
from perdure.kernel.turn import Turn


def has_scope(execution: Execution, step: str) -> bool:
    return step in execution.program.steps


def evaluate(turn: Turn, step: str, expression: str, hide: Callable[[Any], Any]) -> Any:
    template = expression if is_template(expression) else f"{{{{ {expression} }}}}"
    scope = Scope(turn, turn.program.step(step), reads_all=True)
    try:
        return hide(scope.render(template, "evaluation"))
    except (ExpressionError, BrokenReference) as error:
        raise ExpressionFailed(str(error)) from None


def schemas(program: Program) -> dict[str, Any]:
    schema = program.spec.get("inputsSchema")
    return {"input": schema} if isinstance(schema, dict) else {}


def written_arguments(program: Program, step: str) -> Any:
    planned = program.steps.get(step)
    return None if planned is None else {"inputs": planned.data.get("with")}
