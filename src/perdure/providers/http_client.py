"""HTTP for documents: checked addresses, bounded bodies, redirects that leak nothing, no shared cookies.

The client library is slow to import, so it is imported at the first request, in a thread; connections are shared by all
tasks of an event loop until the worker closes. Cookies live as long as one exchange.
"""

import asyncio
import logging
import re
import weakref
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING, Any

from perdure.kernel.outcomes import Code
from perdure.providers.addresses import check_host_name, resolve
from perdure.providers.failure import ProviderFailure
from perdure.providers.http_bodies import LARGEST_BODY, PIECE, PREFIX, ResponseMemory, read_body, too_much
from perdure.providers.policy import policy_in_force
from perdure.providers.text import hide

if TYPE_CHECKING:
    import ssl

    import httpcore
    import httpx


_MOST_REDIRECTS = 20
_MOST_HEADERS = 1000
_MOST_COOKIES = 100  # of one response
_NEXT_ADDRESS = 0.25  # seconds before the next address of a name is tried in parallel to one that has not answered yet
_KEPT_ACROSS_ORIGINS = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_INFORMATIONAL = re.compile(rb"\s*HTTP/1\.[01] 1(?!01)[0-9][0-9]\b")


async def exchange(
    request: "httpx.Request",
    client: "httpx.AsyncClient",
    memory: "ResponseMemory",
    *,
    follow_redirects: bool,
    max_bytes: int,
) -> tuple["httpx.Response", bytes]:
    """Send a request and read the whole response, after redirects. Raises httpx's errors and `ProviderFailure`."""
    import httpx

    cookies = httpx.Cookies()
    for _ in range(_MOST_REDIRECTS + 1):
        _check(request)
        cookies.set_cookie_header(request)
        response = await client.send(request, follow_redirects=False, stream=True)
        try:
            _check_head(response)
            following = response.next_request if follow_redirects else None
            if following is not None:
                cookies.extract_cookies(response)
            data = await read_body(response, min(max_bytes, LARGEST_BODY), memory) if following is None else b""
        finally:
            await response.aclose()
        if following is None:
            return response, data
        if _origin(request.url) != _origin(following.url):
            cookies.clear()  # they have no ports
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


def _check_head(response: "httpx.Response") -> None:
    """Libraries look up headers one by one, and each cookie takes time."""
    headers = response.headers.raw
    if len(headers) > _MOST_HEADERS:
        raise too_much(response, f"the answer has {len(headers)} headers, {_MOST_HEADERS} are read")
    cookies = sum(name.lower() == b"set-cookie" for name, _ in headers)
    if cookies > _MOST_COOKIES:
        raise too_much(response, f"the answer sets {cookies} cookies, {_MOST_COOKIES} are read")


def _too_many_headers() -> ProviderFailure:
    message = f"the answer has more than {_MOST_HEADERS} headers"
    return ProviderFailure(f"{PREFIX}.TooLarge", message, retryable=False)


def _strip(following: "httpx.Request") -> None:
    """Another origin gets none of the document's headers, no key and no body."""
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


_Clients = dict[bool, "Awaitable[httpx.AsyncClient]"]  # by whether they check certificates
_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = weakref.WeakKeyDictionary()


async def shared_client(*, verify: bool = True) -> "httpx.AsyncClient":
    """Connections whose certificates nobody checks are not shared with requests that want them checked."""
    if not verify and policy_in_force().checks_addresses:
        message = "certificates are always checked where the policy limits addresses: `verify` cannot be false"
        raise ProviderFailure(Code.NOT_ALLOWED, message, retryable=False)
    loop = asyncio.get_running_loop()
    clients = _clients.setdefault(loop, {})
    if verify not in clients:
        clients[verify] = loop.run_in_executor(None, partial(_new_client, verify=verify))
    # Shielded: the first task may be cancelled while others wait for the same client.
    return await asyncio.shield(clients[verify])


async def close_clients() -> None:
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await (await client).aclose()


class _NoCookies(CookieJar):
    """Runs share the client, but no cookies; parsing them takes time."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        pass


class _DiscreetFilter(logging.Filter):
    """Masks the secrets of the current task in what the client library logs: addresses and headers."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage().encode("utf-8", "surrogatepass")
        if (hidden := hide(message)) != message:
            record.msg, record.args = hidden.decode("utf-8", "replace"), ()
        return True


_DISCREET = _DiscreetFilter()
_LOGGERS = ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))


