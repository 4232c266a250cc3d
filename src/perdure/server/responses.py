"""How answers are sent: large ones in pieces, streams in short slices, and nobody waits for a slow reader."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack, aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from perdure.engine.decision_threads import SMALL, done_aside
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.server.calls import Answer, ApiCall, Result

if TYPE_CHECKING:
    from perdure.server.limits import HeldBytes
    from perdure.server.route_table import Route

Fields = list[tuple[bytes, bytes]]
ANSWERS_WHOLE = "perdure.answers_whole"  # in a scope: sends a small answer in one piece, if the connection can

SLOWEST_READER = 30.0  # seconds that a follower may leave its stream unread
SLICE = 0.002  # seconds that a follower is sent events, before other work has its turn
PIECE = 256 * 1024  # bytes of an answer that are sent at once
HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Type": "text/event-stream"}


class PiecewiseResponse(Response):
    """Sends a large answer piece by piece: copying it at once holds up others."""

    def __init__(self, body: bytes, status: int = 200, headers: Mapping[str, str] = {}) -> None:
        self.body, self.status_code, self.background = body, status, None
        self.held: HeldBytes | None = None
        self.raw_headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        self.raw_headers.append((b"content-length", b"%d" % len(body)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if not self._is_sent_whole(scope):
                await self._send(send)
        finally:
            if self.held is not None:
                self.held.set(0)

    def _is_sent_whole(self, scope: Scope) -> bool:
        answer = scope.get(ANSWERS_WHOLE)
        if answer is None or len(self.body) > PIECE or scope["method"] == "HEAD" or self.status_code in (204, 304):
            return False
        is_sent: bool = answer(self.status_code, self.raw_headers, self.body)
        return is_sent

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if len(self.body) <= PIECE:
            await send({"type": "http.response.body", "body": self.body})
            return
        body = memoryview(self.body)
        for begin in range(0, len(body), PIECE):
            piece = bytes(body[begin : begin + PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": begin + PIECE < len(body)})
            await asyncio.sleep(0)


class FollowedStream(StreamingResponse):
    """Cuts off a follower that leaves its stream unread: nobody waits for it, and it continues by id.

    Long histories are sent in short slices, by one follower at a time: other work of the process goes on in between.
    """

    turn: asyncio.Lock

    def __init__(self, events: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> None:
        super().__init__(events, headers=headers)
        self._events = events
        self.place = ExitStack()  # among the streams of its caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.place:
            async with aclosing(self._events):
                await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async for part in self.body_iterator:
                async with asyncio.timeout(SLOWEST_READER):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                if clock() - begun > SLICE:
                    async with self.turn:
                        await asyncio.sleep(0)
                    begun = clock()
        except TimeoutError:
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def make_response(result: Result, hold: "Callable[[int], HeldBytes] | None" = None) -> Response:
    """`hold`: a large answer is in memory until it is sent. Of the answer to a HEAD only the headers are sent."""
    assert isinstance(result, Answer)
    if result.status == 204 or result.body is None:
        return Response(b"", result.status, dict(result.headers))
    headers = {"Content-Type": "application/json", **result.headers}
    body = result.body if isinstance(result.body, bytes) else await _encode(result.body)
    response = PiecewiseResponse(body, result.status, headers)
    response.held = None if hold is None else hold(len(response.body))
    return response


async def _encode(body: Any) -> bytes:
    return await done_aside(SMALL + 1 if jsontext.is_large(body) else 0, partial(jsontext.encode, body))


def add_headers(response: Response, version: bytes, *, is_last: bool) -> None:
    """What every answer says, refusals too; `is_last`: the connection is not used for another one."""
    fields = response.raw_headers
    present = {name for name, _ in fields}
    fields.append((b"perdure-version", version))
    fields += [field for field in HEADERS if field[0] not in present]
    if is_last:
        response.headers["Connection"] = "close"


ANSWERED_ONCE = "this was done before, and its answer cannot be told twice"


def told_again(route: "Route", call: ApiCall) -> Answer:
    """That something was done before, if the answer of that time was lost: what is known of it without doing it."""
    match route.verb:
        case "create_access_token":
            raise Conflict(ANSWERED_ONCE, hint="Use another key.")
        case "cancel_run":
            decided = {"decided": True, "live": True, "new": False, "remarks": []}
            return Answer({"id": call.run.id, "pending": False, **decided})
        case "apply_resources":
            return Answer({"changes": [], "warnings": []})
        case _:
            return Answer({}, route.status)
