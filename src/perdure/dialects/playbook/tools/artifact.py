"""`artifact`: the body behind a reference (`get`), or a value stored on purpose (`put`) (PBK-100, 174).

The tasks that follow see the result of `get` as the value itself, whatever its size; beyond the pipeline it is the
reference again. The result of `put` is the reference, however small the body. Bodies live with the run, so no worker is
involved.
"""

from typing import Any

from perdure.dialects.playbook.state.events import AttemptEnded
from perdure.dialects.playbook.state.task_errors import error
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import ToolCall, ToolKind, ToolResult
from perdure.dialects.playbook.values import references, results
from perdure.dialects.playbook.values.reference_reads import UnresolvedReference, resolve
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Outcome

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
    try:
        resolved = resolve(call.turn, fields.get("result_ref", fields.get("uri")))
    except UnresolvedReference as not_resolved:
        call.fail(not_resolved.problem)
        return
    attempt = results.attempt_ended(call.turn, call.thread, "given", resolved.payload)
    if attempt.reference is None or attempt.error is not None:
        call.end(attempt)
        return
    stored = attempt.stored if resolved.reference is None else ()
    reference = resolved.reference or attempt.reference
    call.end(AttemptEnded(call.thread, attempt.at, None, "given", attempt.result, None, reference, True, stored))


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
    raise AssertionError("an artifact task ends where it begins")


KIND = ToolKind(
    _start,
    _on_result,
    required=(("result_ref", "uri", "args", *VALUES),),
    fields=frozenset({"action", "result_ref", "uri", "args", *VALUES}),
    choices={"action": ACTIONS},
    reads_references=True,
)
