"""What `container` and `script` share: a script, how it runs, and what its exit means (PBK-098)."""

from typing import Any

from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import AS_IT_IS, Call, Kind, ToolResult, details_of, failure
from perdure.dialects.playbook.tools.scripts import failure_code, kind_of_failure, located
from perdure.kernel.outcomes import Outcome, Succeeded

_KINDS = {
    "BadArguments": "schema",
    "NoContainerRuntime": "client_error",
    "NotStarted": "server_error",
    "Timeout": "timeout",
}


def job(name: str, required: str) -> Kind:
    def start(call: Call) -> None:
        fields = call.fields
        arguments: dict[str, Any] = {field: fields[field] for field in ("args", "runtime") if fields.get(field)}
        if fields.get("script") is not None:
            arguments["script"] = located(call, fields["script"])
        runtime = arguments.get("runtime")
        if isinstance(runtime, dict) and isinstance(runtime.get("files"), list):
            arguments["runtime"] = {**runtime, "files": [_file(call, file) for file in runtime["files"]]}
        limit = call.task.timeout
        if limit is not None:
            arguments["timeout"] = limit
        call.perform(name, arguments)

    def land(outcome: Outcome, text: Reader) -> ToolResult:
        if isinstance(outcome, Succeeded):
            return AS_IT_IS
        code = details_of(outcome).get("exit_code", failure_code(outcome))
        return ToolResult(failure(outcome, kind_of_failure(outcome, _KINDS), code, source=name))

    fields = frozenset({"runtime", "script", "args"})
    return Kind(start, land, required=((required,),), fields=fields, text=frozenset({"script"}), provider=name)


def _file(call: Call, file: Any) -> Any:
    return located(call, file) if isinstance(file, dict) and "uri" in file else file
