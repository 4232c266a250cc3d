"""A kind that is the name of a registered provider: its fields and `args` are the provider's arguments."""

from typing import Any

from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import UNCHANGED, ToolCall, ToolKind, ToolResult, error_kind, failure
from perdure.kernel.outcomes import Failed, Outcome, Succeeded


def _start(call: ToolCall) -> None:
    fields = call.fields
    args = fields.get("args")
    if isinstance(args, dict) and len(fields) == 1:  # nearly always
        arguments = args
    else:
        arguments = {name: value for name, value in fields.items() if name != "args"}
        arguments |= args if isinstance(args, dict) else {}
    call.perform(call.task.kind, arguments, timeout=call.task.timeout)


def _on_result(outcome: Outcome, text: Reader) -> ToolResult:
    if isinstance(outcome, Succeeded):
        return UNCHANGED
    code = outcome.code if isinstance(outcome, Failed) else ""
    return ToolResult(failure(outcome, error_kind(code), code, source="provider"))


def _credential(kind: str, value: Any) -> Any:
    return {"type": kind, **value} if isinstance(value, dict) else value


PROVIDER_KIND = ToolKind(_start, _on_result, provider="{kind}", credential=_credential)
