"""Listening for requests: the socket, the limits of connections and headers, and an orderly stop."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perdure.server.application import ApiServer, Application
from perdure.server.limits import RequestLimits
from perdure.server.problems import TITLES, problem_json
from perdure.views.api_errors import ApiError, HeaderTooLarge, RequestTimeout
from perdure.views.errors import BadRequest

BACKLOG = 2_048


class Connection(HttpToolsProtocol):
    """A connection whose requests have limits: their headers arrive whole, soon, and are not large."""

    limits: ClassVar[RequestLimits] = RequestLimits()
    open_connections: ClassVar[set["Connection"]] = set()

    _deadline: asyncio.TimerHandle | None = None
    _head = 0
    _in_head = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.open_connections) >= self.limits.connections:
            transport.abort()
            return
        self.open_connections.add(self)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.discard(self)
        self._end_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > self.limits.header and not self.transport.is_closing():
            self._refuse(HeaderTooLarge(f"the header has more than {self.limits.header} bytes"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:  # a further request on the same connection
            self._head = 0
            self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        size = sum(len(one) + len(other) + 4 for one, other in self.headers)
        if size > self.limits.header and not self.transport.is_closing():
            self._refuse(HeaderTooLarge(f"the header has more than {self.limits.header} bytes"))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._end_deadline()
        if not self.transport.is_closing():
            super().on_headers_complete()

    def _await_head(self) -> None:
        self._in_head = True
        self._end_deadline()
        self._deadline = self.loop.call_later(self.limits.read_seconds, self._too_slow)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        if self._in_head and not self.transport.is_closing():
            if self._head:
                self._refuse(RequestTimeout("the header did not arrive in time"))
            else:
                self.transport.close()

    def _refuse(self, refusal: ApiError) -> None:
        status, headers, body = problem_json(refusal, "")
        fields = {**headers, "Content-Length": str(len(body)), "Connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.transport.write(f"HTTP/1.1 {status} {TITLES[status]}\r\n{head}\r\n".encode() + body)
        self.transport.close()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the command's business."""
        yield


def bind(host: str, port: int) -> socket.socket:
    """The socket; whoever connects waits until the server answers."""
    name = host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)  # now: until somebody listens, others can bind to the same address
    except OSError as error:
        reason = error.strerror or str(error)
        raise AddressUnusable(f"cannot listen on {host}:{port}: {reason}") from None
    listening.setblocking(False)
    return listening


class AddressUnusable(BadRequest):
    """The address cannot be listened on: another process has it, or it is none of this machine's."""

    hint = "Choose another one: --listen HOST:PORT; port 0 picks a free one."


@asynccontextmanager
async def listening(
    server: ApiServer, listener: socket.socket, grace: float, context: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Answers requests inside; at the end whoever is under way is answered first, for half of the grace."""
    Connection.limits = server.limits
    config = uvicorn.Config(
        Application(server),
        loop="none",
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=max(1, int(grace / 2)),
    )
    config.load()
    config.ssl = context
    logging.getLogger(f"{uvicorn.__name__}.error").setLevel(logging.ERROR)  # its own, not one of ours
    http = _Server(config)
    serving = asyncio.ensure_future(http.serve(sockets=[listener]))
    try:
        while not http.started:
            if serving.done():
                serving.result()
                raise AddressUnusable("the server could not listen")
            await asyncio.sleep(0.005)
        yield
    finally:
        server.stop()
        http.should_exit = True
        await asyncio.wait({serving}, timeout=max(2.0, grace))
        if not serving.done():
            http.force_exit = True
            serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
