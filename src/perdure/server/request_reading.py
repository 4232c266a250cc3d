"""Reads requests strictly: media types, sizes, JSON, members and parameters; whatever is unknown is refused."""

import asyncio
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.types import Scope

from perdure.kernel.json_values import jsontext
from perdure.views.api_errors import BodyTooLarge, NotAcceptable, RequestTimeout, UnknownMember, UnsupportedMediaType
from perdure.views.errors import BadRequest

if TYPE_CHECKING:
    from perdure.server.limits import RequestLimits
    from perdure.server.route_table import Route

JSON = "application/json"
SSE = "text/event-stream"
WHOLE = "perdure.whole"  # a member of the scope of a request whose body has arrived
ONCE = frozenset({b"host", b"origin"})  # whoever stands in between may count another one
LISTS = frozenset({b"accept", b"if-match", b"if-none-match", b"prefer"})  # written in several lines they are one list
DEEPEST = 128
MOST_VALUES = 500_000  # of a body

_NOT_AT_ALL = re.compile(r";\s*q\s*=\s*0(\.0{0,3})?\s*(;|$)", re.IGNORECASE)
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)


def check_accept(route: "Route", headers: Mapping[str, str]) -> bool:
    """Whether a stream is asked for; refused if nothing that we have is accepted."""
    accept = headers.get("accept")
    if accept is None:
        return False
    parts = [part for part in accept.split(",") if part.strip()]
    kinds = [_media_type(part) for part in parts if not _NOT_AT_ALL.search(part)]
    if route.streams and SSE in kinds:
        return True
    offered = {JSON, "application/*", "*/*", "application/problem+json"}
    if route.is_text:
        offered |= {route.text_type, "text/*"}
    is_refused = not route.is_text and any(_media_type(part) == JSON and _NOT_AT_ALL.search(part) for part in parts)
    if parts and (is_refused or not offered.intersection(kinds)):
        raise NotAcceptable(f"this is answered as {JSON}, and {accept[:80]!r} does not accept it")
    return False


def _media_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()


