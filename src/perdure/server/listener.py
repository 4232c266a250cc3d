"""Listening for requests: the socket, the limit of connections, and an orderly stop."""

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from email.utils import formatdate
from typing import Any
from weakref import WeakSet

import uvicorn

from perdure.engine.clock import until_beat
from perdure.server.application import ApiServer, Application
from perdure.server.connection import Connection, ListenerState
from perdure.server.connection_counts import Acceptor, ConnectionCounts
from perdure.server.worker_protocol.stream_connections import LARGEST_FRAME
from perdure.server.worker_protocol.websocket_protocol import FrameTurns, WorkerProtocol
from perdure.views.errors import BadRequest

BACKLOG = 2_048
DESCRIPTORS_OF_THE_ENGINE = 1_024  # that connections leave to stores, tasks and subprocesses, if there are that many


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
