"""Turns of the processes that write to one file: whoever waits is next, and nobody looks again and again.

SQLite lets a writer that finds the file in use sleep, and try again. A process that writes all the time keeps others
out for long in that way. So before a transaction begins, its process takes its turn, by two locks on small files beside
the store:

    gate ──▶ turn ──▶ gate is free again ──▶ transaction ──▶ turn is free again

One process waits for the turn, and holds the gate; others wait at the gate, also the one that has just written. Both
waits are the operating system's, and a lock is free at the instant of its owner's death.

Fairness is all that depends on it: what keeps two transactions apart is SQLite's own lock. The files are made by the
processes of one server (`perdure serve --processes`); whoever opens the store while they are there takes turns too.
"""

import asyncio
import fcntl
import os
import queue
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from perdure.stores.sqlite.file_permissions import file_mode, refuse_planted

TURN_TIMEOUT = 2.0  # seconds; then SQLite's own lock is waited for, as by programs that do not take turns
GATE, TURN = "-gate", "-turn"


class WriteTurns:
    def __init__(self, gate: int, turn: int, name: str) -> None:
        self._gate = gate
        self._turn = turn
        self._name = name
        self._requests: queue.SimpleQueue[Future[None] | None] | None = None  # to the thread that waits
        self._wait: Future[None] | None = None  # under way
        self.is_taken = False
        self.waits = 0
        """How often it was another's turn."""

    @classmethod
    def of(cls, store: Path, *, creates: bool) -> "WriteTurns | None":
        """None: nobody takes turns at this file."""
        descriptors: list[int] = []
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if creates else 0)
        try:
            for end in (GATE, TURN):
                path = store.with_name(store.name + end)
                refuse_planted(path)
                descriptors.append(os.open(path, flags, file_mode()))
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            return None
        gate, turn = descriptors
        return cls(gate, turn, store.name)

    def take_at_once(self) -> bool:
        if self._wait is not None or not _try(self._gate):
            return False
        try:
            self.is_taken = _try(self._turn)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        return self.is_taken

    def give_back(self) -> None:
        if self.is_taken:
            self.is_taken = False
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Inside it is our turn; or, if somebody keeps it for long, it is not."""
        if not self.take_at_once():
            self.waits += 1
            await self._await_turn()
        try:
            yield
        finally:
            self.give_back()

    async def _await_turn(self) -> None:
        if self._wait is None:  # else somebody of this process gave up waiting, and the thread did not
            self._wait = Future()
            self._thread().put(self._wait)
        wait = self._wait
        try:
            async with asyncio.timeout(TURN_TIMEOUT):
                await asyncio.shield(asyncio.wrap_future(wait))
        except TimeoutError:
            self._leave(wait)
        except asyncio.CancelledError:
            self._leave(wait)
            raise
        else:
            self._wait, self.is_taken = None, True

    def _leave(self, wait: "Future[None]") -> None:
        """Nobody waits any more; a turn that comes later is given back, unless somebody waits again by then."""
        loop = asyncio.get_running_loop()

        def came(_: "Future[None]") -> None:
            with suppress(RuntimeError):  # the loop is closed, and so is the file
                loop.call_soon_threadsafe(self._give_back_unwanted, wait)

        wait.add_done_callback(came)

    def _give_back_unwanted(self, wait: "Future[None]") -> None:
        if self._wait is wait and not self.is_taken:
            self._wait = None
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def _thread(self) -> "queue.SimpleQueue[Future[None] | None]":
        if self._requests is None:
            self._requests = queue.SimpleQueue()
            threading.Thread(
                target=self._serve, args=(self._requests,), name=f"perdure-turn {self._name}", daemon=True
            ).start()
        return self._requests

    def _serve(self, requests: "queue.SimpleQueue[Future[None] | None]") -> None:
        while (wait := requests.get()) is not None:
            try:
                fcntl.flock(self._gate, fcntl.LOCK_EX)
                fcntl.flock(self._turn, fcntl.LOCK_EX)
                fcntl.flock(self._gate, fcntl.LOCK_UN)
            except OSError as error:  # closed meanwhile
                wait.set_exception(error)
            else:
                wait.set_result(None)

    def close(self) -> None:
        """A thread that waits keeps the files open until it has its turn: closing them under it would free nothing."""
        if self._requests is not None:
            self._requests.put(None)
        if self._wait is None:
            self.give_back()
            os.close(self._gate)
            os.close(self._turn)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
