"""Requests that get credentials: one answer, JSON where possible, or a sentence about what went wrong."""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.kernel.secrets.sealed_arguments import EnvelopeError
from perdure.providers.failure import ProviderFailure
from perdure.providers.http import Basic, Bearer, fetch


async def request_credential(
    entry: str,
    url: str,
    method: str = "GET",
    *,
    headers: Any = None,
    params: Any = None,
    data: Any = None,
    as_form: bool = False,
    auth: Mapping[str, Any] | None = None,
    token: str | None = None,
) -> Any:
    """The answer's body. `auth` is `{type: bearer | basic | api_key, …}`. Raises `EnvelopeError`."""
    sent = {str(name): str(value) for name, value in _map(entry, "headers", headers).items()}
    query = dict(_map(entry, "params", params))
    credential = Bearer(token) if token is not None else _credential(auth, sent, query)
    kind = next((value for name, value in sent.items() if name.lower() == "content-type"), "")
    content: dict[str, Any] = {}
    if isinstance(data, str):
        content["body"] = data
    elif isinstance(data, Mapping) and ("x-www-form-urlencoded" in kind or (as_form and "json" not in kind)):
        content["form"] = {str(name): value if isinstance(value, str) else str(value) for name, value in data.items()}
    elif data is not None:
        content["json"] = data
    try:
        answer = await fetch(url, method, sent, query or None, auth=credential, **content)
    except ProviderFailure as failure:
        reason = _reason(failure.details)
        raise EnvelopeError(
            "auth", f"{entry}: {failure.message}{reason}", retryable=failure.retryable is True
        ) from None
    except (msgspec.ValidationError, ValueError, TypeError) as problem:
        raise EnvelopeError("auth", f"{entry}: the request cannot be sent: {problem}") from None
    if answer["status"] >= 300:
        raise EnvelopeError("auth", f"{entry}: {url} answered {answer['status']}; redirects are not followed")
    return answer["body"]


def _map(entry: str, field: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise EnvelopeError("auth", f"{entry}: `{field}` must be a map")
    return value or {}


def _credential(
    auth: Mapping[str, Any] | None, headers: dict[str, str], params: dict[str, Any]
) -> Basic | Bearer | None:
    match auth:
        case {"type": "basic", "username": str(user), "password": str(password)}:
            return Basic(user, password)
        case {"type": "bearer", "token": str(token)}:
            return Bearer(token)
        case {"type": "api_key", "name": str(name), "value": str(value), "in": place}:
            (params if place == "query" else headers)[name] = value
    return None


def _reason(details: Any) -> str:
    """The reason that the server gives for a refusal, in one of the usual members."""
    body = details.get("body") if isinstance(details, dict) else None
    return f": {body[:200]}" if isinstance(body, str) and body else ""
