"""One connection: its requests have limits, and small answers are written at once."""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from perdure.kernel.errors import PerdureError
from perdure.server.limits import RequestLimits
from perdure.server.problems import TITLES, problem_json
from perdure.server.request_reading import WHOLE
from perdure.server.responses import ANSWERS_WHOLE, Fields
from perdure.views.api_errors import HeaderTooLarge, RequestTimeout
from perdure.views.errors import BadRequest

MOST_FIELDS = 200  # of the header of a request
PART = 16 * 1024  # bytes of what has arrived that are read before it is asked whether to go on
MOST_WAITING = 100  # requests of a connection that wait for the answer to the one before
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]").search


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

    def write_now(self, data: bytes) -> None:
        """What needs nothing to be joined to it."""
        self._flush()
        self._transport.write(data)

    def is_closing(self) -> bool:
        closing: bool = self._transport.is_closing()
        return closing

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
    _beside = 0  # bytes that arrived behind the head since the last ones of the body: the trailer, or nothing at all
    _in_head = True
    _is_passed_on = False  # to another protocol
    _answered_at: float | None = None  # since when no request is under way
    _unread = 0  # bytes of answers that nobody had read at the last look

    def connection_made(self, transport: Any) -> None:
        if isinstance(self.server_state, ListenerState):
            self.server_state.connected()
        self._joining = JoiningTransport(transport, self.loop)
        super().connection_made(self._joining)  # type: ignore[arg-type]
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
            self._head = self._beside = 0
            self._in_head = True

    def on_body(self, body: bytes) -> None:
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope[WHOLE] = True  # type: ignore[literal-required]
        if self.cycle is not None:
            self.scope[ANSWERS_WHOLE] = partial(self._answer_whole, self.cycle)  # type: ignore[literal-required]

    def _answer_whole(self, cycle: RequestResponseCycle, status: int, fields: Fields, body: bytes) -> bool:
        """Send head and body of an answer at once, where nothing has to be looked at; else False: nothing was sent."""
        if cycle.disconnected or cycle.response_started or not cycle.keep_alive or self.flow.write_paused:
            return False
        lines = [STATUS_LINE[status]]
        for name, value in [*cycle.default_headers, *fields]:
            if name == b"connection":
                return False
            lines.append(b"%b: %b\r\n" % (name, value))
        lines.append(b"\r\n")
        head = b"".join(lines)
        if not (head.count(b"\r\n") == head.count(b"\r") == head.count(b"\n") == len(lines)) or _CONTROL(head):
            return False  # a value that would be several fields is refused where each is looked at
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self._joining.write_now(head + body)
        cycle.message_event.set()
        cycle.on_response()
        return True

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is refused as everything else is."""
        self._refuse(BadRequest("this is not an HTTP request"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a trailer is not read: whoever stands in between judged the head
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._answered_at = None
        self._end_deadline()
        fields = self.headers
        if len(self.pipeline) >= MOST_WAITING:
            self.transport.abort()
        elif sum([len(name) + len(value) + 4 for name, value in fields]) > self.limits.header:
            self._refuse(HeaderTooLarge(f"the header has more than {self.limits.header} bytes"))
        elif len(fields) > MOST_FIELDS:
            self._refuse(HeaderTooLarge(f"the header has more than {MOST_FIELDS} fields"))
        elif not self.transport.is_closing():
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
