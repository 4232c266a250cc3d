"""The body of a response: read, counted and inflated in short steps, never beyond its limit."""

import asyncio
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from perdure.providers.failure import ProviderFailure
from perdure.providers.text import family_at_work

if TYPE_CHECKING:
    import httpx

PREFIX = "Provider.Call.Http"
LARGEST_BODY = 64 * 1024 * 1024
"""Maximal bytes of a body, as it is sent and as it is inflated, whatever a document asks for."""
PIECE = 16 * 1024
"""Bytes that are read or inflated at a time."""

_LARGE = 1024 * 1024  # bytes of a response; only a limited number of larger ones is read at a time
_LARGE_AT_ONCE = 8
_LARGE_OF_A_FAMILY = 2
_MOST_PIECES = 500_000  # chunks and members of an encoding; each costs as much as a few kilobytes
_INFLATED = 256 * 1024  # bytes that one call of the library produces
_SLICE = 0.002  # seconds after which a response without pauses yields to others
_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # the window bits by which zlib recognises the format


class ResponseMemory:
    """Memory for one response. A large one waits for its turn: a family of runs may read a few at a time.

    A nested one, as for a page among pages, uses the memory of the outer one.
    """

    def __init__(self) -> None:
        self._held = ExitStack()

    async def __aenter__(self) -> "ResponseMemory":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._held.close()

    async def reserve(self, size: int) -> None:
        if size <= _LARGE or _has_reserved.get():
            return
        slots = _response_slots.setdefault(asyncio.get_running_loop(), _ResponseSlots())
        own = slots.of.setdefault(family_at_work.get(), asyncio.Semaphore(_LARGE_OF_A_FAMILY))
        for places in (own, slots.all):
            await places.acquire()
            self._held.callback(places.release)
        self._held.callback(_has_reserved.reset, _has_reserved.set(True))


class _ResponseSlots:
    """The response slots of one event loop."""

    def __init__(self) -> None:
        self.all = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.of: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()


_has_reserved: ContextVar[bool] = ContextVar("_has_reserved", default=False)
_response_slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _ResponseSlots] = weakref.WeakKeyDictionary()


async def read_body(response: "httpx.Response", limit: int, memory: ResponseMemory) -> bytes:
    inflater = _Inflater(response, limit)
    received = pieces = 0
    since = time.perf_counter()
    on_piece: Callable[[], None] | None = getattr(response.extensions.get("network_stream"), "on_piece", None)
    async for piece in response.aiter_raw():
        received += len(piece)
        if on_piece is not None:
            on_piece()
        if received > limit:
            raise _too_large(response, limit)
        for _ in inflater.feed(piece):
            pieces += 1
            if time.perf_counter() - since > _SLICE:
                await asyncio.sleep(0)
                since = time.perf_counter()
        if pieces > _MOST_PIECES:
            raise too_much(response, f"the body comes in more than {_MOST_PIECES} pieces")
        await memory.reserve(inflater.size)
    return inflater.end()


class _Inflater:
    """One content coding, decoded piece by piece, never beyond the limit."""

    def __init__(self, response: "httpx.Response", limit: int) -> None:
        codings = [coding.strip().lower() for coding in response.headers.get("content-encoding", "").split(",")]
        codings = [coding for coding in codings if coding not in ("", "identity")]
        self._response = response
        self._limit = limit
        self._data = bytearray()
        self._bits = _CODINGS.get(codings[0]) if len(codings) == 1 else None
        self._unknown = ", ".join(codings) if codings and self._bits is None else ""
        self._undo: Any = None
        self._is_begun = False

    @property
    def size(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> Iterator[None]:
        """In short steps, between which others may work."""
        if self._unknown:
            message = f"the body is encoded as {self._unknown!r}; only one of gzip and deflate is read"
            raise ProviderFailure(f"{PREFIX}.BadEncoding", message, retryable=False, details=self._facts())
        if self._bits is None:
            self._keep(data)
            yield
            return
        try:
            for at in range(0, len(data), PIECE):
                piece: bytes | None = data[at : at + PIECE]
                while piece is not None:
                    piece = self._inflate(piece)
                    yield
        except zlib.error as error:
            message = f"the body is not what its content-encoding says: {error}"
            raise ProviderFailure(f"{PREFIX}.BadEncoding", message, retryable=False, details=self._facts()) from None

    def _inflate(self, piece: bytes) -> bytes | None:
        """Returns what is left of the piece, or None; a gzip body may have several members."""
        if self._undo is None:
            assert self._bits is not None
            self._undo = zlib.decompressobj(self._bits)
        most = min(_INFLATED, self._limit + 1 - len(self._data))
        try:
            data = self._undo.decompress(piece, most)
        except zlib.error:
            if self._is_begun or self._bits != 15:
                raise
            self._bits = -15  # some servers send raw deflate
            self._undo = zlib.decompressobj(self._bits)
            data = self._undo.decompress(piece, most)
        self._is_begun = True
        self._keep(data)
        if self._undo.eof:
            rest: bytes = self._undo.unused_data
            self._undo = None
            return rest if rest and self._bits == 31 else None
        tail: bytes = self._undo.unconsumed_tail
        return tail if tail or len(data) == most else None  # it may contain more than it was allowed to return

    def _keep(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > self._limit:
            raise _too_large(self._response, self._limit)

    def end(self) -> bytes:
        if self._undo is not None and not self._undo.eof:
            message = "the encoded body ends too early"
            raise ProviderFailure(f"{PREFIX}.BadEncoding", message, retryable=True, details=self._facts())
        return bytes(self._data)

    def _facts(self) -> dict[str, Any]:
        return {"status": self._response.status_code}


def _too_large(response: "httpx.Response", limit: int) -> ProviderFailure:
    return too_much(response, f"the body has more than {limit} bytes", limit=limit)


def too_much(response: "httpx.Response", message: str, **facts: int) -> ProviderFailure:
    facts = {"status": response.status_code, **facts}
    return ProviderFailure(f"{PREFIX}.TooLarge", message, retryable=False, details=facts)
