"""What a streaming worker sends over its WebSocket harms nobody else (STR-112)."""

import asyncio
import base64
import json
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from uvicorn.server import ServerState

from perdure.providers.remote_steps import Offer, RemoteStep, RemoteSteps
from perdure.server.worker_protocol.websocket_protocol import LARGEST_FIRST, PIECE, PINGS, FrameTurns, WorkerProtocol
from perdure.services.story.streams.remote_worker import RemoteConversation
from tests.server.serving import Server

CONTINUED, TEXT, CLOSE, PING = 0, 1, 8, 9
PATIENCE = 35.0  # seconds: less than after what time the server ends a connection that does not answer its pings


def handshake(host: str, token: str | None) -> bytes:
    lines = [
        "GET /api/v1/worker/stream HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        *([] if token is None else [f"Authorization: Bearer {token}"]),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def frame(kind: int, data: bytes = b"", *, is_last: bool = True, announced: int | None = None) -> bytes:
    size = len(data) if announced is None else announced
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 127]) + struct.pack("!Q", size)
    return bytes([(0x80 if is_last else 0) | kind]) + length + bytes(4) + data


class RawSocket:
    """A worker without manners."""

    def __init__(self, server: Server, token: str | None) -> None:
        parts = urlsplit(server.url)
        self.socket = socket.create_connection((parts.hostname, parts.port), PATIENCE)
        self.socket.sendall(handshake(parts.netloc, token))
        self.head = b""
        while not self.head.endswith(b"\r\n\r\n"):
            more = self.socket.recv(1)
            assert more, self.head
            self.head += more

    def send_until_the_end(self, data: bytes) -> bytes:
        """Send, and read until the server ends the connection."""
        heard = b""
        try:
            self.socket.sendall(data)
            while more := self.socket.recv(1 << 16):
                heard += more
        except (ConnectionResetError, BrokenPipeError):
            pass
        self.socket.close()
        return heard


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("server")
    running = Server.start(folder)
    try:
        yield running
    finally:
        running.commands.end_all()


OFFER = {"type": "offer", "worker": "w", "pools": ["gpu"], "providers": ["p"]}

