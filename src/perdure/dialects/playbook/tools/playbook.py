"""`playbook`: another document as a run of its own, which is awaited without occupying a worker (section 15).

Most are playbooks; a document of any other language can be called as well. Its input is `args`, its result is under
`result`, in the same envelope; a Flow's own arguments are passed as `arguments`.
"""

from typing import Any

from perdure.dialects.playbook.plan.durations import BOUND_RANK
from perdure.dialects.playbook.run import keychain
from perdure.dialects.playbook.state.task_errors import Error, error
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import UNCHANGED, ToolCall, ToolKind, ToolResult, shorten_details
from perdure.dialects.playbook.values import lent_references
from perdure.kernel.documents import subruns
from perdure.kernel.documents.lookups import Callee
from perdure.kernel.graphs.graph import Role
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded

OURS = "playbook"
FIELDS = frozenset({"path", "version", "args", "return_step", "arguments", "task"})  # `task` has no effect


def _start(call: ToolCall) -> None:
    turn, fields = call.turn, call.fields
    path = str(fields["path"])
    if subruns.is_too_deep(turn):
        message = f"runs start each other more than {subruns.DEEPEST} levels deep"
        call.fail(error("limit", message, "PLAYBOOK_DEPTH", source="playbook"))
        return
    workload, arguments = fields.get("args") or {}, fields.get("arguments") or {}
    if not isinstance(workload, dict) or not isinstance(arguments, dict):
        call.fail(error("schema", "args must be a map: they are the child's workload", source="playbook"))
        return
    version = fields.get("version")
    callee = subruns.find_callee(turn, path, None if version is None else str(version))
    if callee is None:
        which = f"no version {version} of playbook" if version is not None else "no playbook"
        message = f"there is {which} {path!r}; apply it when the run is started, or register it"
        call.fail(error("not_found", message, "PLAYBOOK_NOT_FOUND", source="playbook"))
        return
    detached = call.task.spec.get("detach") is True
    callee_options = _options(call, callee, arguments)
    if callee.language == OURS:
        workload = _with_bodies(call, workload, callee_options)
    options = subruns.options_for(turn, callee, callee_options)
    child = turn.start_child(
        callee.language,
        callee.text,
        path,
        jsontext.encode(workload),
        options,
        awaited=not detached,
        from_api=callee.from_api,
    )
    if detached:
        call.succeed(jsontext.encode({"execution_id": turn.execution.child_id(child), "status": "started"}))
    else:
        limit = call.task.timeout
        timer = 0 if limit is None else turn.set_timer(turn.now + int(limit * SECOND), BOUND_RANK)
        call.started(child, timer, "" if callee.language == OURS else callee.language)


def _options(call: ToolCall, callee: Callee, arguments: dict[str, Any]) -> dict[str, Any]:
    """Options that only some languages understand."""
    if callee.language != OURS:
        return {"args": arguments}
    options = keychain.child_keychain(call.turn)
    if "iter" in call.makers:
        options["iter"] = call.makers["iter"](None)
    if call.fields.get("return_step") is not None:
        options["return_step"] = call.fields["return_step"]
    return options


def _with_bodies(call: ToolCall, workload: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The child's workload with the bodies that it refers to."""
    lent_bodies = lent_references.lend(call.turn, workload)
    if not lent_bodies:
        return workload
    options["lent"] = True
    return {"workload": workload, "references": lent_bodies}


def _on_result(outcome: Outcome, text: Reader) -> ToolResult:
    match outcome:
        case Succeeded(value):
            envelope = jsontext.decode(text(value))
            if not lent_references.is_envelope(envelope):
                return UNCHANGED
            visible, lent_bodies = lent_references.unwrap_result(envelope)
            return ToolResult(None, jsontext.encode(visible), lent=tuple(lent_bodies), whole=envelope["result"])
        case Failed(code, message):
            return ToolResult(Error("child_failed", message, code, False, "playbook", shorten_details(_chain(outcome))))
        case Cancelled(reason):
            return ToolResult(
                Error("child_failed", reason or "the child was cancelled", "cancelled", False, "playbook")
            )


def _chain(failed: Failed) -> bytes | None:
    """The details of a child's failure, with its causes."""
    if failed.previous is None:
        return failed.details
    details = {} if failed.details is None else jsontext.decode(failed.details)
    members = details if isinstance(details, dict) else {"details": details}
    return jsontext.encode({**members, "previous": jsontext.decode(failed.previous)})


def wrap_result(execution_id: str, result: bytes) -> bytes:
    """The result of a child in another language, in the envelope of a playbook (PBK-202)."""
    head = jsontext.encode({"execution_id": execution_id, "status": "success", "ctx": {}})
    return head[:-1] + b',"result":' + result + b"}"


KIND = ToolKind(_start, _on_result, required=(("path",),), fields=FIELDS, settings=("detach",), role=Role.CALL)
