"""`http`: one request through the shared provider, its response in the terms of the language (PBK-095)."""

from typing import Any

import msgspec

from perdure.dialects.playbook.state.task_errors import error
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import ToolCall, ToolKind, ToolResult, details_of, failure
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Failed, Outcome, Succeeded
from perdure.kernel.secrets.credentials import for_http

PREFIX = "Provider.Call.Http."

_KINDS = {
    "Timeout": "timeout",
    "ConnectionFailed": "connection",
    "ProtocolError": "connection",
    "TlsFailed": "connection",
    "InvalidJson": "parse",
    "TooLarge": "limit",
    "BadArguments": "schema",
}


def _start(call: ToolCall) -> None:
    fields = call.fields
    arguments: dict[str, Any] = {"url": fields["url"], "method": fields.get("method", "GET")}
    for name in ("headers", "params", "auth"):
        if fields.get(name) is not None:
            arguments[name] = fields[name]
    if isinstance(arguments.get("headers"), dict):
        arguments["headers"] = {name: _text(value) for name, value in arguments["headers"].items()}
    if isinstance(arguments.get("auth"), dict) and not _authorize(arguments):
        call.fail(error("auth", "auth contains nothing that HTTP can use", "AUTH_UNUSABLE", source="http"))
        return
    content = fields.get("body", fields.get("payload"))
    if isinstance(content, str):
        arguments["body"] = content
    elif content is not None:
        arguments["json"] = content
    timeout = call.task.spec.get("timeout")
    if timeout is not None:
        arguments["timeout"] = timeout
    call.perform("http", arguments)


def _authorize(arguments: dict[str, Any]) -> bool:
    """A credential in the form the provider accepts: an API key is a header or a parameter (PBK-186)."""
    auth = for_http("", arguments.pop("auth"))
    if auth is not None and auth["type"] == "api_key":
        place = "params" if auth["in"] == "query" else "headers"
        arguments[place] = {**(arguments.get(place) or {}), auth["name"]: auth["value"]}
    elif auth is not None:
        arguments["auth"] = auth
    return auth is not None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else jsontext.encode(value).decode()


def _on_result(outcome: Outcome, text: Reader) -> ToolResult:
    if isinstance(outcome, Succeeded):
        answer = jsontext.decode(text(outcome.value))
        result = {"status_code": answer["status"], "headers": answer["headers"], "data": answer["body"]}
        if "body_encoding" in answer:
            result["data_encoding"] = answer["body_encoding"]
        return ToolResult(None, jsontext.encode(result), {"http": _helper(answer["status"], answer["headers"])})
    facts = details_of(outcome)
    status = facts.get("status")
    problem = failure(outcome, _kind(outcome, status), status, source="http")
    if facts.get("retry_after") is not None:
        problem = msgspec.structs.replace(problem, retry_after=float(facts["retry_after"]))
    return ToolResult(problem, None, {"http": _helper(status, facts.get("headers") or {})})


def _kind(outcome: Outcome, status: int | None) -> str:
    match status:
        case 401 | 403:
            return "auth"
        case 404:
            return "not_found"
        case 408:
            return "timeout"
        case 429:
            return "rate_limit"
        case int() if status >= 500:
            return "server_error"
        case int() if status >= 400:
            return "client_error"
    code = outcome.code.removeprefix(PREFIX) if isinstance(outcome, Failed) else ""
    return _KINDS.get(code, "client_error")


def _helper(status: int | None, headers: dict[str, Any]) -> dict[str, Any]:
    return {"status": status, "headers": headers, "request_id": headers.get("x-request-id")}


KIND = ToolKind(
    _start,
    _on_result,
    required=(("url",),),
    fields=frozenset({"url", "method", "headers", "params", "body", "payload", "auth", "args"}),
    provider="http",
    credential=for_http,
)
