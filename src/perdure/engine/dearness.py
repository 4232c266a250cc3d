"""Dear turns are decided in threads, between which the interpreter goes on with other work (invariant 29).

A turn begins on the event loop. One that counts more work than `ON_THE_LOOP` is dropped before anything of it is
committed; its run is folded again and decided in one of these threads, until it was cheap often enough. What is decided
does not depend on where.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from perdure.engine.slot import Slot
from perdure.kernel.effort import STEPS_PER_MILLISECOND, Effort

ON_THE_LOOP = 5 * STEPS_PER_MILLISECOND
LONGEST = 30.0  # seconds that one decision may last
THREADS = 2
CHEAP_TURNS = 100  # in a row, before a run is decided on the event loop again
_MOST = 1_000 * STEPS_PER_MILLISECOND * int(LONGEST)

R = TypeVar("R")


class TakesTooLong(Exception):
    """A decision that lasts longer than anybody should wait for it. The run is stuck and its input kept."""


class DecidingThreads:
    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    async def decide(self, slot: Slot, make: Callable[[Slot], R]) -> R:
        """What `make` gives for the slot, made in a thread. Raises `TooDear` when the work has no end in sight."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="perdure-deciding")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._counted, slot, make)

    def _counted(self, slot: Slot, make: Callable[[Slot], R]) -> R:
        end = time.monotonic() + LONGEST
        with Effort(_MOST, lambda: time.monotonic() > end) as effort:
            made = make(slot)
        slot.cheap = slot.cheap + 1 if _MOST - effort.left < ON_THE_LOOP else 0
        slot.is_dear = slot.cheap < CHEAP_TURNS
        return made

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
