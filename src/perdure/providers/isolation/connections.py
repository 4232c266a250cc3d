"""What a child says, as its parent reads it: frames of the protocol, and raw output. In short slices: a child that says
much does not delay others.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from perdure.providers.isolation import frames
from perdure.providers.text import MARGIN

TAIL = 4000
"""Bytes of raw output that explain a death."""

_OUTPUT_LIMIT = 1 << 20  # bytes of raw output per call that become log lines
_MOST_LINES = 10_000  # of these
_SLICE = 0.002  # seconds after which a child that says much yields to others


class ChildListener(Protocol):
    """Who is told."""

    def on_frame(self, frame: frames.Frame) -> None: ...

    def misspoke(self, error: Exception) -> None: ...

    def lost(self, talk: "ChildConnection") -> None: ...


class Paced(asyncio.Protocol):
    """Handles what a child sends in short slices, and reads no more of it meanwhile."""

    _transport: asyncio.Transport
    is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def handle_one(self) -> bool:
        """Handle one frame or line of what was received; False if there is none."""
        raise NotImplementedError

    def handle(self) -> None:
        until = time.perf_counter() + _SLICE
        while not self.is_over and self.handle_one():
            if time.perf_counter() > until:
                self._transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._go_on)
                return

    def _go_on(self) -> None:
        if not self.is_over:
            self._transport.resume_reading()  # `handle` pauses it again
            self.handle()


class ChildConnection(Paced):
    """The connection to one fork of a child."""

    def __init__(self, child: ChildListener) -> None:
        self._child = child
        self._reader = frames.FrameReader()

    @property
    def has_much_unread(self) -> bool:
        """Whether the other side does not read what is sent to it."""
        limit = self._reader.limit
        return limit is not None and self._transport.get_write_buffer_size() > limit

    def take_up_to(self, limit: int) -> None:
        """No frame may have more bytes."""
        self._reader.limit = limit

    def say(self, frame: frames.Frame) -> None:
        if not self.is_over:
            self._transport.write(frames.encode_frame(frame))

    def abort(self) -> None:
        self.is_over = True
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self.handle()

    def handle_one(self) -> bool:
        try:
            frame = self._reader.next()
            if frame is not None:
                self._child.on_frame(frame)
        except Exception as error:
            self._child.misspoke(error)
            return False
        return frame is not None

    def connection_lost(self, error: Exception | None) -> None:
        self.is_over = True
        self._child.lost(self)


class ChildOutput(Paced):
    """What a child writes directly to its file descriptors: lines for the log, and the tail to explain a death."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.tail = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._say = say
        self._begun = b""
        self._whole: deque[bytes] = deque()
        self._room, self._lines = _OUTPUT_LIMIT, _MOST_LINES

    def begin(self) -> None:
        """A new call: earlier output does not explain its end."""
        self.tail.clear()
        self._room, self._lines = _OUTPUT_LIMIT, _MOST_LINES

    def data_received(self, data: bytes) -> None:
        self.tail += data
        del self.tail[: -TAIL - MARGIN]
        if self._room <= 0:
            return
        *whole, self._begun = (self._begun + data[: self._room]).split(b"\n", self._lines)
        self._room -= len(data)
        self._lines -= len(whole)
        self._whole.extend(whole)
        if self._room <= 0 or self._lines <= 0:
            self._room, self._begun = 0, b""
            notice = f"[more than {_OUTPUT_LIMIT} bytes or {_MOST_LINES} lines of output; the rest is not shown]"
            self._whole.append(notice.encode())
        self.handle()

    def handle_one(self) -> bool:
        if not self._whole:
            return False
        self._say(self._whole.popleft().decode("utf-8", "replace"))
        return True

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
