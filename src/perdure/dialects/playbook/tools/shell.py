"""`shell`: commands through the shared provider (PBK-096). Several commands stop at the first that fails."""

from typing import Any

from perdure.dialects.playbook.state.task_errors import error
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import (
    UNCHANGED,
    ToolCall,
    ToolKind,
    ToolResult,
    details_of,
    error_kind,
    failure,
)
from perdure.kernel.outcomes import Failed, Outcome, Succeeded


def _start(call: ToolCall) -> None:
    fields = call.fields
    commands = fields["cmds"]
    if isinstance(commands, list) and all(isinstance(command, str) for command in commands):
        script = "\n".join(("set -e", *commands))
    elif isinstance(commands, str):
        script = commands
    else:
        call.fail(error("schema", "cmds must be a text or a list of texts", source="shell"))
        return
    arguments: dict[str, Any] = {"script": script}
    if isinstance(fields.get("env"), dict):
        arguments["env"] = {
            name: value if isinstance(value, str) else str(value) for name, value in fields["env"].items()
        }
    if fields.get("cwd") is not None:
        arguments["cwd"] = fields["cwd"]
    limit = call.task.timeout
    if limit is not None:
        arguments["timeout"] = limit
    call.perform("shell", arguments)


def _on_result(outcome: Outcome, text: Reader) -> ToolResult:
    if isinstance(outcome, Succeeded):
        return UNCHANGED
    kind = error_kind(outcome.code) if isinstance(outcome, Failed) else "unknown"
    return ToolResult(failure(outcome, kind, details_of(outcome).get("exit_code"), source="shell"))


KIND = ToolKind(
    _start, _on_result, required=(("cmds",),), fields=frozenset({"cmds", "env", "cwd", "args"}), provider="shell"
)
