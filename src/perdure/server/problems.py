"""Errors as the API answers them: `application/problem+json` (RFC 9457), with the status that each has."""

from typing import Any

from perdure.engine.resources.catalog_changes import VersionConflict
from perdure.engine.tasks.lease_errors import LeaseAnswered, LeaseGone, OwnerSilent
from perdure.kernel.errors import (
    EngineMissing,
    EngineStopped,
    NewerRecord,
    PerdureError,
    StartRefused,
    UnfitInput,
    error_kind,
)
from perdure.kernel.json_values import jsontext
from perdure.stores.errors import StoreError, StoreInUse, StoreNotEmpty
from perdure.views.api_errors import HINT_OF_REQUESTS, ApiError, PolicyDenied
from perdure.views.errors import BadRequest, ErrorFamily, family_of

MEDIA_TYPE = "application/problem+json"
POLICY_CODES = frozenset({"POLICY", "PolicyRefused"})  # problems of documents that the operator's policy causes

STATUS = {
    ErrorFamily.USAGE: 400,
    ErrorFamily.INVALID_DOCUMENT: 422,
    ErrorFamily.NOT_FOUND: 404,
    ErrorFamily.CONFLICT: 409,
    ErrorFamily.NOT_ALLOWED: 403,
    ErrorFamily.ENGINE_ERROR: 409,
}

TITLES = {
    400: "Malformed request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Request timeout",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Refused",
    429: "Too many requests",
    431: "Header too large",
    500: "Fault in the server",
    501: "Not offered",
    503: "Not ready",
}


class ServerFault(PerdureError):
    """A fault in the server; its log says more."""

    code = "UNEXPECTED"
    hint = "This is a fault in Perdure or in a loaded module; the log of the server says where."


def status_of(error: PerdureError) -> int:
    match error:
        case ApiError():
            return error.status
        case UnfitInput() | StartRefused():
            return 422
        case VersionConflict():
            return 412
        case StoreInUse() | StoreNotEmpty() | LeaseAnswered():
            return 409
        case LeaseGone():
            return 410
        case OwnerSilent() | StoreError() | NewerRecord() | EngineStopped() | EngineMissing():
            return 503
        case ServerFault():
            return 500
        case _:
            return STATUS[family_of(error)]


def as_policy_refusal(error: PerdureError) -> PerdureError:
    """A document that only the operator's policy refuses is not allowed; any other problem is the document's own."""
    problems = error.facts.get("problems")
    if isinstance(problems, list) and problems:
        errors = [problem for problem in problems if problem.get("severity", "error") == "error"]
        refused = [problem for problem in errors if problem["code"] in POLICY_CODES]
        if errors and len(refused) == len(errors):
            return PolicyDenied(refused[0]["message"], problems=problems)
    return error


def problem_json(error: PerdureError, request_id: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    error = as_policy_refusal(error)
    status = status_of(error)
    body: dict[str, Any] = {
        "type": f"/errors/{error.code}",
        "title": TITLES[status],
        "status": status,
        "detail": str(error),
        "code": error.code,
        "hint": HINT_OF_REQUESTS if error.advice == BadRequest.hint else error.advice,
        "request": request_id,
    }
    problems = error.facts.get("problems")
    if isinstance(problems, list):
        body["problems"] = problems
    if isinstance(run := error.facts.get("run"), str):
        body["run"] = run
    headers = {"Content-Type": MEDIA_TYPE}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="perdure"'
    if status in (429, 503):
        wait = error.retry_after if isinstance(error, ApiError) else None
        headers["Retry-After"] = str(max(1, wait or 1))
    if isinstance(allow := error.facts.get("allow"), str):
        headers["Allow"] = allow
    return status, headers, jsontext.encode(body)


def error_page(code: str) -> dict[str, Any] | None:
    """What an error means and what to do; None if there is no such code."""
    kind = error_kind(code)
    if kind is None:
        return None
    meaning = (kind.__doc__ or "").strip().partition("\n")[0]
    return {"code": code, "meaning": meaning, "hint": kind.hint, "page": f"docs/errors/{code}.md"}