HOSTILE = {
    "pings": (frame(TEXT, json.dumps(OFFER).encode()) + frame(PING) * (PINGS + 90), b"pings a second"),
    "a message without end": (frame(TEXT, bytes(LARGEST_FIRST + PIECE), announced=10 << 20), b""),
    "empty fragments": (frame(TEXT, b"{", is_last=False) + frame(CONTINUED, is_last=False) * 25_000, b""),
    "offers of very many providers": (
        frame(TEXT, json.dumps(OFFER | {"providers": [f"p{number}" for number in range(1_001)]}).encode()),
        b"length <= 1000",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_worker_that_sends_too_much_is_sent_away(server: Server, case: str) -> None:
    """Its bytes were kept in memory, or answered, without a limit; and closing waited until it had read them."""
    data, reason = HOSTILE[case]
    worker = RawSocket(server, server.role("worker").token)
    assert worker.head.startswith(b"HTTP/1.1 101 "), worker.head
    assert reason in worker.send_until_the_end(data)
    assert server.nobody("GET", "/livez").status == 200


def test_a_stranger_takes_no_place_and_no_line_of_the_log(tmp_path: Path) -> None:
    """Each refused WebSocket wrote a line; a request for one that the library refuses kept its connection for ever."""
    server = Server.start(tmp_path)
    try:
        refused = RawSocket(server, None)
        assert refused.head.startswith(b"HTTP/1.1 401 ")
        refused.send_until_the_end(b"")
        parts = urlsplit(server.url)
        asked = handshake(parts.netloc, None)
        for hostile in (asked.replace(b"GET", b"POST"), asked[:-2] + b"X-A: 1\r\n" * 150 + b"\r\n"):
            with socket.create_connection((parts.hostname, parts.port), PATIENCE) as stranger:
                stranger.sendall(hostile)
                try:
                    while stranger.recv(1 << 16):
                        pass
                except ConnectionResetError:
                    pass
        server.process.send(signal.SIGTERM)
        said = server.process.end().err
    finally:
        server.commands.end_all()
    assert "ASGI" not in said and "Traceback" not in said and "Fatal" not in said, said


class Wire(asyncio.Transport):
    """What the protocol sees of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.is_paused = False
        self.written = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: Any) -> None:
        self.written += data


async def test_many_small_frames_leave_others_their_turns() -> None:
    """A quarter of a megabyte of them arrives at once, and held the event loop up for a second."""
    heard: list[str] = []
    everything = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while len(heard) < 20_000:
            heard.append((await receive())["text"])
        everything.set()
        await asyncio.Event().wait()

    WorkerProtocol.turns = FrameTurns(asyncio.get_running_loop())
    config = uvicorn.Config(application, ws=WorkerProtocol, log_config=None, lifespan="off")
    config.load()
    wire, state = Wire(), ServerState()
    connection = WorkerProtocol(config, state, {})
    connection.connection_made(wire)
    connection.data_received(handshake("localhost", None))
    while b"101 " not in wire.written:
        await asyncio.sleep(0)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while not everything.is_set():
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.ensure_future(others())
    texts = [str(number) for number in range(20_000)]
    connection.data_received(b"".join(frame(TEXT, text.encode()) for text in texts))
    assert wire.is_paused, "nothing more is read until this is"
    async with asyncio.timeout(60):
        await everything.wait()
        await other
    assert heard == texts
    assert turns >= 20, "frames took one turn"
    assert not wire.is_paused
    for task in state.tasks:
        task.cancel()


async def test_what_a_worker_has_published_is_forgotten_before_it_is_done() -> None:
    """Each answer to a message that is never done was kept, for as long as the worker liked."""
    heard: list[Any] = []

    async def publish(message: Any, reply_to: Any) -> None:
        await asyncio.sleep(0)

    async def send(sent: Any) -> None:
        heard.append(sent)

    async def claim(key: str) -> Any:
        raise AssertionError("too long")

    session = SimpleNamespace(publish=publish, step="s")
    worker = SimpleNamespace(connection=SimpleNamespace(send=send), credits=0)
    conversation: Any = RemoteConversation(SimpleNamespace(), worker, session, SimpleNamespace())  # type: ignore[arg-type]
    conversation._open[7] = SimpleNamespace(packet=SimpleNamespace(position=7))
    for number in range(100):
        conversation._publish({"number": number, "replyTo": 7, "message": {"payload": 1}})
    assert len(conversation._publishing[7]) == 100, "`done` waits for them"
    while len(heard) < 100:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not conversation._publishing[7]

    conversation._context = SimpleNamespace(port=SimpleNamespace(claim_effect=claim))
    with pytest.raises(ValueError, match="at most 10000 characters"):
        await conversation._ask("claim", "s/" + "x" * 10_000, None)


async def test_steps_and_workers_that_wait_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new worker compared all steps with all workers: 36 ms with a hundred steps and 900 workers."""
    compared = 0
    fits = RemoteStep.fits

    def count(step: RemoteStep, offer: Offer) -> bool:
        nonlocal compared
        compared += 1
        return fits(step, offer)

    monkeypatch.setattr(RemoteStep, "fits", count)
    steps = RemoteSteps()
    for _ in range(100):
        steps.request(RemoteStep("default", "gpu", "p", "run", "s"))
    waiting = [asyncio.ensure_future(steps.take(Offer({"cpu"}, {"p"}))) for _ in range(100)]
    await asyncio.sleep(0)
    assert compared <= 100 * 100
    step = RemoteStep("default", "cpu", "p", "run", "s")
    steps.request(step)
    assert await waiting[0] is step, "the first one that fits, in the order in which they came"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
