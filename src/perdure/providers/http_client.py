"""HTTP as documents cause it: judged addresses, bounded bodies, redirects that carry nothing away, no shared cookies.

The client library is heavy, so it is imported at the first request, in a thread; connections are shared by all tasks
of an event loop until the worker closes. Cookies live as long as one exchange.
"""

import asyncio
import weakref
import zlib
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from contextvars import ContextVar
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

from perdure.providers.addresses import check_host_name, resolve
from perdure.providers.failure import ProviderFailure
from perdure.providers.policy import policy_in_force
from perdure.providers.text import family_at_work

if TYPE_CHECKING:
    import httpcore
    import httpx

PREFIX = "Provider.Call.Http"
LARGEST_BODY = 64 * 1024 * 1024
"""Bytes that a body may have, as it is sent and as it is inflated, whatever a document asks for."""

_LARGE = 1024 * 1024  # bytes of an answer; of larger ones only so many are read at a time
_LARGE_AT_ONCE = 8
_LARGE_OF_A_FAMILY = 2
_MOST_REDIRECTS = 20
_NEXT_ADDRESS = 0.25  # seconds before the next address of a name is tried beside the one that has not answered yet
_KEPT_ACROSS_ORIGINS = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # the window bits by which zlib knows the format


async def exchange(
    request: "httpx.Request",
    client: "httpx.AsyncClient",
    memory: "ResponseMemory",
    *,
    follow_redirects: bool,
    max_bytes: int,
) -> tuple["httpx.Response", bytes]:
    """Send a request and read the whole answer, that of the last redirect.

    Raises httpx's errors and `ProviderFailure`.
    """
    import httpx

    cookies = httpx.Cookies()
    for _ in range(_MOST_REDIRECTS + 1):
        _check(request)
        cookies.set_cookie_header(request)
        response = await client.send(request, follow_redirects=False, stream=True)
        try:
            cookies.extract_cookies(response)
            following = response.next_request if follow_redirects else None
            data = await _read(response, min(max_bytes, LARGEST_BODY), memory) if following is None else b""
        finally:
            await response.aclose()
        if following is None:
            return response, data
        if _origin(request.url) != _origin(following.url):
            cookies.clear()  # they know no ports
            _strip(following)
        request = following
    raise httpx.TooManyRedirects(f"more than {_MOST_REDIRECTS} redirects", request=request)


def _check(request: "httpx.Request") -> None:
    import httpx

    if request.url.scheme not in ("http", "https") or not request.url.host:
        raise httpx.UnsupportedProtocol(f"{str(request.url)!r} is not an http or https URL")
    if (request.url.port or 0) > 65535:
        raise httpx.InvalidURL(f"there is no port {request.url.port}")
    policy = policy_in_force()
    if policy.proxy is not None and policy.checks_addresses:
        check_host_name(policy, request.url.host)


def _strip(following: "httpx.Request") -> None:
    """Another origin gets no header of the document's, no key and no body."""
    if following.headers.get("content-length", "0") != "0" or "transfer-encoding" in following.headers:
        target = following.url.copy_with(userinfo=b"", query=None)
        raise ProviderFailure(
            f"{PREFIX}.RedirectRefused",
            f"the answer redirects a {following.method} to another origin, {target}, where its body is not sent",
            retryable=False,
            details={"hint": "send the request to that address, if it is the one you mean"},
        )
    for name in list(following.headers):
        if name not in _KEPT_ACROSS_ORIGINS and name != "host":
            del following.headers[name]


def _origin(url: "httpx.URL") -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


class ResponseMemory:
    """Memory for one answer. A large one waits for its turn: of a family of runs some are read at a time.

    One inside of another, as for a page among pages, has the room of that one.
    """

    def __init__(self) -> None:
        self._held = ExitStack()

    async def __aenter__(self) -> "ResponseMemory":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._held.close()

    async def reserve(self, size: int) -> None:
        if size <= _LARGE or _has_reserved.get():
            return
        slots = _response_slots.setdefault(asyncio.get_running_loop(), _ResponseSlots())
        own = slots.of.setdefault(family_at_work.get(), asyncio.Semaphore(_LARGE_OF_A_FAMILY))
        for places in (own, slots.all):
            await places.acquire()
            self._held.callback(places.release)
        self._held.callback(_has_reserved.reset, _has_reserved.set(True))


class _ResponseSlots:
    """Those of one event loop."""

    def __init__(self) -> None:
        self.all = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.of: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()


_has_reserved: ContextVar[bool] = ContextVar("_has_reserved", default=False)
_response_slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _ResponseSlots] = weakref.WeakKeyDictionary()


async def _read(response: "httpx.Response", limit: int, memory: ResponseMemory) -> bytes:
    inflater = _Inflater(response, limit)
    received = 0
    async for piece in response.aiter_raw():
        received += len(piece)
        if received > limit:
            raise _too_large(response, limit)
        inflater.feed(piece)
        await memory.reserve(inflater.size)
    return inflater.end()