def read_headers(scope: Scope) -> dict[str, str]:
    """By their names in lower case; of one that is repeated the first, unless it says what the server is called."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        if name in ONCE and name.decode() in headers:
            raise BadRequest(f"the header has {name.decode()} more than once")
        if name in LISTS and name.decode() in headers:
            headers[name.decode()] += ", " + value.decode("latin-1")
        headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return headers


async def read_body(
    request: Request, headers: Mapping[str, str], limits: "RequestLimits", *, is_value: bool = False
) -> bytes:
    """The whole body, within its limits of size and time."""
    most = limits.value if is_value else limits.body
    declared = headers.get("content-length", "")
    if "transfer-encoding" not in headers and declared in ("", "0"):
        return b""  # no body was announced, and the connection takes what comes next for another request
    is_too_large = declared.isdigit() and int(declared) > most
    kept = -1 if is_too_large else most
    try:
        if WHOLE in request.scope:
            text = await _receive(request, kept, max(most, limits.discarded))
        else:
            async with asyncio.timeout(limits.read_seconds):
                text = await _receive(request, kept, max(most, limits.discarded))
    except TimeoutError:
        raise RequestTimeout(f"the body did not arrive within {limits.read_seconds:g} s") from None
    if text is None:
        raise BodyTooLarge(f"the body has more than {most} bytes")
    return text


async def _receive(request: Request, kept: int, most: int) -> bytes | None:
    """The body; None if it has more bytes than are kept. Then it is read on, to be thrown away, up to `most`."""
    parts: list[bytes] | None = [] if kept >= 0 else None
    size = 0
    is_more = True
    while is_more and size <= most:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the connection ended before the body did")
        is_more, part = message.get("more_body", False), message.get("body", b"")
        size += len(part)
        if size > kept:
            parts = None
        if parts is not None:
            parts.append(part)
    return None if parts is None else b"".join(parts)


def largest_body(route: "Route", headers: Mapping[str, str], limits: "RequestLimits") -> int:
    """The bytes that the body of a request may take: as many as it announces, or as it may have."""
    most, declared = limits.value if route.takes_value else limits.body, headers.get("content-length", "")
    if "transfer-encoding" in headers:
        return most
    return int(declared) if declared.isdigit() and len(declared) < 12 and int(declared) <= most else 0


def read_typed(route: "Route", headers: Mapping[str, str], text: bytes) -> tuple[Any, Any]:
    """The body as a JSON value, and as the type that the route takes."""
    assert route.body is not None
    value = read_json(route, headers, text)
    return value, convert_body(route.body, value)


def read_json(route: "Route", headers: Mapping[str, str], text: bytes) -> Any:
    """The body as a JSON value."""
    if not text.strip():
        if route.body_is_optional:
            return {}
        raise BadRequest("the request needs a body: a JSON object")
    content_type = headers.get("content-type", "")
    if (coding := headers.get("content-encoding", "identity").strip().lower()) != "identity":
        raise UnsupportedMediaType(f"the body must not be encoded, and is {coding[:40]!r}")
    if (charset := _CHARSET.search(content_type)) and charset[1].lower() not in ("utf-8", "utf8"):
        raise UnsupportedMediaType(f"the body must be UTF-8, not {charset[1][:40]!r}")
    media_type = _media_type(content_type)
    if media_type != JSON and (media_type or not route.takes_untyped_body):
        raise UnsupportedMediaType(f"the body must be {JSON}, not {media_type or 'without a media type'!r}")
    return read_json_text(text)


def read_json_text(text: bytes) -> Any:
    try:
        if len(text) > MOST_VALUES and jsontext.count_values(text, MOST_VALUES) > MOST_VALUES:
            raise BadRequest(f"the body contains more than {MOST_VALUES:,} values")
        value = jsontext.read_strict(text)
    except jsontext.NotJson as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if text.count(b"[") + text.count(b"{") > DEEPEST and _depth(value) > DEEPEST:
        raise BadRequest(f"the body is nested more than {DEEPEST} levels deep")
    return value


def _depth(value: Any) -> int:
    """Without recursion: the text comes from anybody."""
    deepest, level = 0, [value]
    while level and deepest <= DEEPEST:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        has_containers = any(isinstance(item, dict | list) for item in level)
        deepest += has_containers
        level = [item for item in below if isinstance(item, dict | list)]
    return deepest


def convert_body(kind: type, value: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _unfit(str(error), "the body") from None


def read_query(kind: type | None, raw: bytes) -> Any:
    """The parameters behind `?`, as a struct; one that may be repeated is a list.

    Unknown ones are refused, unless the struct ignores members that it does not know.
    """
    if not raw and kind is None:
        return None
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise BadRequest("the query of the address cannot be read") from None
    fields = {} if kind is None else {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, text in pairs:
        field = fields.get(name)
        if field is None:
            if kind is not None and not kind.__struct_config__.forbid_unknown_fields:  # type: ignore[attr-defined]
                continue
            raise UnknownMember(f"there is no parameter {name[:60]!r} here")
        if "\0" in text:
            raise BadRequest(f"the parameter {name!r} contains a NUL character")
        if msgspec.inspect.type_info(field.type).__class__ is msgspec.inspect.ListType:
            values.setdefault(name, []).append(text)
        elif name in values:
            raise BadRequest(f"the parameter {name!r} is repeated")
        else:
            values[name] = text
    if kind is None:
        return None
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _unfit(str(error), "the query") from None


def _unfit(message: str, place: str) -> Exception:
    if message.startswith("Object contains unknown field"):
        return UnknownMember(f"{place}: {message[0].lower()}{message[1:]}")
    return BadRequest(f"{place}: {message[0].lower()}{message[1:]}")


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    key = headers.get("idempotency-key")
    if key is None:
        return None
    if not (1 <= len(key) <= 255 and all("!" <= letter <= "~" for letter in key)):
        raise BadRequest("Idempotency-Key must be 1 to 255 visible ASCII characters")
    return key


def digest_of_request(request: Request, value: Any) -> bytes:
    """Of what is asked for under an Idempotency-Key."""
    query = request.scope.get("query_string", b"").decode("latin-1")
    asked = [request.method, request.scope["path"], value]
    return sha256(jsontext.canonical([*asked, query] if query else asked)).digest()


def preferred_wait(headers: Mapping[str, str], longest: int = 60) -> int | None:
    """`Prefer: wait=N`; more than the longest is the longest."""
    for preference in headers.get("prefer", "").split(","):
        name, _, value = preference.partition(";")[0].strip().partition("=")
        if name.strip().lower() == "wait":
            digits = value.strip().strip('"')
            if not (digits.isascii() and digits.isdigit()):
                raise BadRequest(f"Prefer: wait={value[:20]} is not a number of seconds")
            return min(int(digits[:6]), longest)
    return None
