"""Blocking work off the event loop, in a separate thread.

Unlike those of the loop's executor such a thread blocks nothing: a program may end while it still waits for a server,
and a family of runs that has much to do there takes no thread that others need.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from perdure.kernel.turn_budget import GarbageCollection, TurnBudget

_T = TypeVar("_T")


def run_in_thread(work: Callable[[], _T], name: str) -> asyncio.Future[_T]:
    """Start `work`; its result or exception can be awaited, and may be ignored."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()
    future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    def live() -> None:
        try:
            settle: Callable[[], None] = partial(future.set_result, work())
        except Exception as error:
            settle = partial(future.set_exception, error)
        try:
            loop.call_soon_threadsafe(lambda: None if future.done() else settle())
        except RuntimeError:  # the loop is closed: nobody is waiting
            pass

    threading.Thread(target=live, name=name, daemon=True).start()
    return future


_REST = 0.00005  # seconds in which the event loop gets the interpreter, between two pieces of large work


@contextmanager
def resting() -> Iterator[None]:
    """For work in a thread: it pauses between its pieces (`with resting(): …`), and no garbage is collected."""
    with GarbageCollection.paused, TurnBudget(sys.maxsize, partial(time.sleep, _REST)):
        yield


async def aside(work: Callable[..., _T], *arguments: Any) -> _T:
    """What the work gives, done in a thread of the event loop, by short calls."""

    def paced() -> _T:
        with resting():
            return work(*arguments)

    return await asyncio.to_thread(paced)


class FamilyThreads:
    """Threads for long computations: one for a family of runs, and a few in all."""

    def __init__(self, most: int = 2) -> None:
        self._all = asyncio.Semaphore(most)
        self._families: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # while one computes

    async def run(self, family: str, work: Callable[[], _T], name: str) -> _T:
        def paced() -> _T:
            with resting():
                return work()

        async with self._families.setdefault(family, asyncio.Lock()), self._all:
            return await asyncio.shield(run_in_thread(paced, name))
