"""`noop`: nothing is done. For routing, for setting `ctx`, and as a decision point between tasks (PBK-093, 233)."""

from perdure.dialects.playbook.plan.program import Task
from perdure.dialects.playbook.state.task_errors import error
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import UNCHANGED, ToolCall, ToolKind, ToolResult, failure
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Outcome, Succeeded


def _start(call: ToolCall) -> None:
    if "result" not in call.fields:
        call.pass_through()
        return
    try:
        text = jsontext.encode(call.fields["result"])
    except jsontext.NotJson as problem:
        call.fail(error("serialization", str(problem), source=call.task.label))
        return
    call.succeed(text)


def _on_result(outcome: Outcome, text: Reader) -> ToolResult:
    """Only called if a secret had to be read for it; the result is then already masked."""
    if isinstance(outcome, Succeeded):
        return UNCHANGED
    return ToolResult(failure(outcome, "unknown", None, source="noop"))


def _may_fail(task: Task) -> bool:
    return not all(template.is_literal for template in task.fields.values())


KIND = ToolKind(_start, _on_result, fields=frozenset({"result", "args"}), provider="echo", may_fail=_may_fail)
