"""Listening for requests: the socket, the limits of connections and headers, and an orderly stop."""

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from email.utils import formatdate
from typing import Any, ClassVar
from weakref import WeakSet

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from perdure.engine.clock import until_beat
from perdure.kernel.errors import PerdureError
from perdure.server.application import ApiServer, Application
from perdure.server.connection_counts import Acceptor, ConnectionCounts
from perdure.server.limits import RequestLimits
from perdure.server.problems import TITLES, problem_json
from perdure.server.request_reading import WHOLE
from perdure.server.worker_protocol.stream_connections import LARGEST_FRAME
from perdure.server.worker_protocol.websocket_protocol import FrameTurns, WorkerProtocol
from perdure.views.api_errors import HeaderTooLarge, RequestTimeout
from perdure.views.errors import BadRequest

BACKLOG = 2_048
MOST_FIELDS = 200  # of the header of a request
PART = 16 * 1024  # bytes of what has arrived that are read before it is asked whether to go on
MOST_WAITING = 100  # requests of a connection that wait for the answer to the one before
DESCRIPTORS_OF_THE_ENGINE = 1_024  # that connections leave to stores, tasks and subprocesses, if there are that many


class JoiningTransport:
    """A transport that writes once what is written in one turn of the event loop: head and body of an answer."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def get_write_buffer_size(self) -> int:
        size: int = self._transport.get_write_buffer_size()
        return size + sum(map(len, self._parts))

    def close(self) -> None:
        self._flush()
        self._transport.close()


class ListenerState(ServerState):
    """What connections share. `connected` is called with each new one, before its first request."""

    def __init__(self, connected: Callable[[], None]) -> None:
        super().__init__()
        self.connected = connected


class Connection(HttpToolsProtocol):
    """A connection whose requests have limits: their headers arrive whole, soon, and are not large."""

    limits: ClassVar[RequestLimits] = RequestLimits()
    version: ClassVar[str] = ""

    _deadline: asyncio.TimerHandle | None = None
    _watch: asyncio.TimerHandle | None = None
    _head = 0  # bytes that arrived since the head began
    _size = 0  # bytes of its fields
    _beside = 0  # bytes that arrived behind the head since the last ones of the body: the trailer, or nothing at all
    _in_head = True
    _is_passed_on = False  # to another protocol
    _answered_at: float | None = None  # since when no request is under way
    _unread = 0  # bytes of answers that nobody had read at the last look

    def connection_made(self, transport: Any) -> None:
        if isinstance(self.server_state, ListenerState):
            self.server_state.connected()
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]
        self._await_head()
        self._watch = self.loop.call_later(self.limits.read_seconds, self._check_progress)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for begin in range(0, len(data), PART):  # it may be thousands of requests
            self._read(data[begin : begin + PART])
            if self._is_passed_on or self.transport.is_closing():
                return

    def _read(self, data: bytes) -> None:
        if self._in_head:
            self._head += len(data)
        else:
            self._beside += len(data)
        super().data_received(data)
        if self._is_passed_on or self.transport.is_closing():
            return
        if not self._in_head:
            self._check_trailer()
        elif self._head > self.limits.header:
            self._refuse(HeaderTooLarge(f"the header has more than {self.limits.header} bytes"))
        elif self._deadline is None:  # most arrive whole, and need none
            self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:  # a further request on the same connection
            self._head = self._size = self._beside = 0
            self._in_head = True

    def on_body(self, body: bytes) -> None:
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope[WHOLE] = True  # type: ignore[literal-required]

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is refused as everything else is."""
        self._refuse(BadRequest("this is not an HTTP request"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a trailer is not read: whoever stands in between judged the head
            super().on_header(name, value)
        self._size += len(name) + len(value) + 4
        if self.transport.is_closing():
            return
        if self._size > self.limits.header:
            self._refuse(HeaderTooLarge(f"the header has more than {self.limits.header} bytes"))
        elif len(self.headers) > MOST_FIELDS:
            self._refuse(HeaderTooLarge(f"the header has more than {MOST_FIELDS} fields"))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._answered_at = None
        self._end_deadline()
        if len(self.pipeline) >= MOST_WAITING:
            self.transport.abort()
        if not self.transport.is_closing():
            super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        """The connection is another protocol's from now on, which looks after it."""
        self._end_deadline()
        if self._watch is not None:
            self._watch.cancel()
        self._is_passed_on = True
        super().handle_websocket_upgrade()

    def _check_trailer(self) -> None:
        """Its fields are put together piece by piece, which takes the longer the longer they are."""
        if self._beside > self.limits.header and self.cycle.response_started:
            self.transport.abort()
        elif self._beside > self.limits.header:
            self._refuse(HeaderTooLarge(f"the trailer has more than {self.limits.header} bytes"))

    def _await_head(self) -> None:
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

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self._answered_at = self.loop.time()
        super().on_response_complete()
        if self.pipeline:  # nothing more is read meanwhile
            self.flow.pause_reading()

    def _check_progress(self) -> None:
        """Cut off whoever does not read its answer, or sends bytes that never become a request: it takes a place."""
        unread = self.transport.get_write_buffer_size()
        is_idle = self._answered_at is not None and self.loop.time() - self._answered_at >= self.limits.read_seconds
        if (unread and unread >= self._unread > 0) or (is_idle and not unread):
            self.transport.abort()
            return
        self._unread = unread
        self._watch = self.loop.call_later(self.limits.read_seconds, self._check_progress)

    def _refuse(self, refusal: PerdureError) -> None:
        status, headers, body = problem_json(refusal, "")
        own = {"Perdure-Version": self.version, "Cache-Control": "no-store", "Connection": "close"}
        fields = {**headers, "Content-Length": str(len(body)), **own}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.transport.write(f"HTTP/1.1 {status} {TITLES[status]}\r\n{head}\r\n".encode() + body)
        self.transport.close()


class CountingSocket(socket.socket):
    """A socket that accepts no more connections than there are places: each takes a descriptor from the engine.

    They are counted when they are accepted: one that never begins its TLS handshake takes a descriptor too.
    """

    most = 0
    accepted: "WeakSet[CountedConnection]"
    count_changed: "Callable[[], None] | None" = None

    def accept(self) -> tuple[socket.socket, Any]:
        descriptor, address = self._accept()  # type: ignore[attr-defined]
        connection = CountedConnection(self.family, self.type, self.proto, fileno=descriptor)
        if len(self.accepted) >= self.most:
            connection.close()
            raise ConnectionAbortedError("there are too many connections")
        connection.counted_by = self
        self.accepted.add(connection)
        return connection, address


class CountedConnection(socket.socket):
    """A connection that frees its place when it is closed."""

    counted_by: CountingSocket | None = None

    def close(self) -> None:
        if self.counted_by is not None:
            self.counted_by.accepted.discard(self)
            if self.counted_by.count_changed is not None:
                self.counted_by.count_changed()
        super().close()


def places_for_connections(most: int) -> int:
    """How many connections there may be: the engine keeps its descriptors, or half of them if there are few."""
    needed = most + DESCRIPTORS_OF_THE_ENGINE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < needed:
        soft = needed if hard == unlimited else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return most if soft == unlimited else min(most, max(soft - DESCRIPTORS_OF_THE_ENGINE, soft // 2))


class _Server(uvicorn.Server):
    counts: ConnectionCounts | None = None
    _acceptor: Acceptor | None = None

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._woken = asyncio.Event()
        self._is_resting = False
        self.server_state = ListenerState(self._be_connected)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the command's business."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.counts is None:
            await super().startup(sockets)
            return
        assert sockets is not None
        (listener,) = sockets
        assert isinstance(listener, CountingSocket)
        await super().startup([])
        self._acceptor = Acceptor(listener, self.counts, self._make_connection, self.config.ssl)

    def _make_connection(self) -> asyncio.Protocol:
        return Connection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def main_loop(self) -> None:
        """Once a second the date of answers is set, while anybody is connected."""
        while not self.should_exit:
            self._set_date()
            self._is_resting = not self.server_state.connections
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._is_resting else until_beat(1.0)):
                    await self._woken.wait()
            self._woken.clear()

    def _set_date(self) -> None:
        date = formatdate(time.time(), usegmt=True).encode()
        self.server_state.default_headers = [(b"date", date), *self.config.encoded_headers]

    def _be_connected(self) -> None:
        if self._is_resting:
            self._is_resting = False
            self._set_date()
            self._woken.set()

    def end(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        self.should_exit = True
        self._woken.set()


def bind(host: str, port: int) -> CountingSocket:
    """The socket; whoever connects waits until the server answers."""
    name = host.strip("[]")
    listening: CountingSocket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        listening = CountingSocket(family, kind, protocol)
        listening.accepted = WeakSet()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)  # now: until somebody listens, others can bind to the same address
    except OSError as error:
        if listening is not None:
            listening.close()
        reason = error.strerror or str(error)
        raise AddressUnusable(f"cannot listen on {host}:{port}: {reason}") from None
    listening.setblocking(False)
    return listening


class AddressUnusable(BadRequest):
    """The address cannot be listened on: another process has it, or it is none of this machine's."""

    hint = "Choose another one: --listen HOST:PORT; port 0 picks a free one."


@asynccontextmanager
async def listening(
    server: ApiServer,
    listener: CountingSocket,
    grace: float,
    context: ssl.SSLContext | None = None,
    drain_delay: float = 0.0,
    counts: ConnectionCounts | None = None,
) -> AsyncIterator[None]:
    """Answers requests inside; at the end whoever is under way is answered first, for half of the grace.

    With `counts` other processes listen on the same socket.
    """
    Connection.limits, Connection.version = server.limits, server.version
    WorkerProtocol.turns = FrameTurns(asyncio.get_running_loop())
    listener.most = places_for_connections(server.limits.connections)
    config = uvicorn.Config(
        Application(server),
        loop="none",
        http=Connection,
        ws=WorkerProtocol,
        ws_max_size=LARGEST_FRAME,
        ws_per_message_deflate=False,
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
    http.counts = counts
    serving = asyncio.ensure_future(http.serve(sockets=[listener]))
    try:
        while not http.started:
            if serving.done():
                serving.result()
                raise AddressUnusable("the server could not listen")
            await asyncio.sleep(0.005)
        yield
    finally:
        server.is_draining = True  # /readyz says so; whoever distributes requests needs a moment to look
        await asyncio.sleep(drain_delay)
        server.stop()
        http.end()
        await asyncio.wait({serving}, timeout=max(2.0, grace))
        if not serving.done():
            http.force_exit = True
            serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
