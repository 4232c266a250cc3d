"""WebSockets of streaming workers: each does one step of a stream (STR-112). See docs/guide/stream-workers.md.

handshake (who, role) ─▶ `offer` ─▶ waits for a step ─▶ `step` … frames between worker and topology … ─▶ closed
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from perdure.engine.decision_threads import done_aside
from perdure.kernel.json_values import jsontext
from perdure.providers.remote_steps import Frame, Offer, RemoteStep, StreamConnectionLost, remote_steps
from perdure.server.calls import Caller
from perdure.server.request_reading import MOST_VALUES
from perdure.server.worker_protocol.worker_handlers import may_work
from perdure.server.worker_protocol.worker_types import Name
from perdure.views.administration.worker_pools import StreamConnection
from perdure.views.api_errors import AccessDenied

if TYPE_CHECKING:
    from perdure.server.application import ApiServer

LARGEST_FRAME = 16 * 1024 * 1024  # bytes: a message of 10 MiB in base64
FIRST_FRAME = 30.0  # seconds that a worker may take to say what it offers
LOOK_EVERY = 0.5  # seconds after which it is asked again whether the token is valid
NORMAL, GOING_AWAY, NOT_ALLOWED = 1000, 1012, 1008  # codes of RFC 6455

Event = MutableMapping[str, Any]


class OfferFrame(msgspec.Struct, forbid_unknown_fields=False):
    """The first frame of a worker."""

    worker: str
    pools: Annotated[list[Name], msgspec.Meta(max_length=100)]
    providers: Annotated[list[Name], msgspec.Meta(max_length=1_000)]


class SocketConnection:
    """A worker behind an accepted WebSocket."""

    def __init__(self, receive: Callable[[], Awaitable[Event]], send: Callable[[Event], Awaitable[None]]) -> None:
        self.worker = ""
        self.frame_size = 0
        self._receive, self._send = receive, send
        self._reading: asyncio.Task[Frame] | None = None
        self.closed = asyncio.Event()

    async def send(self, frame: Frame) -> None:
        if self.closed.is_set():
            raise StreamConnectionLost("the connection is closed")
        try:
            await self._send({"type": "websocket.send", "text": jsontext.encode(frame).decode()})
        except Exception as error:  # nobody hears us; what was said before is still there to be read
            raise StreamConnectionLost(str(error) or type(error).__name__) from None

    async def receive(self) -> Frame:
        reading, self._reading = self._reading or asyncio.ensure_future(self._read()), None
        return await reading

    async def wait_gone(self) -> None:
        """Returns when the worker has hung up; what it sends before that is kept for `receive`."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
        await asyncio.wait({self._reading})
        if self._reading.exception() is None:  # it has nothing to say yet
            await self.close(NOT_ALLOWED, "a worker that waits for a step says nothing")

    async def _read(self) -> Frame:
        while True:
            if self.closed.is_set():
                raise StreamConnectionLost("the connection is closed")
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                self.closed.set()
                raise StreamConnectionLost("the worker has hung up")
            text = event.get("text") or (event.get("bytes") or b"").decode(errors="replace")
            frame = await done_aside(len(text), partial(_frame, text))
            if frame is None:
                await self.close(NOT_ALLOWED, "a frame is a JSON object with a member `type`")
            elif frame["type"] != "heartbeat" or self.worker:
                self.frame_size = len(text)
                return frame

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        if not self.closed.is_set():
            self.closed.set()
            with suppress(Exception):  # it is gone already
                await self._send({"type": "websocket.close", "code": code, "reason": reason[:120]})


def _frame(text: str) -> Frame | None:
    """None: it is not a frame, or contains more values than the body of a request may."""
    try:
        data = text.encode()
        if len(data) > MOST_VALUES and jsontext.count_values(data, MOST_VALUES) > MOST_VALUES:
            return None
        value = jsontext.read_strict(data)
    except (jsontext.NotJson, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("type"), str) else None


async def serve_connection(server: "ApiServer", caller: Caller, connection: SocketConnection) -> None:
    """Give the worker a step, and keep the connection for as long as it may have it."""
    try:
        async with asyncio.timeout(FIRST_FRAME):
            offer = _offer(caller, connection, await connection.receive())
    except (AccessDenied, msgspec.ValidationError) as refusal:
        await connection.close(NOT_ALLOWED, str(refusal))
        return
    except (StreamConnectionLost, TimeoutError):
        await connection.close()
        return
    presence = StreamConnection(connection.worker, sorted(offer.pools), sorted(offer.providers))
    with server.presence.streaming(presence, caller.name):
        step = await _step(server, caller, connection, offer)
        if step is None:
            return
        if step.connection.done():  # it was withdrawn just now
            await connection.close(GOING_AWAY, "connect again")
            return
        server.presence.began(presence, step.run, step.name, step.provider)
        step.connection.set_result(connection)
        await _keep(server, caller, connection)


async def _keep(server: "ApiServer", caller: Caller, connection: SocketConnection) -> None:
    """Until it is closed; the connection of a token that is not valid any more is."""
    while not connection.closed.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(connection.closed.wait(), LOOK_EVERY)
        if not server.authentication.tokens.is_valid(caller):
            await connection.close(NOT_ALLOWED, "the access token has expired or was revoked")


def _offer(caller: Caller, connection: SocketConnection, frame: Frame) -> Offer:
    offer = msgspec.convert({**frame, "worker": frame.get("worker") or "worker"}, OfferFrame)
    if frame["type"] != "offer":
        raise AccessDenied("the first frame of a worker is its offer")
    for pool in offer.pools:
        if not may_work(caller, pool):
            raise AccessDenied(f"this token is not for the pool {pool!r}")
    connection.worker = offer.worker[:200]
    return Offer(frozenset(offer.pools), frozenset(offer.providers), caller.namespaces)


async def _step(server: "ApiServer", caller: Caller, connection: SocketConnection, offer: Offer) -> RemoteStep | None:
    """The step that the worker is to do; None: it has gone, or was sent away."""
    taking = asyncio.ensure_future(remote_steps.take(offer))
    gone = asyncio.ensure_future(connection.wait_gone())
    stopping = asyncio.ensure_future(server.stopping.wait())
    waited = {taking, gone, stopping}
    try:
        while not any(task.done() for task in waited):
            await asyncio.wait(waited, timeout=LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED)
            if not server.authentication.tokens.is_valid(caller):
                await connection.close(NOT_ALLOWED, "the access token has expired or was revoked")
                return None
        if taking.done() and not gone.done():
            return taking.result()
        await connection.close(GOING_AWAY, "the server is stopping")
        return None
    finally:
        if taking.done() and not taking.cancelled() and (gone.done() or connection.closed.is_set()):
            remote_steps.request(taking.result())
        for task in waited:
            task.cancel()
