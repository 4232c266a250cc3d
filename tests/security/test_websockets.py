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
from perdure.services.story.streams.remote_worker import MOST_BYTES_UNDER_WAY, ReadyWorker, RemoteConversation
from perdure.services.story.streams.stream_session import StreamSession
from perdure.streams.hub import Hub
from perdure.streams.inlet import Inlet
from perdure.streams.joins import Joins, Part
from perdure.streams.stream_graph import Settings, StreamStep, Topology
from perdure.streams.stream_messages import BadMessage, StreamMessage
from perdure.streams.stream_rows import IdWindow
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
        errors = server.process.end().err
    finally:
        server.commands.end_all()
    assert "ASGI" not in errors and "Traceback" not in errors and "Fatal" not in errors, errors


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

    async def publish(members: Any, reply_to: Any, made: Any) -> None:
        await asyncio.sleep(0)

    async def send(sent: Any) -> None:
        heard.append(sent)

    async def claim(key: str) -> Any:
        raise AssertionError("too long")

    session = SimpleNamespace(publish=publish, make=dict, step="s")
    worker = SimpleNamespace(connection=SimpleNamespace(send=send), credits=0)
    conversation: Any = RemoteConversation(SimpleNamespace(), worker, session, SimpleNamespace())  # type: ignore[arg-type]
    conversation._open[7] = SimpleNamespace(packet=SimpleNamespace(position=7))
    for number in range(100):
        await conversation._publish({"number": number, "replyTo": 7, "message": {"payload": 1}}, 100)
    assert len(conversation._publishing[7]) == 100, "`done` waits for them"
    while len(heard) < 100:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not conversation._publishing[7]

    conversation._context = SimpleNamespace(port=SimpleNamespace(claim_effect=claim))
    with pytest.raises(ValueError, match="at most 10000 characters"):
        await conversation._ask("claim", "s/" + "x" * 10_000, None, 0)


@pytest.mark.sampled(2)
async def test_publications_that_wait_for_room_have_a_limit_of_bytes() -> None:
    """STR-112: a thousand of 10 MB waited in memory while a step below was full."""
    has_room = asyncio.Event()
    heard = 0

    async def publish(members: Any, reply_to: Any, made: Any) -> None:
        await has_room.wait()

    async def receive() -> Any:
        nonlocal heard
        heard += 1
        return {"type": "returned"} if heard > 40 else {"type": "publish", "message": {"payload": heard}}

    async def send(sent: Any) -> None:
        pass

    session: Any = SimpleNamespace(publish=publish, make=dict, step="s", note_life=lambda: None)
    connection: Any = SimpleNamespace(send=send, receive=receive, frame_size=9 << 20)
    topology: Any = SimpleNamespace()
    conversation: Any = RemoteConversation(topology, ReadyWorker(connection, 0), session, topology)
    listening = asyncio.ensure_future(conversation._listen())
    while heard < 2:
        await asyncio.sleep(0.001)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert heard == MOST_BYTES_UNDER_WAY // connection.frame_size + 1
    has_room.set()
    await listening
    await asyncio.sleep(0)  # what has ended is counted then
    assert heard == 41 and not conversation._under_way and not conversation._bytes_under_way


def test_answers_that_wait_for_done_have_a_limit_of_bytes() -> None:
    """STR-069: a worker that never acknowledges a message could have any number of answers to it kept."""
    session: Any = SimpleNamespace(_staged_bytes=0)
    inbound: Any = SimpleNamespace(staged=[])
    message = StreamMessage("m", payload=bytes(9 << 20))
    for _ in range(7):
        StreamSession._stage(session, message, inbound)
    with pytest.raises(BadMessage, match="are not done have more than"):
        StreamSession._stage(session, message, inbound)
    assert len(inbound.staged) == 7


def test_buffers_of_a_topology_share_its_memory() -> None:
    """STR-132: a document said how many bytes may wait, and how many packets may be in hand whatever their size."""
    settings = Settings(max_bytes=1 << 40, flow="none")
    steps = (StreamStep("a"), StreamStep("b", needs=("a",), settings=settings))
    limits = Hub(Topology(steps), SimpleNamespace(), {}).inlets["b"].settings
    assert (limits.max_bytes, limits.credit_bytes) == (64 << 20, 64 << 20)
    inlet = Inlet(StreamStep("b", settings=limits))
    for number in range(9):
        inlet.offer(StreamMessage(str(number)), "", 10 << 20, 0)
        inlet.take(0)
    assert (len(inlet.pending), len(inlet.waiting)) == (7, 2)
    inlet.acknowledge(next(iter(inlet.pending)), 0)
    assert inlet.take(0) is not None


def test_open_joins_are_given_up_when_they_are_too_large() -> None:
    """STR-054: a thousand parts of 10 MB waited for parts that never came."""
    joins = Joins(("a", "b"), Settings(), IdWindow(is_durable=False, is_long=False))
    for number in range(9):
        joins.put("a", Part(StreamMessage(str(number), payload=bytes(9 << 20)), number), 0)
        given_up = joins.expire(0)
        assert [join.key for join in given_up] == ([] if number < 7 else [str(number - 7)])
    assert joins.put("b", Part(StreamMessage("8", payload=b"1"), 9), 0) is not None


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
