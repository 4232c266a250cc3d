"""Callers of one effect take turns within an execution, whether they are threads or coroutines."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

_performed_here: ContextVar[frozenset[tuple[int, str]]] = ContextVar("perdure_effects", default=frozenset())


class EffectQueue:
    """The effects of one execution. `begun` are those that started here without a known end: they are in doubt."""

    __slots__ = ("_lock", "_waiting", "begun")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Future[None]]] = {}  # by key in use: who waits for it
        self.begun: set[str] = set()

    @asynccontextmanager
    async def turn(self, key: str, *, may_await: bool) -> AsyncIterator[None]:
        """Holds while no other caller has this key. Without `may_await` it never suspends: the thread waits."""
        if (id(self), key) in _performed_here.get():
            raise RuntimeError(f"the effect {key!r} is nested in itself; give the inner effect a key of its own")
        place = self._enter(key)
        if place is not None and may_await:
            await self._wait(key, place)
        elif place is not None:
            place.result()
        try:
            yield
        finally:
            self._leave(key)

    @contextmanager
    def performing(self, key: str) -> Iterator[None]:
        token = _performed_here.set(_performed_here.get() | {(id(self), key)})
        self.begun.add(key)
        try:
            yield
        finally:
            _performed_here.reset(token)

    async def _wait(self, key: str, place: Future[None]) -> None:
        try:
            await asyncio.wrap_future(place)
        except asyncio.CancelledError:
            if not place.cancel():  # it already had its turn: the next caller must not wait for it
                self._leave(key)
            raise

    def _enter(self, key: str) -> Future[None] | None:
        """None when the key was free and is now taken; otherwise a place in the queue."""
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is None:
                self._waiting[key] = deque()
                return None
            place: Future[None] = Future()
            waiting.append(place)
            return place

    def _leave(self, key: str) -> None:
        with self._lock:
            waiting = self._waiting[key]
            while waiting:
                place = waiting.popleft()
                if place.set_running_or_notify_cancel():
                    break
            else:
                del self._waiting[key]
                return
        place.set_result(None)
