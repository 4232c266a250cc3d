"""`artifact`: the body behind a reference (`get`), or a value stored on purpose (`put`) (PBK-100, 174).

The tasks that follow see the result of `get` as the value itself, whatever its size; beyond the pipeline it is the
reference again. The result of `put` is the reference, however small the body. Bodies live with the run: a worker is
involved only where one is stored in an object store, or fetched from there for another run.
"""

from typing import Any

import msgspec

from perdure.dialects.playbook.state.events import AttemptEnded
from perdure.dialects.playbook.state.task_errors import error
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import ToolCall, ToolKind, ToolResult, error_kind, failure
from perdure.dialects.playbook.values import references, results
from perdure.dialects.playbook.values.reference_reads import UnresolvedReference, resolve
from perdure.dialects.playbook.values.result_uploads import PROVIDER, fetch_arguments
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Failed, Outcome, Succeeded

ACTIONS = ("get", "put")
VALUES = ("value", "data", "payload", "body")
ABSENT = object()


def _start(call: ToolCall) -> None:
    fields = dict(call.fields)
    args = fields.pop("args", None)
    fields = {**(args if isinstance(args, dict) else {}), **fields}
    match fields.get("action", "get"):
        case "get":
            _get(call, fields)
        case "put":
            _put(call, fields)
        case other:
            call.fail(error("schema", f"action must be get or put, not {other!r}", source="artifact"))


def _get(call: ToolCall, fields: dict[str, Any]) -> None:
    reference = fields.get("result_ref", fields.get("uri"))
    fetch = fetch_arguments(call.turn, reference)
    if fetch is not None:
        here = msgspec.structs.replace(call.task, pool="")  # as objects are stored
        ToolCall(call.turn, call.thread, here, call.fields, call.makers).perform(PROVIDER, fetch)
        return
    try:
        resolved = resolve(call.turn, reference)
    except UnresolvedReference as not_resolved:
        call.fail(not_resolved.problem)
        return
    attempt = results.attempt_ended(call.turn, call.thread, "given", resolved.payload)
    if attempt.reference is None or attempt.error is not None:
        call.end(attempt)
        return
    stored = attempt.stored if resolved.reference is None else ()
    kept = resolved.reference or attempt.reference
    call.end(AttemptEnded(call.thread, attempt.at, None, "given", attempt.result, None, kept, True, stored))


def _put(call: ToolCall, fields: dict[str, Any]) -> None:
    turn = call.turn
    value = next((fields[name] for name in VALUES if name in fields), ABSENT)
    uri = fields.get("uri", "")
    if value is ABSENT:
        call.fail(error("schema", "put needs 'value', the value to store", source="artifact"))
        return
    if not isinstance(uri, str) or (uri and not uri.startswith(references.SCHEME)):
        call.fail(error("schema", f"uri must begin with {references.SCHEME}, not {uri!r}", source="artifact"))
        return
    try:
        text = jsontext.encode(value)
        stored = results.store_result(turn, call.thread, call.task, text, uri)
    except jsontext.NotJson as problem:
        call.fail(error("serialization", str(problem), source=call.task.label))
        return
    except references.BadSelect as bad:
        call.fail(bad.problem)
        return
    payload = turn.keep(text)
    call.end(AttemptEnded(call.thread, turn.now, None, "given", payload, None, stored.reference, stored=(stored,)))


def _on_result(outcome: Outcome, text: Reader) -> ToolResult:
    """Of a body that was fetched from an object store; otherwise an artifact task ends where it begins."""
    if isinstance(outcome, Succeeded):
        return ToolResult(opens=True)
    kind = error_kind(outcome.code) if isinstance(outcome, Failed) else "cancelled"
    code = "REFERENCE_NOT_AVAILABLE" if kind == "missing_reference" else "STORE_NOT_AVAILABLE"
    return ToolResult(failure(outcome, kind, code, source="artifact"))


KIND = ToolKind(
    _start,
    _on_result,
    required=(("result_ref", "uri", "args", *VALUES),),
    fields=frozenset({"action", "result_ref", "uri", "args", *VALUES}),
    choices={"action": ACTIONS},
    reads_references=True,
)
