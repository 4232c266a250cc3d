"""The connection of a client to a server: requests that are sent again where that is safe, and errors by their code."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from copy import copy
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self

import httpx

from perdure.engine.handle import RunFailed
from perdure.kernel.errors import PerdureError, error_kind
from perdure.kernel.json_values import jsontext
from perdure.views.api_errors import HINT_OF_REQUESTS, ApiError, NotAuthenticated, ServerUnreachable, UnknownMember
from perdure.views.errors import BadRequest

API = "/api/v1"
POLL = 30  # seconds that one request waits for a result
RETRY_SECONDS = 30.0  # seconds in which a server that was there before may come back
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between tries
LARGEST_ANSWER = 128 * 1024 * 1024  # bytes of an answer, or of one event of a stream

TOKEN_HINT = "Give a token: --access-token @FILE, PERDURE_TOKEN, or the token of a context (`perdure context add`)."


def error_of(status: int, body: Any) -> PerdureError:
    """The error that the embedded engine would have raised, by its code."""
    problem = body if isinstance(body, dict) else {}
    message = str(problem.get("detail") or f"the server answered {status}")
    hint = str(problem.get("hint") or "")
    if hint == HINT_OF_REQUESTS:  # it is for those who write requests themselves
        hint = BadRequest.hint
    facts = {name: problem[name] for name in ("problems", "run") if name in problem}
    kind = error_kind(str(problem.get("code")))
    if kind is None or kind is PerdureError or kind is RunFailed:
        error = ApiError(message, hint=hint, **facts)
        error.__dict__["status"] = status
        return error
    error_of_kind = kind.__new__(kind)
    PerdureError.__init__(error_of_kind, message, hint=hint, **facts)
    return error_of_kind


async def read_answer(reply: httpx.Response) -> bytes:
    """The body as it was sent, up to a size: whoever answers for ever is not our server."""
    body = bytearray()
    async for part in reply.aiter_raw():
        body += part
        _check_size(len(body))
    return bytes(body)


async def read_lines(reply: httpx.Response) -> AsyncIterator[str]:
    """Lines of a stream as they come."""
    line = bytearray()
    async for part in reply.aiter_raw():
        *ended, rest = part.split(b"\n")
        for end in ended:
            line += end
            yield line.decode(errors="replace")
            line.clear()
        line += rest
        _check_size(len(line))


def _check_size(size: int) -> None:
    if size > LARGEST_ANSWER:
        raise ServerUnreachable(
            f"the server answers with more than {LARGEST_ANSWER} bytes",
            hint="Check the address; ask for less, by page.",
        )


def decode_answer(content: bytes) -> Any:
    try:
        return jsontext.decode(content) if content else None
    except (ValueError, RecursionError):
        raise ServerUnreachable(
            "the server's answer is not JSON", hint="Check the address, and what is between it and you."
        ) from None


class RetryPauses:
    """Pauses between tries, each longer than the one before, for so many seconds in all; None: for ever."""

    def __init__(self, seconds: float | None) -> None:
        self._left = seconds
        self._pause = FIRST_PAUSE

    async def pause(self) -> bool:
        """False: it has come to its end."""
        if self._left is not None and self._left <= 0:
            return False
        await asyncio.sleep(self._pause)
        self._left = None if self._left is None else self._left - self._pause
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        return True


class ServerConnection:
    """Requests to one server."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        ca: str | None = None,
        say: Callable[[str], None] = lambda text: None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`say` hears when the connection is lost and found again; `transport` reaches the server in another way."""
        headers = {"User-Agent": f"perdure/{version('perdure')}", "Accept-Encoding": "identity"}
        headers |= {} if token is None else {"Authorization": f"Bearer {token}"}
        verify: Any = True if ca is None else ca
        self.url = url.rstrip("/")
        self.say = say
        self.was_reached = False
        self._headers: dict[str, str] = {}
        try:
            self.http = httpx.AsyncClient(
                base_url=url,
                headers=headers,
                verify=verify,
                timeout=httpx.Timeout(POLL + 30, connect=10),
                trust_env=False,
                transport=transport,
            )
        except (OSError, httpx.InvalidURL) as error:
            raise ServerUnreachable(f"{self.url}: {error}") from None

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """The same connection, for requests that have these headers too."""
        other = copy(self)
        other._headers = {**self._headers, **headers}
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()

    async def call(self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str) -> Any:
        """One request of the API; what it answers, or the error that it is refused with.

        What changes something goes under a key, so that it can be sent again after a lost answer and counts once.
        """
        content = None if body is None else jsontext.encode(body)
        sent = self._headers | headers | ({} if content is None else {"Content-Type": "application/json"})
        is_safe = method == "GET" or key is not None
        if key is not None:
            sent["Idempotency-Key"] = key
        pauses = RetryPauses(RETRY_SECONDS if self.was_reached and is_safe else 0)
        while True:
            try:
                async with self.http.stream(method, path, content=content, headers=sent) as reply:
                    answer = await read_answer(reply)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                if not await pauses.pause():
                    raise self.unreachable(error) from None
                continue
            self.was_reached = True
            if reply.status_code == 503 and await pauses.pause():
                continue
            return self.read(reply.status_code, reply.headers, answer)

    def unreachable(self, error: Exception) -> ServerUnreachable:
        hint = "Check the address, and that the server runs: `perdure serve` prints its address."
        if "CERTIFICATE" in str(error).upper():
            hint = "Name the authority of its certificate with `ca` (PERDURE_CA, `perdure context add --ca FILE`)."
        return ServerUnreachable(f"the server {self.url} cannot be reached: {error or type(error).__name__}", hint=hint)

    def read(self, status: int, headers: Mapping[str, str], content: bytes) -> Any:
        theirs = headers.get("perdure-version", "")
        if not theirs:
            raise ServerUnreachable(
                f"{self.url} answers, but it is not a Perdure server",
                hint="Check the address and the port; a proxy in between must pass the header Perdure-Version on.",
            )
        value = decode_answer(content)
        if status < 400:
            return value
        error = error_of(status, value)
        if isinstance(error, NotAuthenticated):
            error.advice = TOKEN_HINT
        elif theirs != version("perdure") and (
            isinstance(error, UnknownMember) or error.code in ("ROUTE-NOT-FOUND", "METHOD-NOT-ALLOWED")
        ):
            ours = version("perdure")
            error.advice = f"The server {self.url} is Perdure {theirs}, this is {ours}: use the same release on both."
        raise error
