"""Expressions that somebody asks about: evaluated against the scopes of a step of a run; nothing is recorded.

It also says what a start may contain, and what a step passes to its task as it is written.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from perdure.dialects.playbook.plan.program import Program
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.values.template_scopes import (
    Maker,
    Makers,
    Members,
    control_makers,
    execution_makers,
    gather,
    outcome_view,
    pipeline_makers,
)
from perdure.expressions.jinja import Template, TemplateError
from perdure.kernel.errors import ExpressionFailed
from perdure.kernel.execution import Execution
from perdure.kernel.turn import Turn


def has_scope(execution: Execution, step: str) -> bool:
    return step in execution.program.steps


def evaluate(turn: Turn, step: str, expression: str, hide: Callable[[Any], Any]) -> Any:
    """Secrets are hidden before they are read, so that no expression can make another text of them."""
    text = expression if "{{" in expression or "{%" in expression else f"{{{{ {expression} }}}}"
    template = Template(text)
    makers = {name: _hidden(maker, hide) for name, maker in _makers(turn, step).items()}
    try:
        return template.render(gather(makers, template.reads))
    except TemplateError as error:
        raise ExpressionFailed(str(error)) from None


def _hidden(maker: Maker, hide: Callable[[Any], Any]) -> Maker:
    return lambda members: hide(maker(members))


def _makers(turn: Turn, step: str) -> Makers:
    """The scopes of the step's latest pipeline that is open; else of a token that waits for it; else of the run."""
    body: b.Body = turn.body
    planned = turn.program.steps[step]
    for number, thread in reversed(body.threads.items()):
        if body.runs[thread.run].step == step and 0 <= thread.position < len(planned.tasks):
            makers = pipeline_makers(turn, number, planned.tasks[thread.position], planned.loop)
            if thread.outcome is not None:
                makers["outcome"] = partial(_outcome, turn, thread)
            return makers
    for run in reversed(body.runs.values()):
        if run.step == step and run.boundary is not None:
            return control_makers(turn, run.args, run.boundary)
    for token in reversed(body.tokens.values()):
        if token.step == step:
            return control_makers(turn, token.args, token.event)
    return execution_makers(turn)


def _outcome(turn: Turn, thread: b.PipelineThread, members: Members) -> Any:
    return outcome_view(thread, turn.text)


def schemas(program: Program) -> dict[str, Any]:
    """The input is merged into the workload: its members, with what they are if nobody says otherwise."""
    members = program.workload.document
    properties = {name: {"default": value} for name, value in members.items()} if isinstance(members, dict) else {}
    return {"input": {"type": "object", "properties": properties}}


def written_arguments(program: Program, step: str) -> Any:
    planned = program.steps.get(step)
    if planned is None or len(planned.tasks) != 1:
        return None
    return {name: field.document for name, field in planned.tasks[0].fields.items()}
