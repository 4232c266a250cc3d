"""Threads for functions that block, made for many short jobs.

Threads are started on demand and stay. Results gather in a queue, and the event loop is woken once per burst,
not once per result: waking it is the dearest part of a short job.
A thread cannot be stopped; one that is given up is replaced, and what it says later is dropped by its execution.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

_J = TypeVar("_J")
_R = TypeVar("_R")

Together = Callable[[Callable[[], None]], None]
"""Makes the call that it is given, which delivers what has come together."""


def call_at_once(deliver: Callable[[], None]) -> None:
    deliver()


class Threads(Generic[_J, _R]):
    """Runs `work(job)` in a thread and `deliver(job, result)` on the loop.

    `follow` may name a job, never submitted, that the thread does next: it is the job's successor in all respects.
    A burst of results is delivered by one call, which `together` makes.
    """

    def __init__(
        self,
        work: Callable[[_J], _R],
        deliver: Callable[[_J, _R], None],
        limit: int,
        follow: Callable[[_J, _R], _J | None] = lambda job, result: None,
        together: Together = call_at_once,
    ) -> None:
        self._work = work
        self._deliver = deliver
        self._limit = limit
        self._follow = follow
        self._together = together
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_J | None] = SimpleQueue()
        self._results: deque[tuple[_J, _R, bool]] = deque()
        self._woken = False
        self._threads = 0
        self._in_flight = 0
        self._given_up: set[int] = set()

    def submit(self, job: _J) -> None:
        self._in_flight += 1
        if self._in_flight > self._threads and self._threads < self._limit:
            self._threads += 1
            threading.Thread(target=self._serve, name=f"perdure-task-{self._threads}", daemon=True).start()
        self._jobs.put(job)

    def give_up(self, job: _J) -> None:
        """The job will not come back in useful time: until it does, its thread does not count."""
        self._given_up.add(id(job))
        self._limit += 1

    def close(self) -> None:
        """Idle threads end now, busy ones when their function returns."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _serve(self) -> None:
        job: _J | None = None
        while job is not None or (job := self._jobs.get()) is not None:
            result = self._work(job)
            following = self._follow(job, result)
            self._results.append((job, result, following is not None))
            job = following
            del result, following  # a waiting thread must not keep its last job's data alive
            if not self._woken:
                # Order matters: the result is in the queue before the flag is read, and `_collect` lowers the flag
                # before it empties the queue, so no result can be left behind. Two wake-ups at once do no harm.
                self._woken = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop is closed: nobody is left to hear
                    return

    def _collect(self) -> None:
        self._woken = False
        self._together(self._deliver_all)

    def _deliver_all(self) -> None:
        results = self._results
        try:
            while results:
                job, result, is_followed = results.popleft()
                if not is_followed:
                    self._in_flight -= 1
                if id(job) in self._given_up:
                    self._given_up.discard(id(job))
                    self._limit -= 1
                self._deliver(job, result)
        finally:
            if results:  # a receiver raised; those behind it are not to blame
                self._loop.call_soon(self._collect)
