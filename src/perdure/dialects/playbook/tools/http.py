"""`http`: one request through the shared provider, its response in the terms of the language (PBK-095)."""

from typing import Any

import msgspec

from perdure.dialects.playbook.document.cursor import Cursor
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


CONTENTS = ("body", "payload", "json", "form", "data")
"""Fields for what is sent. The last three, and those below, are the names of earlier documents (PBK-095)."""

_SETTINGS = {"verify_ssl": "verify", "follow_redirects": "follow_redirects"}
_IN_URL = ("GET", "DELETE")  # methods whose `data` are parameters


def _start(call: ToolCall) -> None:
    fields = call.fields
    method = str(fields.get("method") or "GET").upper()
    arguments: dict[str, Any] = {"url": fields["url"], "method": method}
    for name in ("headers", "params", "auth"):
        if fields.get(name) is not None:
            arguments[name] = fields[name]
    for name, parameter in _SETTINGS.items():
        if fields.get(name) is not None:
            arguments[parameter] = fields[name]
    if isinstance(arguments.get("headers"), dict):
        arguments["headers"] = {name: _text(value) for name, value in arguments["headers"].items()}
    if isinstance(arguments.get("auth"), dict) and not _authorize(arguments):
        call.fail(error("auth", "auth contains nothing that HTTP can use", "AUTH_UNUSABLE", source="http"))
        return
    _add_content(fields, arguments)
    timeout = call.task.spec.get("timeout")
    if timeout is not None:
        arguments["timeout"] = timeout
    call.perform("http", arguments)


def _add_content(fields: dict[str, Any], arguments: dict[str, Any]) -> None:
    """What is sent: text as it is, a map as JSON, or as a form where a header says so."""
    name = next((name for name in CONTENTS if fields.get(name) is not None), None)
    if name is None:
        return
    content = fields[name]
    if name == "data" and isinstance(content, dict):
        params, content = _divide_data(content, is_in_url=arguments["method"] in _IN_URL)
        if params:
            arguments["params"] = {**(arguments.get("params") or {}), **params}
    if content is None:
        return
    headers = arguments.get("headers")
    kinds = [str(value) for key, value in headers.items() if key.lower() == "content-type"] if headers else []
    is_form = name == "form" or (name == "data" and "x-www-form-urlencoded" in "".join(kinds))
    if is_form and isinstance(content, dict):
        arguments["form"] = {key: _text(value) for key, value in content.items()}
    elif isinstance(content, str) and name != "json":
        arguments["body"] = content
    else:
        arguments["json"] = content


def _divide_data(data: dict[str, Any], *, is_in_url: bool) -> tuple[dict[str, Any] | None, Any]:
    """`data` names its parts `query` and `body`, or is one of them by the method."""
    if "query" in data or "body" in data:
        return data.get("query"), data.get("body")
    return (data, None) if is_in_url else (None, data)


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


def _check(cursor: Cursor) -> None:
    contents = [name for name in CONTENTS if cursor.value.get(name) is not None]
    if len(contents) > 1 and contents != ["body", "payload"]:
        names = " and ".join(repr(name) for name in contents)
        cursor.problem("PBK-095", f"an http task sends one thing, not {names}", hint="Keep one of them.")
    if cursor.value.get("verify_ssl") is False:
        hint = "Whoever is between can read and change the request. Let the host trust the certificate instead."
        cursor.at("verify_ssl").warn("PBK-095", "the certificate of the server is not checked", hint=hint)


KIND = ToolKind(
    _start,
    _on_result,
    required=(("url",),),
    fields=frozenset({"url", "method", "headers", "params", *CONTENTS, "auth", "args", *_SETTINGS}),
    provider="http",
    credential=for_http,
    check=_check,
)
