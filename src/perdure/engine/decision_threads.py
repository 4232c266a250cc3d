"""Expensive turns are decided in threads, between which the interpreter goes on with other work (invariant 29).

A turn begins on the event loop. One that counts more work than `ON_THE_LOOP` is dropped before anything of it is
committed; its run is folded again and decided in one of these threads, until it was cheap often enough. What is decided
does not depend on where.
"""

import asyncio
import gc
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from perdure.engine.slot import Slot
from perdure.kernel.turn_budget import STEPS_PER_MILLISECOND, GarbageCollection, TurnBudget, TurnTooExpensive

ON_THE_LOOP = 5 * STEPS_PER_MILLISECOND
LONGEST = 30.0  # seconds of the processor that one decision may take
THREADS = 2  # that decide, and as many that read
BETWEEN_RESTS, REST = 0.001, 0.00005  # seconds of work, and of rest in which another thread gets the interpreter
CHEAP_TURNS = 100  # in a row, before a run is decided on the event loop again
SLICE = 0.002  # seconds of work on the event loop, before others have their turn
SMALL = 16 * 1024  # bytes of records that are folded on the event loop
LARGE = 16 * SMALL  # and from which on they are read by threads of their own, so that nothing smaller waits behind them
WORK_OF_TEXT = 8  # a document takes that much longer to be checked or compiled than records do to be folded
WORK_OF_A_TURN = 200
JSON_PER_WORK = 8  # and JSON is read that much faster
_MOST = 1_000 * STEPS_PER_MILLISECOND * int(LONGEST)

R = TypeVar("R")


class TakesTooLong(Exception):
    """A decision that lasts longer than anybody should wait for it. The run is stuck and its input kept."""


class DecisionThreads:
    """Two for all engines of the process, two for what is read, two for what is large: more would wait for each other.

    Nobody waits behind a decision to have a document checked or a run folded, nor behind a document of megabytes.
    """

    def __init__(self) -> None:
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self.uncollected = _Uncollected()

    async def decide(self, slot: Slot, make: Callable[[Slot], R]) -> R:
        """What `make` gives for the slot, made in a thread. `TurnTooExpensive` when the work has no end in sight."""
        return await self._begin("perdure-deciding", self._decided, slot, make)

    async def do(self, work: Callable[[], R], size: int = 0) -> R:
        """What the work gives, done in a thread: loading, compiling, checking, large JSON."""
        return await self._aside("perdure-reading" if size <= LARGE else "perdure-reading-large", work)

    async def analyse(self, work: Callable[[], R]) -> R:
        """As `do`, for what may last for seconds whatever its size: nobody waits behind it to have something read."""
        return await self._aside("perdure-analysing", work)

    async def _aside(self, name: str, work: Callable[[], R]) -> R:
        given_up = threading.Event()
        try:
            return await self._begin(name, self._done, work, given_up)
        except asyncio.CancelledError:
            given_up.set()
            raise

    def _begin(self, name: str, work: Callable[..., R], *arguments: Any) -> Awaitable[R]:
        if name not in self._pools:
            self._pools[name] = ThreadPoolExecutor(THREADS, thread_name_prefix=name)
        return asyncio.get_running_loop().run_in_executor(self._pools[name], work, *arguments)

    def _decided(self, slot: Slot, make: Callable[[Slot], R]) -> R:
        with self.uncollected, TurnBudget(_MOST, _Rests().rest) as budget:
            turns = make(slot)
        slot.cheap = slot.cheap + 1 if _MOST - budget.left < ON_THE_LOOP else 0
        slot.is_expensive = slot.cheap < CHEAP_TURNS
        return turns

    def _done(self, work: Callable[[], R], given_up: threading.Event) -> R:
        try:
            with self.uncollected, TurnBudget(_MOST, _Rests(given_up).rest):
                return work()
        except TurnTooExpensive as refusal:
            raise TakesTooLong(str(refusal)) from None


async def done_aside(size: int, work: Callable[[], R]) -> R:
    """What the work gives, done here if it is `SMALL`, by the bytes that it is about; else in a thread."""
    return work() if size <= SMALL else await threads.do(work, size)


class ShortTurns:
    """For work on the event loop that is long in all: others have their turn every few milliseconds."""

    def __init__(self) -> None:
        self._end = time.monotonic() + SLICE

    async def pause(self) -> None:
        if time.monotonic() >= self._end:
            await asyncio.sleep(0)
            self._end = time.monotonic() + SLICE


class _Rests:
    """A thread that computes gives way by itself: one that waits for the interpreter would wait five times as long."""

    __slots__ = ("_end", "_given_up", "_next")

    def __init__(self, given_up: threading.Event | None = None) -> None:
        """`given_up` is set when nobody waits for the result any more."""
        self._end = time.thread_time() + LONGEST  # on a busy machine a decision that is right takes minutes
        self._next = time.monotonic() + BETWEEN_RESTS
        self._given_up = given_up

    def rest(self) -> None:
        if self._given_up is not None and self._given_up.is_set():
            raise TurnTooExpensive("nobody waits for it")
        if time.monotonic() < self._next:
            return
        time.sleep(REST)
        self._next = time.monotonic() + BETWEEN_RESTS
        if time.thread_time() > self._end:
            raise TurnTooExpensive("the decision took too long")


class _Uncollected:
    """While much data is made, Python's collector of circular garbage is kept from looking through all of it.

    One look at a million values lasts longer than others should wait, and finds nothing: data have no circles. What was
    made meanwhile counts as old, so that it is not looked at right afterwards.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._since = 0.0
        self._is_ours = False
        self.owns_process = False

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1 and gc.isenabled():
                self._is_ours = True
                self._since = time.monotonic()
                gc.disable()

    def __exit__(self, *exit: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._is_ours and (self._inside == 0 or time.monotonic() > self._since + LONGEST):
                self._is_ours = False
                # Of a process that is not ours somebody else may have frozen what is not to be thawed.
                if self.owns_process or gc.get_freeze_count() == 0:
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()


threads = DecisionThreads()
GarbageCollection.paused = threads.uncollected  # for the threads of tasks, too


def collect_seldom(*, is_brief: bool = False) -> None:
    """For a process that is Perdure's own: what is there now stays for good, so the collector of circular garbage need
    not look at it again and again. What comes later it looks at less often: requests and steps leave few circles.

    One that `is_brief` has no time to look for what could go now.
    """
    threads.uncollected.owns_process = True
    if not is_brief:
        gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


# What was compiled and checked in threads is kept, so that it is done once.

K = TypeVar("K")
V = TypeVar("V")

BYTES_KEPT = 2 << 20
"""Of their texts: a program can take a hundred times as much memory."""


class ProgramCache(Generic[K, V]):
    """Programs that were used last, limited in number and by the size of their texts."""

    def __init__(self, most: int, most_bytes: int = BYTES_KEPT) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._bytes = 0
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept[0]

    def add(self, key: K, program: V, size: int) -> None:
        """Keep it in place of those that were not used for longest; `size` is that of its text."""
        self.remove(key)
        self._kept[key] = program, size
        self._bytes += size
        while len(self._kept) > self._most or (self._bytes > self._most_bytes and len(self._kept) > 1):
            self._bytes -= self._kept.popitem(last=False)[1][1]

    def remove(self, key: K) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept[1]