class _Inflater:
    """One coding, undone piece by piece, never further than the limit."""

    def __init__(self, response: "httpx.Response", limit: int) -> None:
        codings = [one.strip().lower() for one in response.headers.get("content-encoding", "").split(",")]
        codings = [one for one in codings if one not in ("", "identity")]
        self._response = response
        self._limit = limit
        self._data = bytearray()
        self._bits = _CODINGS.get(codings[0]) if len(codings) == 1 else None
        self._unknown = ", ".join(codings) if codings and self._bits is None else ""
        self._undo: Any = None
        self._is_begun = False

    @property
    def size(self) -> int:
        return len(self._data)

    def feed(self, piece: bytes) -> None:
        if self._unknown:
            message = f"the body is encoded as {self._unknown!r}; only one of gzip and deflate is read"
            raise ProviderFailure(f"{PREFIX}.BadEncoding", message, retryable=False, details=self._facts())
        if self._bits is None:
            self._keep(piece)
            return
        try:
            while piece:
                piece = self._inflate(piece)
        except zlib.error as error:
            message = f"the body is not what its content-encoding says: {error}"
            raise ProviderFailure(f"{PREFIX}.BadEncoding", message, retryable=False, details=self._facts()) from None

    def _inflate(self, piece: bytes) -> bytes:
        """What is left of the piece; a gzip body may have several members."""
        if self._undo is None:
            assert self._bits is not None
            self._undo = zlib.decompressobj(self._bits)
        try:
            data = self._undo.decompress(piece, self._limit + 1 - len(self._data))
        except zlib.error:
            if self._is_begun or self._bits != 15:
                raise
            self._bits = -15  # some servers send raw deflate
            self._undo = zlib.decompressobj(self._bits)
            data = self._undo.decompress(piece, self._limit + 1 - len(self._data))
        self._is_begun = True
        self._keep(data)
        if self._undo.eof:
            rest: bytes = self._undo.unused_data
            self._undo = None
            return rest if self._bits == 31 else b""
        tail: bytes = self._undo.unconsumed_tail
        return tail

    def _keep(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > self._limit:
            raise _too_large(self._response, self._limit)

    def end(self) -> bytes:
        if self._undo is not None and not self._undo.eof:
            message = "the encoded body ends too early"
            raise ProviderFailure(f"{PREFIX}.BadEncoding", message, retryable=True, details=self._facts())
        return bytes(self._data)

    def _facts(self) -> dict[str, Any]:
        return {"status": self._response.status_code}


def _too_large(response: "httpx.Response", limit: int) -> ProviderFailure:
    facts = {"status": response.status_code, "limit": limit}
    return ProviderFailure(
        f"{PREFIX}.TooLarge", f"the body has more than {limit} bytes", retryable=False, details=facts
    )


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, "Awaitable[httpx.AsyncClient]"] = (
    weakref.WeakKeyDictionary()
)


async def shared_client() -> "httpx.AsyncClient":
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        _clients[loop] = loop.run_in_executor(None, _new_client)
    # Shielded: the first task to come may be cancelled, those behind it wait for the same client.
    return await asyncio.shield(_clients[loop])


async def close_clients() -> None:
    if client := _clients.pop(asyncio.get_running_loop(), None):
        await (await client).aclose()


def _new_client() -> "httpx.AsyncClient":
    from urllib.request import getproxies

    import httpx

    policy = policy_in_force()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)  # the engine bounds tasks in flight
    options: dict[str, Any] = {"limits": limits, "proxy": policy.proxy}
    if policy.proxy is None and (policy.checks_addresses or not getproxies().keys() & {"http", "https", "all"}):
        trusts = not policy.checks_addresses
        options = {"transport": _checking_transport(limits, trusts), "trust_env": trusts}
    return httpx.AsyncClient(
        headers={"user-agent": "perdure", "accept-encoding": "gzip, deflate"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # takes none: runs share this client
        **options,
    )


def _checking_transport(limits: "httpx.Limits", trust_env: bool) -> "httpx.AsyncBaseTransport":
    """Names are resolved here, and connections go to the addresses that were judged."""
    import httpcore
    import httpx

    class JudgingBackend(httpcore.AsyncNetworkBackend):
        def __init__(self) -> None:
            self._inner = httpcore.AnyIOBackend()

        async def connect_tcp(self, host: str, port: int, *rest: Any, **named: Any) -> httpcore.AsyncNetworkStream:
            try:
                addresses = await resolve(policy_in_force(), host, port)
            except OSError as error:
                raise httpcore.ConnectError(str(error)) from error
            return await _first([partial(self._inner.connect_tcp, one, port, *rest, **named) for one in addresses])

        async def sleep(self, seconds: float) -> None:
            await self._inner.sleep(seconds)

    transport = httpx.AsyncHTTPTransport(trust_env=trust_env)
    transport._pool = httpcore.AsyncConnectionPool(  # httpx has no door for it; a test notices if that changes
        ssl_context=httpx.create_ssl_context(trust_env=trust_env),
        max_connections=limits.max_connections,
        max_keepalive_connections=limits.max_keepalive_connections,
        keepalive_expiry=limits.keepalive_expiry,
        network_backend=JudgingBackend(),
    )
    return transport


async def _first(
    connects: "list[Callable[[], Awaitable[httpcore.AsyncNetworkStream]]]",
) -> "httpcore.AsyncNetworkStream":
    """The first connection there is: each is begun when the one before it has failed, or takes its time (RFC 8305)."""
    begun: set[asyncio.Future[httpcore.AsyncNetworkStream]] = set()
    waiting = list(connects)
    try:
        while True:
            if waiting:
                begun.add(asyncio.ensure_future(waiting.pop(0)()))
            ended, begun = await asyncio.wait(
                begun, timeout=_NEXT_ADDRESS if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in ended:
                if attempt.exception() is None:
                    return attempt.result()
                if not begun and not waiting:
                    return attempt.result()
    finally:
        for attempt in begun:
            attempt.cancel()
        for end in await asyncio.gather(*begun, return_exceptions=True):
            if not isinstance(end, BaseException):
                await end.aclose()
