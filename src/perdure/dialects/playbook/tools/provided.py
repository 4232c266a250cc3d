"""A kind that is the name of a registered provider: its fields and `args` are the provider's arguments."""

from typing import Any

from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import AS_IT_IS, Call, Kind, ToolResult, failure, general_kind
from perdure.kernel.outcomes import Failed, Outcome, Succeeded


def _start(call: Call) -> None:
    fields = dict(call.fields)
    given = fields.pop("args", None)
    arguments = {**fields, **(given if isinstance(given, dict) else {})}
    call.perform(call.task.kind, arguments, timeout=call.task.timeout)


def _land(outcome: Outcome, text: Reader) -> ToolResult:
    if isinstance(outcome, Succeeded):
        return AS_IT_IS
    code = outcome.code if isinstance(outcome, Failed) else ""
    return ToolResult(failure(outcome, general_kind(code), code, source="provider"))


def _credential(kind: str, value: Any) -> Any:
    return {"type": kind, **value} if isinstance(value, dict) else value


PROVIDED = Kind(_start, _land, provider="{kind}", credential=_credential)
