"""`container` and `script`: a job, in a container or without one, that runs to its end (PBK-098)."""

from typing import Any

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import UNCHANGED, ToolCall, ToolKind, ToolResult, details_of, failure
from perdure.dialects.playbook.tools.scripts import check_script, failure_code, kind_of_failure, with_folder
from perdure.kernel.outcomes import Outcome, Succeeded

RUNTIME = ("image", "namespace", "command", "args", "env", "timeoutSeconds", "cleanup", "files")

_KINDS = {
    "BadArguments": "schema",
    "NoContainerRuntime": "client_error",
    "NotStarted": "server_error",
    "Timeout": "timeout",
}


def _job(name: str, required: str, *, needs_image: bool) -> ToolKind:
    def start(call: ToolCall) -> None:
        fields = call.fields
        arguments: dict[str, Any] = {field: fields[field] for field in ("args", "runtime") if fields.get(field)}
        if fields.get("script") is not None:
            arguments["script"] = with_folder(call, fields["script"])
        runtime = arguments.get("runtime")
        if isinstance(runtime, dict) and isinstance(runtime.get("files"), list):
            arguments["runtime"] = {**runtime, "files": [_file(call, file) for file in runtime["files"]]}
        limit = call.task.timeout
        if limit is not None:
            arguments["timeout"] = limit
        call.perform(name, arguments)

    def on_result(outcome: Outcome, text: Reader) -> ToolResult:
        if isinstance(outcome, Succeeded):
            return UNCHANGED
        code = details_of(outcome).get("exit_code", failure_code(outcome))
        return ToolResult(failure(outcome, kind_of_failure(outcome, _KINDS), code, source=name))

    def check(cursor: Cursor) -> None:
        check_script(cursor)
        if "runtime" in cursor.value:
            _check_runtime(cursor.at("runtime"), needs_image=needs_image)

    return ToolKind(
        start,
        on_result,
        required=((required,),),
        fields=frozenset({"runtime", "script", "args"}),
        text=frozenset({"script"}),
        provider=name,
        check=check,
    )


def _file(call: ToolCall, file: Any) -> Any:
    return with_folder(call, file) if isinstance(file, dict) and "uri" in file else file


def _check_runtime(cursor: Cursor, *, needs_image: bool) -> None:
    """A runtime that is written as a map; a template that gives one is checked when it runs."""
    if not isinstance(cursor.value, dict):
        return
    cursor.closed(RUNTIME, "PBK-098", "a runtime")
    if needs_image and "image" not in cursor.value:
        cursor.problem("PBK-098", "a container needs an image", hint="Write runtime: {image: name}.")


CONTAINER = _job("container", "runtime", needs_image=True)
SCRIPT = _job("script", "script", needs_image=False)