def _new_client(*, verify: bool) -> "httpx.AsyncClient":
    import ssl
    from urllib.request import getproxies

    import httpx

    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_DISCREET)  # a logger adds a filter only once
    policy = policy_in_force()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)  # the engine limits tasks in flight
    certificates = None if verify else ssl._create_unverified_context()
    options: dict[str, Any] = {"limits": limits, "proxy": policy.proxy, "verify": certificates or True}
    if policy.proxy is None and (policy.checks_addresses or not getproxies().keys() & {"http", "https", "all"}):
        trusts = not policy.checks_addresses
        transport = paced_transport(
            limits, trusts, lambda host, port: resolve(policy_in_force(), host, port), certificates
        )
        options = {"transport": transport, "trust_env": trusts}
    return httpx.AsyncClient(
        headers={"user-agent": "perdure", "accept-encoding": "gzip, deflate"},
        cookies=_NoCookies(),
        **options,
    )


async def as_written(host: str, port: int) -> Sequence[str]:
    """For hosts that the operator has named: every address of theirs is meant."""
    return [host]


def paced_transport(
    limits: "httpx.Limits",
    trust_env: bool,
    addresses_of: Callable[[str, int], Awaitable[Sequence[str]]],
    certificates: "ssl.SSLContext | None" = None,
) -> "httpx.AsyncBaseTransport":
    """Answers are read in short steps, and heads within a number of lines, which raises `ProviderFailure`.

    Connections go to the addresses that `addresses_of` finds for a name.
    """
    import httpcore
    import httpx

    class PacedStream(httpcore.AsyncNetworkStream):
        """Yields before each read, and reads little: the library takes long to process it.

        The library parses a head only when it is complete; so its lines are counted here.
        """

        def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
            self._inner = inner
            self._lines: int | None = 0  # of heads; None: the last one is complete
            self._head = b""  # what was read of the current one
            self._trailing = 0  # lines since the last piece of the body

        async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            await asyncio.sleep(0)
            data = await self._inner.read(min(max_bytes, PIECE), timeout)
            if self._lines is not None:
                self._count(data)
            elif self._trailing > _MOST_HEADERS:
                raise _too_many_headers()
            else:
                self._trailing += data.count(b"\n")
            return data

        def on_piece(self) -> None:
            """What was read was a part of the body; otherwise it is a trailer, which is parsed when it is complete."""
            self._trailing = 0

        def _count(self, data: bytes) -> None:
            """Any number of heads may announce the one of the answer (RFC 9110 §15.2): they count together."""
            begun, self._head = len(self._head), self._head + data
            while (end := _END_OF_HEAD.search(self._head, max(0, begun - 2))) is not None:
                self._add(self._head.count(b"\n", begun, end.end()))
                if _INFORMATIONAL.match(self._head) is None:
                    self._lines, self._head = None, b""
                    return
                begun, self._head = 0, self._head[end.end() :]
            self._add(self._head.count(b"\n", begun))

        def _add(self, lines: int) -> None:
            assert self._lines is not None
            self._lines += lines
            if self._lines > _MOST_HEADERS + 3:  # the first line and the empty one
                raise _too_many_headers()

        async def write(self, buffer: bytes, timeout: float | None = None) -> None:
            self._lines, self._head, self._trailing = 0, b"", 0
            await self._inner.write(buffer, timeout)

        async def aclose(self) -> None:
            await self._inner.aclose()

        async def start_tls(self, *rest: Any, **named: Any) -> httpcore.AsyncNetworkStream:
            return PacedStream(await self._inner.start_tls(*rest, **named))

        def get_extra_info(self, info: str) -> Any:
            return self._inner.get_extra_info(info)

    class PacedBackend(httpcore.AsyncNetworkBackend):
        def __init__(self) -> None:
            self._inner = httpcore.AnyIOBackend()

        async def connect_tcp(self, host: str, port: int, *rest: Any, **named: Any) -> httpcore.AsyncNetworkStream:
            try:
                addresses = await addresses_of(host, port)
            except OSError as error:
                raise httpcore.ConnectError(str(error)) from error
            return PacedStream(
                await _first([partial(self._inner.connect_tcp, address, port, *rest, **named) for address in addresses])
            )

        async def sleep(self, seconds: float) -> None:
            await self._inner.sleep(seconds)

    transport = httpx.AsyncHTTPTransport(trust_env=trust_env)
    transport._pool = httpcore.AsyncConnectionPool(  # httpx has no public interface for it
        ssl_context=certificates or httpx.create_ssl_context(trust_env=trust_env),
        max_connections=limits.max_connections,
        max_keepalive_connections=limits.max_keepalive_connections,
        keepalive_expiry=limits.keepalive_expiry,
        network_backend=PacedBackend(),
    )
    return transport


async def _first(
    connects: "list[Callable[[], Awaitable[httpcore.AsyncNetworkStream]]]",
) -> "httpcore.AsyncNetworkStream":
    """The first connection that succeeds: the next one starts when the one before has failed, or is slow (RFC 8305)."""
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
