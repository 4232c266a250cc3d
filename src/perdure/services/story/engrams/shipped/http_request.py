"""`http-request`: one HTTP request, or all pages of a list, over the shared `http` provider."""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from perdure.expressions.gotemplate.durations import parse_duration
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Code
from perdure.providers.failure import ProviderFailure
from perdure.providers.http import http, timeouts_of
from perdure.providers.http_bodies import PREFIX, ResponseMemory
from perdure.providers.http_client import close_clients
from perdure.providers.task_outcomes import RESULT_LIMIT
from perdure.services.story.engrams.context import EngramContext
from perdure.services.story.engrams.engram_resources import template
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.engrams.paths import MISSING, follow
from perdure.services.story.engrams.registry import as_provider
from perdure.services.story.engrams.shipped import VERSION

_ANY_STATUS = list(range(100, 600))
_MAX_PAGES = 100

TEMPLATE = template(
    "http-request",
    VERSION,
    description="Sends an HTTP request, or fetches all pages of a list.",
    input_schema={
        "type": "object",
        "properties": {
            "url": {"type": "string"},
            "method": {"type": "string"},
            "params": {"type": "object"},
            "headers": {"type": "object"},
            "body": {},
            "defaultURL": {"type": "string"},
            "defaultMethod": {"type": "string"},
            "defaultHeaders": {"type": "object"},
            "timeout": {"type": "string"},
            "neverError": {"type": "boolean"},
            "redirects": {"type": "object"},
            "auth": {"type": "object"},
            "pagination": {"type": "object"},
            "queryParams": {"type": "object"},
            "response": {"type": "object"},
        },
    },
)


async def http_request(inputs: dict[str, Any], context: EngramContext) -> dict[str, Any]:
    for name in ("ignoreSSLIssues", "proxy"):
        if inputs.get(name):
            raise _invalid(f"{name} is not supported; configure it for the worker's process instead")
    url = inputs.get("url") or inputs.get("defaultURL")
    if not url:
        raise _invalid("url is required; set it in the step, or as defaultURL in the Engram")
    request = _Request(inputs, context, url)
    mode = (inputs.get("pagination") or {}).get("mode", "off")
    if mode == "off":
        return request.output(await request.send(url))
    if mode not in ("nextUrl", "updateParam"):
        raise _invalid(f"pagination.mode must be off, nextUrl or updateParam, not {mode!r}")
    async with ResponseMemory() as memory:
        return await _all_pages(request, mode, inputs["pagination"], memory)


