"""A server that commands and workers are told to ask may be another one than they think: it gets little from them."""

import asyncio
import gzip
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import perdure
from perdure.server.api_client import server_connection
from perdure.server.worker_protocol.stream_client import StreamWorker
from perdure.server.worker_protocol.worker_client import ServerSource
from perdure.views.api_errors import ServerUnreachable

VERSION = b"Perdure-Version: 0.1.0\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\n" + VERSION + b"Content-Type: text/event-stream\r\n\r\n"


@contextmanager
def answering(answer: Callable[[Any, bytes], None]) -> Iterator[str]:
    """A server that answers each request as it likes; its address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                answer(self.request, self.request.recv(1 << 16))
            except OSError:
                pass  # nobody listens any more

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def endless(connection: Any, request: bytes) -> None:
    connection.sendall(EVENTS if b"event-stream" in request else b"HTTP/1.1 200 OK\r\n" + VERSION + b"\r\n")
    for _ in range(1_000):
        connection.sendall(b"x" * (1 << 20))


async def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, followers and workers kept everything that came in memory."""
    monkeypatch.setattr(server_connection, "LARGEST_ANSWER", 4 << 20)
    with answering(endless) as url:
        async with perdure.connect(url, "token") as engine, asyncio.timeout(60):
            with pytest.raises(ServerUnreachable, match="more than 4194304 bytes"):
                await engine.show("run")
            with pytest.raises(ServerUnreachable, match="more than 4194304 bytes"):
                await anext(engine.follow("run"))
        source = ServerSource(url, "t", worker="w", pools=[], slots=1, known=(), languages={}, now=lambda: 0)
        with pytest.raises(ServerUnreachable, match="more than 4194304 bytes"):
            await source.open()


async def test_a_compressed_answer_is_not_inflated() -> None:
    """A megabyte of zeros in 40 bytes: five such layers fill any memory."""
    packed = gzip.compress(gzip.compress(bytes(1 << 20)))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {len(packed)}\r\n".encode()
    asked: list[bytes] = []

    def answer(connection: Any, request: bytes) -> None:
        asked.append(request)
        connection.sendall(head + VERSION + b"\r\n" + packed)

    with answering(answer) as url:
        async with perdure.connect(url, "token") as engine:
            with pytest.raises(ServerUnreachable, match="not JSON"):
                await engine.show("run")
    assert b"accept-encoding: identity" in asked[0].lower()


async def test_a_redirect_takes_the_token_of_a_worker_nowhere() -> None:
    asked: list[bytes] = []
    was_asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def elsewhere(connection: Any, request: bytes) -> None:
        asked.append(request)

    with answering(elsewhere) as target:
        location = target.replace("http:", "ws:").encode()

        def redirect(connection: Any, request: bytes) -> None:
            connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: %b/x\r\nContent-Length: 0\r\n\r\n" % location)
            loop.call_soon_threadsafe(was_asked.set)

        lines: list[str] = []
        with answering(redirect) as url:
            worker = StreamWorker(
                url, "planted", worker="w", pools=["p"], providers=["e"], perform=_nothing, say=lines.append
            )
            working = asyncio.ensure_future(worker.run())
            async with asyncio.timeout(60):
                while not lines:
                    await asyncio.sleep(0.01)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
    assert was_asked.is_set() and asked == [], "another host was asked"
    assert "answered 302" in lines[0]


async def _nothing(connection: Any, step: Any) -> None:
    raise AssertionError("there is no step")
