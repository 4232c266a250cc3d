"""The bytes of a WebSocket: read a little at a time, and no more than a worker has reason to send.

    bytes that arrived ─▶ unread, of each connection ─▶ 2 ms in 5 for all connections ─▶ frames ─▶ the application

A frame can have two bytes, and each one is work: a quarter of a megabyte that arrives at once takes a second.
"""

import asyncio
from collections import deque
from typing import Any, ClassVar

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

SLICE, REST = 0.002, 0.003  # seconds that frames are read, and in which other work has its turn
PIECE = 1024  # bytes that are read at once
LARGEST_FIRST = 64 * 1024  # bytes of a message before the server has said anything: an offer is small
MOST_FRAGMENTS = 20_000  # of one message; each takes memory, an empty one too
PINGS, PINGS_A_SECOND = 100, 10.0  # at once, and from then on
TOO_LARGE, NOT_ALLOWED = 1009, 1008  # codes of RFC 6455


class FrameTurns:
    """Connections with unread bytes take turns, a piece each."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[WorkerProtocol] = deque()

    def add(self, connection: "WorkerProtocol") -> None:
        if not self._waiting:
            self._loop.call_soon(self._go_on)
        self._waiting.append(connection)

    def _go_on(self) -> None:
        end = self._loop.time() + SLICE
        while self._waiting and self._loop.time() < end:
            connection = self._waiting.popleft()
            if connection.read_piece():
                self._waiting.append(connection)
        if self._waiting:
            self._loop.call_later(REST, self._go_on)


class WorkerProtocol(WebSocketsSansIOProtocol):
    """The WebSocket of a streaming worker. Whoever reads nothing is cut off, and does not keep its place."""

    turns: ClassVar[FrameTurns]

    def __init__(self, *rest: Any, **named: Any) -> None:
        super().__init__(*rest, **named)
        self._unread = bytearray()
        self._size = 0  # bytes since the last complete message
        self._fragments = 0  # of the message that is arriving
        self._was_answered = False  # the worker has a step
        self._pings, self._pinged_at = float(PINGS), 0.0

    # What arrives.

    def data_received(self, data: bytes) -> None:
        if not self._unread:
            self.turns.add(self)
        self._unread += data
        if len(self._unread) > PIECE:
            self.transport.pause_reading()

    def read_piece(self) -> bool:
        """Whether bytes are left for the next turn."""
        if self.transport.is_closing() or self.disconnected:
            self._unread.clear()
            return False
        piece = bytes(self._unread[:PIECE])
        del self._unread[:PIECE]
        self._size += len(piece)
        super().data_received(piece)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.abort()  # the request is not one that asks for a WebSocket; the library waits for ever
        elif not self._was_answered and self._size > LARGEST_FIRST:
            self._end(TOO_LARGE, f"a worker without a step sends at most {LARGEST_FIRST} bytes")
        if not self._unread and not self.read_paused:
            self.transport.resume_reading()
        return bool(self._unread)

    async def receive(self) -> Any:
        event = await super().receive()
        if self._unread:
            self.transport.pause_reading()  # until what has arrived is read
        return event

    def connection_lost(self, exc: Exception | None) -> None:
        while self._unread and len(self._unread) <= PIECE and not self.close_sent:
            self.read_piece()  # what was said last counts
        super().connection_lost(exc)

    def send_receive_event_to_app(self) -> None:
        self._size = self._fragments = 0
        super().send_receive_event_to_app()

    def handle_cont(self, event: Any) -> None:
        self._fragments += 1
        super().handle_cont(event)
        if self._fragments > MOST_FRAGMENTS:
            self._end(TOO_LARGE, f"a message has at most {MOST_FRAGMENTS} fragments")

    def handle_ping(self) -> None:
        now = self.loop.time()
        self._pings = min(PINGS, self._pings + (now - self._pinged_at) * PINGS_A_SECOND) - 1
        self._pinged_at = now
        super().handle_ping()
        if self._pings < 0:
            self._end(NOT_ALLOWED, f"more than {PINGS_A_SECOND:g} pings a second")

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:  # there is no WebSocket yet
            self.transport.abort()
        else:
            super().handle_parser_exception()

    def _end(self, code: int, reason: str) -> None:
        if self.close_sent or self.transport.is_closing():
            return
        if self.handshake_complete:
            self.conn.fail(code, reason)
        self.handle_parser_exception()

    # What is sent.

    async def send(self, message: Any) -> None:
        self._was_answered = self._was_answered or message["type"] == "websocket.send"
        await super().send(message)
        if message["type"] == "websocket.close" and self.close_timer is not None:
            self.close_timer.cancel()
            self.close_timer = self.loop.call_later(self.close_timeout, self.transport.abort)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # refused: the library takes that for a mistake, and logs it

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # closing waits until everything is sent, and nobody reads it