class _Request:
    """What all pages have in common."""

    def __init__(self, inputs: Mapping[str, Any], context: EngramContext, url: str) -> None:
        self._inputs = inputs
        self._context = context
        self.url = url
        self.params = dict(inputs.get("params") or {})
        self._response = inputs.get("response") or {}
        self._never_fails = bool(inputs.get("neverError"))

    async def send(self, url: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        inputs = self._inputs
        body = inputs.get("body")
        headers, timeout = self._headers(), timeouts_of(_seconds(inputs.get("timeout", "10s")))
        content: dict[str, Any] = {"body": body} if isinstance(body, str) else {} if body is None else {"json": body}
        try:
            return await http(
                _RequestContext(self._context),  # type: ignore[arg-type]  # as much of a context as a request reads
                url,
                str(inputs.get("method") or inputs.get("defaultMethod") or "GET"),
                headers,
                _query_params(self.params if params is None else params, inputs),
                timeout=timeout,
                follow_redirects=(inputs.get("redirects") or {}).get("follow", True),
                expect=_ANY_STATUS if self._never_fails else list(range(100, 400)),
                **content,
            )
        except ProviderFailure as failure:
            raise _as_engram_error(failure) from None

    def output(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The step's output, in the form that `response` asks for."""
        options, status = self._response, answer["status"]
        result: dict[str, Any] = {}
        if options.get("includeStatus", True):
            result |= {"statusCode": status, "status": _status_text(status)}
        if options.get("includeHeaders", True):
            result["headers"] = answer["headers"]
        result[options.get("outputFieldName") or "body"] = self._body(answer)
        if self._never_fails and status >= 400:
            result["error"] = {"statusCode": status, "status": _status_text(status)}
        return result

    def _body(self, answer: dict[str, Any]) -> Any:
        body, form = answer["body"], self._response.get("format", "auto")
        match form:
            case "auto":
                return body
            case "text":
                return body if isinstance(body, str) else "" if body is None else jsontext.encode(body).decode()
            case "json":
                return _as_json(body)
            case "file":
                return _as_file(answer)
        raise _invalid(f"response.format must be auto, json, text or file, not {form!r}")

    def _headers(self) -> dict[str, str]:
        inputs = self._inputs
        merged = {**(inputs.get("defaultHeaders") or {}), **(inputs.get("headers") or {})}
        headers = {name.lower(): value if isinstance(value, str) else str(value) for name, value in merged.items()}
        auth = inputs.get("auth") or {}
        match auth.get("type"):
            case None:
                pass
            case "bearer":
                headers.setdefault("authorization", f"Bearer {self._secret('bearer_token')}")
            case "basic":
                pair = f"{self._secret('basic_username')}:{self._secret('basic_password')}"
                headers.setdefault("authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
            case "customHeader":
                if not auth.get("headerName"):
                    raise _invalid("auth.headerName is required with auth.type customHeader")
                headers.setdefault(auth["headerName"].lower(), self._secret("custom_header_value"))
            case other:
                raise _invalid(f"auth.type must be bearer, basic or customHeader, not {other!r}")
        return headers

    def _secret(self, key: str) -> str:
        """A key from any secret of the step: Stories map one secret or several."""
        for logical in self._context.secrets:
            try:
                return self._context.secrets[logical][key]
            except ProviderFailure as failure:
                if failure.code != Code.SECRET_MISSING:
                    raise
        raise EngramError(f"no secret of this step has the key {key!r}", type="initialization_error")


async def _all_pages(
    request: _Request, mode: str, settings: Mapping[str, Any], memory: ResponseMemory
) -> dict[str, Any]:
    """Fetch page after page until there is no next one; their results are concatenated."""
    results: list[Any] = []
    size = 0
    url, params = request.url, dict(request.params)
    update = settings.get("updateParam") or {}
    if mode == "updateParam" and not update.get("name"):
        raise _invalid("pagination.updateParam.name is required with mode updateParam")
    if mode == "updateParam" and "initialValue" in update:
        params[update["name"]] = update["initialValue"]
    for _ in range(int(settings.get("maxPages", _MAX_PAGES))):
        answer = await request.send(url, params)
        items = follow(answer["body"], settings.get("resultsPath", ""))
        page = items if isinstance(items, list) else []
        size += len(jsontext.encode(page))
        if size > RESULT_LIMIT:
            raise EngramError(f"the pages together have more than {RESULT_LIMIT} bytes", type="validation_error")
        await memory.reserve(size)
        results += page
        if mode == "nextUrl":
            next_url = follow(answer["body"], settings.get("nextURLPath", ""))
            if not isinstance(next_url, str) or not next_url:
                break
            url, params = _same_origin(url, next_url), {}
        elif not _next_page(params, update, answer["body"], page):
            break
    return request.output({**answer, "body": results})


def _next_page(params: dict[str, Any], update: Mapping[str, Any], body: Any, page: list[Any]) -> bool:
    """Set the parameter for the next page; False if this was the last."""
    name = update["name"]
    if update.get("type") == "cursor":
        cursor = follow(body, update.get("cursorPath", ""))
        if cursor is MISSING or cursor in (None, ""):
            return False
        params[name] = cursor
        return True
    if not page:
        return False
    params[name] = int(params.get(name, 0)) + int(update.get("increment", 1))
    return True


def _same_origin(url: str, next_url: str) -> str:
    """Check that a next page is on the same server: credentials must not be sent to another one."""
    target = urljoin(url, next_url)
    current, following = urlsplit(url), urlsplit(target)
    if (current.scheme, current.netloc) != (following.scheme, following.netloc):
        raise EngramError(f"the next page is at another origin ({following.netloc})", type="validation_error")
    return target


class _RequestContext:
    def __init__(self, context: EngramContext) -> None:
        self.idempotency_key = context.idempotency_key
        self.traceparent = context.traceparent


def _query_params(params: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Lists in the form that the server expects: `a=1&a=2`, `a[]=1&a[]=2` or `a[0]=1&a[1]=2`."""
    form = (inputs.get("queryParams") or {}).get("arrayFormat", "noBrackets")
    query: dict[str, Any] = {}
    for name, value in params.items():
        if not isinstance(value, list):
            query[name] = value
        elif form == "indices":
            query |= {f"{name}[{index}]": item for index, item in enumerate(value)}
        else:
            query[f"{name}[]" if form == "brackets" else name] = value
    return query


def _seconds(text: str) -> float:
    nanoseconds = parse_duration(text)
    if nanoseconds <= 0:
        raise _invalid(f"timeout must be positive, not {text!r}")
    return nanoseconds / 1e9


def _status_text(status: int) -> str:
    from http import HTTPStatus

    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _as_json(body: Any) -> Any:
    if not isinstance(body, str):
        return body
    try:
        return jsontext.read_strict(body.encode())
    except jsontext.NotJson as error:
        raise EngramError(f"the response is not JSON: {error}", type="serialization_error") from None


def _as_file(answer: dict[str, Any]) -> dict[str, Any]:
    body = answer["body"]
    if answer.get("body_encoding") == "base64":
        data = base64.b64decode(body)
    else:
        data = b"" if body is None else body.encode() if isinstance(body, str) else jsontext.encode(body)
    file = {"encoding": "base64", "data": base64.b64encode(data).decode(), "sizeBytes": len(data)}
    kind = answer["headers"].get("content-type")
    return file if kind is None else {**file, "contentType": kind}


def _as_engram_error(failure: ProviderFailure) -> EngramError:
    """A failed request as an EngramError."""
    facts = failure.details if isinstance(failure.details, dict) else {}
    status = facts.get("status")
    if failure.code == f"{PREFIX}.Timeout":
        return EngramError(failure.message, type="timeout", exit_class="retry", details=facts)
    kind = "rateLimited" if status == 429 else "retry" if failure.retryable else "terminal"
    return EngramError(failure.message, type="execution_error", exit_class=kind, code=failure.code, details=facts)


def _invalid(message: str) -> EngramError:
    return EngramError(message, type="validation_error", exit_class="terminal")


PROVIDER = as_provider(TEMPLATE, http_request, close=close_clients)
