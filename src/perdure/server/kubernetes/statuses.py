"""Which requests belong to the Kubernetes API, and how they are refused: with a `Status` that has a reason."""

import re
from collections.abc import Mapping
from typing import Any

from perdure.engine.resources.catalog_changes import VersionConflict
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.server.problems import as_policy_refusal, status_of
from perdure.views.api_errors import ApiError

SSE = "text/event-stream"
CORE_PLURALS = frozenset({"namespaces", "configmaps", "secrets"})

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    408: "Timeout",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9]*(\.[A-Za-z0-9_-]+)*")


def is_kubernetes_path(raw_path: bytes, headers: Mapping[str, str]) -> bool:
    """By path, never by client; only `/api/v1/events` is two things, told apart by what is accepted."""
    parts = raw_path.partition(b"?")[0].strip(b"/").split(b"/")
    match parts:
        case [b"api"] | [b"api", b"v1"] | [b"version"] | [b"apis", *_] | [b"openapi", b"v2" | b"v3", *_]:
            return True
        case [b"api", b"v1", b"namespaces", *_]:
            return True
        case [b"api", b"v1", b"events"]:
            return SSE not in headers.get("accept", "")
        case [b"api", b"v1", plural]:
            return plural.decode("latin-1") in CORE_PLURALS
        case _:
            return False


class AlreadyExists(ApiError):
    """There is an object of that kind and name already."""

    code = "ALREADY-EXISTS"
    hint = "Choose another name, or change what is there: `kubectl apply` does either."
    status = 409


def refusal_status(error: PerdureError) -> int:
    return 409 if isinstance(error, VersionConflict) else status_of(as_policy_refusal(error))


def status_json(error: PerdureError, path: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body. `path`: the parameters of the path, as far as they are known."""
    error = as_policy_refusal(error)
    status = refusal_status(error)
    reason = "AlreadyExists" if isinstance(error, AlreadyExists) else REASONS.get(status, "Unknown")
    details: dict[str, Any] = {
        name: path[part] for name, part in (("name", "name"), ("group", "group"), ("kind", "plural")) if path.get(part)
    }
    if status == 422 and isinstance(written := error.facts.get("written"), dict):
        details |= written
    if status in (409, 422) and (causes := _causes(error)):
        details["causes"] = causes
    headers = {"Content-Type": "application/json"}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="perdure"'
    if status in (429, 503):
        wait = max(1, (error.retry_after if isinstance(error, ApiError) else None) or 1)
        headers["Retry-After"] = str(wait)
        details["retryAfterSeconds"] = wait
    if isinstance(allow := error.facts.get("allow"), str):
        headers["Allow"] = allow
    message = _message(error)
    return status, headers, jsontext.encode(status_object(status, reason, message, details))


def _causes(error: PerdureError) -> list[dict[str, Any]]:
    causes = error.facts.get("causes")
    if isinstance(causes, list):
        return causes
    problems = error.facts.get("problems")
    if not isinstance(problems, list):
        field, _, rest = str(error).partition(": ")
        is_field = bool(rest) and _FIELD.fullmatch(field) is not None
        return [
            {
                "reason": error.code,
                "message": rest if is_field else str(error),
                "field": field if is_field else "object",
            }
        ]
    return [
        {"reason": problem["code"], "message": problem["message"], "field": problem.get("path") or "<root>"}
        for problem in problems
        if problem.get("severity", "error") == "error"
    ]


def _message(error: PerdureError) -> str:
    problems = error.facts.get("problems")
    if isinstance(problems, list) and problems:
        texts = [
            f"{problem['path']}: {problem['message']}" if problem.get("path") else problem["message"]
            for problem in problems
            if problem.get("severity", "error") == "error"
        ]
        return "; ".join(texts) or str(error)
    return str(error)


def status_object(status: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure" if status >= 400 else "Success",
        "message": message,
        "reason": reason,
        "details": dict(details or {}),
        "code": status,
    }
    return body if reason else {name: value for name, value in body.items() if name != "reason"}
