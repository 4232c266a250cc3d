"""`http`: one request and its response, or a failure that says what to do."""

import asyncio
import base64
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.jsontext import MOST_VALUES, has_too_many_values
from perdure.kernel.lazy_regex import lazy_regex
from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.http_bodies import PREFIX, ResponseMemory, too_much
from perdure.providers.http_client import close_clients, exchange, shared_client
from perdure.providers.off_loop import aside
from perdure.providers.registry import Provider
from perdure.providers.text import READ_AT_ONCE, excerpt, is_quick, readable

if TYPE_CHECKING:
    import httpx

Scalar = str | int | float | bool
_T = TypeVar("_T")

_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})  # RFC 9110 §9.2.2: idempotent by definition
_OF_CONNECTIONS = frozenset(
    [
        *("connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        "upgrade",
    ]
)
"""Headers that documents cannot set: runs share connections, and these delimit requests."""
_MOST_HEADERS = 200  # of a request; the library compares each with all the others
_MOST_IN_HEADERS = 256 * 1024  # characters
_MOST_PARAMETERS = 5000
_FIELDS_AT_ONCE = 1000  # of a form; a larger one is written in a thread
_LONGEST_CONTENT_TYPE = 1000  # characters in which a charset is looked for
_CHARSET = lazy_regex(
    r"(?i);\s{0,9}charset\s{0,9}=\s{0,9}(?:[\"'](?P<quoted>[^\"']{1,60})[\"']|(?P<plain>[^\s;\"']{1,60}))"
)
_LONGEST_WAIT = 10.0**9  # seconds; what is meant by more is not a time
_TELLING_HEADERS = ("content-type", "content-length", "retry-after", "location", "www-authenticate", "x-request-id")


class Basic(msgspec.Struct, tag="basic", tag_field="type", forbid_unknown_fields=True):
    username: str
    password: str


class Bearer(msgspec.Struct, tag="bearer", tag_field="type", forbid_unknown_fields=True):
    token: str


class HttpTimeouts(msgspec.Struct, forbid_unknown_fields=True):
    """Seconds. `read` bounds the wait for the next piece, `total` the whole exchange."""

    connect: float = 10.0
    read: float = 30.0
    total: float = 60.0


def timeouts_of(timeout: HttpTimeouts | float | None) -> HttpTimeouts:
    """A number bounds the whole exchange, and a server may take all of it to answer."""
    if timeout is None or isinstance(timeout, HttpTimeouts):
        return timeout or HttpTimeouts()
    return HttpTimeouts(read=timeout, total=timeout)


async def http(
    context: TaskContext,
    url: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    params: dict[str, Scalar | list[Scalar]] | None = None,
    json: Any = msgspec.UNSET,
    form: dict[str, str] | None = None,
    body: str | None = None,
    auth: Basic | Bearer | None = None,
    timeout: HttpTimeouts | float | None = None,
    follow_redirects: bool = True,
    max_bytes: int = 16 * 1024 * 1024,
    expect: list[int] | None = None,
    verify: bool = True,
) -> dict[str, Any]:
    """Send one request; return status, headers and body, JSON bodies parsed.

    A status outside `expect` (default: anything below 400) is the failure `Provider.Call.Http.Status<code>`. Requests
    that are not idempotent by their method carry the task's key as `Idempotency-Key`.
    """
    times = timeouts_of(timeout)
    method = method.upper()
    sent = _headers(headers, auth, method, context.idempotency_key)
    if context.traceparent:
        sent.setdefault("traceparent", context.traceparent)
    is_much = jsontext.is_large(json) or len(form or ()) > _FIELDS_AT_ONCE or len(body or "") > READ_AT_ONCE
    content = await aside(_content, json, form, body, sent) if is_much else _content(json, form, body, sent)
    return await _exchange(method, url, sent, params, content, times, follow_redirects, max_bytes, expect, verify)


async def fetch(
    url: str,
    method: str,
    headers: dict[str, str],
    params: dict[str, Scalar | list[Scalar]] | None = None,
    json: Any = msgspec.UNSET,
    form: dict[str, str] | None = None,
    body: str | None = None,
    auth: Basic | Bearer | None = None,
) -> dict[str, Any]:
    """The same for requests without a task: those that get credentials. They can be repeated."""
    sent = _headers(headers, auth, "GET", "")
    content = _content(json, form, body, sent)
    return await _exchange(
        method.upper(), url, sent, params, content, HttpTimeouts(), follow_redirects=False, max_bytes=1 << 20
    )


async def download(url: str, method: str, headers: dict[str, str], seconds: float, max_bytes: int) -> bytes:
    """The body alone, following redirects. Any status from 400 on is a failure."""
    sent = _headers(headers, None, "GET", "")
    async with ResponseMemory() as memory:
        times = timeouts_of(seconds)
        response, data = await _send(method.upper(), url, sent, None, {}, times, True, max_bytes, memory)
        if response.status_code >= 400:
            raise await _aside(_unexpected, response, data)
        return data


async def _exchange(
    method: str,
    url: str,
    sent: dict[str, str],
    params: dict[str, Scalar | list[Scalar]] | None,
    content: dict[str, Any],
    times: HttpTimeouts,
    follow_redirects: bool,
    max_bytes: int,
    expect: list[int] | None = None,
    verify: bool = True,
) -> dict[str, Any]:
    async with ResponseMemory() as memory:  # until the response is read, which takes more memory than it has bytes
        response, data = await _send(
            method, url, sent, params, content, times, follow_redirects, max_bytes, memory, verify
        )
        is_expected = response.status_code in expect if expect else response.status_code < 400
        if not is_expected:
            raise await _aside(_unexpected, response, data)
        return await _aside(_result, response, data)


async def _aside(read: "Callable[[httpx.Response, bytes], _T]", response: "httpx.Response", data: bytes) -> _T:
    """In a thread, if it takes long."""
    return read(response, data) if is_quick(len(data)) else await aside(read, response, data)


async def _send(
    method: str,
    url: str,
    sent: dict[str, str],
    params: dict[str, Scalar | list[Scalar]] | None,
    content: dict[str, Any],
    times: HttpTimeouts,
    follow_redirects: bool,
    max_bytes: int,
    memory: ResponseMemory,
    verify: bool = True,
) -> tuple["httpx.Response", bytes]:
    if sum(len(value) if isinstance(value, list) else 1 for value in (params or {}).values()) > _MOST_PARAMETERS:
        message = f"more than {_MOST_PARAMETERS} parameters do not fit into a URL"
        raise ProviderFailure(f"{PREFIX}.BadUrl", message, retryable=False)
    client = await shared_client(verify=verify)
    import httpx

    try:
        async with asyncio.timeout(times.total):
            request = client.build_request(
                method,
                httpx.URL(url).copy_merge_params(params or {}),  # a query in the URL is kept
                headers=sent,
                timeout=httpx.Timeout(times.read, connect=times.connect),
                **content,
            )
            return await exchange(request, client, memory, follow_redirects=follow_redirects, max_bytes=max_bytes)
    except TimeoutError:
        raise _timed_out("total", times.total) from None
    except (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict) as error:
        raise _broken(error, times) from None
    except (UnicodeError, ValueError, TypeError) as error:  # an illegal header or URL, found while encoding
        raise ProviderFailure(f"{PREFIX}.BadRequest", f"the request cannot be sent: {error}", retryable=False) from None


def _content(json: Any, form: dict[str, str] | None, body: str | None, sent: dict[str, str]) -> dict[str, Any]:
    """What is sent; the header that says what it is goes with the others."""
    fields: list[dict[str, Any]] = []
    if json is not msgspec.UNSET:
        fields.append({"content": jsontext.encode(json)})
        sent.setdefault("content-type", "application/json")
    if form is not None:
        fields.append({"content": urlencode(form).encode()})
        sent.setdefault("content-type", "application/x-www-form-urlencoded")
    if body is not None:
        fields.append({"content": body.encode()})
    if len(fields) > 1:
        raise ProviderFailure(f"{PREFIX}.BadArguments", "give one of json, form and body", retryable=False)
    return fields[0] if fields else {}


def _headers(
    own_headers: Mapping[str, str] | None, auth: Basic | Bearer | None, method: str, key: str
) -> dict[str, str]:
    own_headers = own_headers or {}
    size = sum(len(name) + len(value) for name, value in own_headers.items())
    if len(own_headers) > _MOST_HEADERS or size > _MOST_IN_HEADERS:
        message = f"more than {_MOST_HEADERS} headers, or {_MOST_IN_HEADERS} characters in them, are not sent"
        raise ProviderFailure(f"{PREFIX}.BadArguments", message, retryable=False)
    headers = {name.lower(): value for name, value in own_headers.items() if name.lower() not in _OF_CONNECTIONS}
    if isinstance(auth, Bearer):
        headers["authorization"] = f"Bearer {auth.token}"
    elif isinstance(auth, Basic):
        pair = base64.b64encode(f"{auth.username}:{auth.password}".encode()).decode()
        headers["authorization"] = f"Basic {pair}"
    if method not in _REPEATABLE:
        headers.setdefault("idempotency-key", key)
    return headers


def _result(response: "httpx.Response", data: bytes) -> dict[str, Any]:
    result: dict[str, Any] = {"status": response.status_code, "headers": _joined(response), "body": None}
    if not data:
        return result
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        if has_too_many_values(data):
            raise too_much(response, f"the body has more than {MOST_VALUES} values", values=MOST_VALUES)
        try:
            result["body"] = jsontext.read_strict(data)
        except jsontext.NotJson as error:
            message = f"the body is declared as {kind} but is not: {error}"
            facts = _facts(response, data)
            raise ProviderFailure(f"{PREFIX}.InvalidJson", message, retryable=False, details=facts) from None
        return result
    result["body"], encoding = readable(data, charset=_charset(response.headers.get("content-type", "")))
    if encoding:
        result["body_encoding"] = encoding
    return result


def _charset(content_type: str) -> str:
    """The library's own function takes long to read a long header."""
    match = _CHARSET.search(content_type[:_LONGEST_CONTENT_TYPE])
    return (match["quoted"] or match["plain"]).strip() if match else "utf-8"


def _joined(response: "httpx.Response") -> dict[str, str]:
    """Headers by name. The library's own mapping reads all of them for each name."""
    headers: dict[str, list[str]] = {}
    for name, value in response.headers.multi_items():
        headers.setdefault(name, []).append(value)
    return {name: ", ".join(values) for name, values in headers.items()}


def _unexpected(response: "httpx.Response", data: bytes) -> ProviderFailure:
    status = response.status_code
    reason = f" {response.reason_phrase}" if response.reason_phrase else ""
    is_passing = status in (408, 425, 429) or status >= 500
    return ProviderFailure(
        f"{PREFIX}.Status{status}",
        f"{response.request.method} {response.url.copy_with(query=None, userinfo=b'')} answered {status}{reason}",
        retryable=is_passing,
        details=_facts(response, data),
    )


def _facts(response: "httpx.Response", data: bytes) -> dict[str, Any]:
    headers = {name: response.headers[name] for name in _TELLING_HEADERS if name in response.headers}
    facts: dict[str, Any] = {"status": response.status_code, "headers": headers, "body": excerpt(data)}
    if (seconds := _retry_after(response.headers.get("retry-after"))) is not None:
        facts["retry_after"] = seconds
    return facts


def _retry_after(text: str | None) -> float | None:
    """Seconds; RFC 9110 §10.2.3 also allows a date."""
    if text is None:
        return None
    if text.isascii() and text.strip().isdigit():
        return min(float(text), _LONGEST_WAIT)
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        at = parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _timed_out(phase: str, seconds: float) -> ProviderFailure:
    facts = {"phase": phase, "seconds": seconds}
    message = f"no answer within {seconds} s ({phase} timeout)"
    return ProviderFailure(f"{PREFIX}.Timeout", message, retryable=True, details=facts)


def _broken(error: Exception, times: HttpTimeouts) -> ProviderFailure:
    import httpx

    match error:
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            return _timed_out("connect", times.connect)
        case httpx.TimeoutException():
            return _timed_out("read", times.read)
        case httpx.InvalidURL() | httpx.UnsupportedProtocol():
            code, retryable = "BadUrl", False
        case httpx.ConnectError() if _is_tls(error):
            code, retryable = "TlsFailed", False
        case httpx.TooManyRedirects():
            code, retryable = "TooManyRedirects", False
        case httpx.NetworkError():
            code, retryable = "ConnectionFailed", True
        case httpx.RemoteProtocolError() | httpx.ProxyError():
            code, retryable = "ProtocolError", True
        case _:
            code, retryable = "BadRequest", False
    message = str(error) or type(error).__name__
    return ProviderFailure(f"{PREFIX}.{code}", message, retryable=retryable, details={"error": type(error).__name__})


def _is_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


PROVIDER = Provider.of("http", http, close=close_clients)
