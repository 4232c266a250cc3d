"""Several processes that are one server: started, watched, started again when one ends, and stopped together.

    supervisor ──fork──▶ process 1 ──ready──▶ process 2 … N

The supervisor binds the address, and does nothing else with it: it opens no store, imports no code of users and has no
threads, so it can fork at any time. Each process is a whole server with an engine of its own. Two pipes connect it with
the supervisor: by one it says that it is ready, by the other it hears that a sibling has ended, and, as the pipe's end,
that the supervisor has: then it stops in order too.
"""

import asyncio
import gc
import os
import secrets
import select
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure.cli.exit_codes import Exit
from perdure.kernel.ids import ServerGroup

if TYPE_CHECKING:
    from perdure.server.connection_counts import ConnectionCounts

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0  # seconds before a process that has ended is started again
STEADY = 30.0  # seconds after which a process that ended had worked well
READY, LOOK = b"r", b"l"


@dataclass
class ServerProcess:
    """What one of the processes knows of the others."""

    group: ServerGroup
    connections: "ConnectionCounts"
    orders: int  # descriptors
    answers: int

    @property
    def is_first(self) -> bool:
        return self.group.place == 0

    def is_ready(self) -> None:
        with suppress(OSError):  # the supervisor has just ended
            os.write(self.answers, READY)

    def follow_orders(self, look: Callable[[], None]) -> None:
        """`look` is called when a sibling has ended; with the supervisor this process ends too."""
        loop = asyncio.get_running_loop()

        def hear() -> None:
            if os.read(self.orders, 1_000):
                look()
            else:
                loop.remove_reader(self.orders)
                os.kill(os.getpid(), signal.SIGTERM)

        os.set_blocking(self.orders, False)
        loop.add_reader(self.orders, hear)


@dataclass
class _Place:
    """One of the processes, as the supervisor sees it."""

    pid: int = 0  # 0: it does not run
    orders: int = -1
    answers: int = -1
    is_ready: bool = False
    began: float = 0.0
    due: float = 0.0  # when it is started again
    pause: float = FIRST_PAUSE
    starts: int = 0
    failures: int = 0  # in a row, before it was ready


@dataclass
class Supervisor:
    count: int
    connections: "ConnectionCounts"
    say: Callable[[str], None]
    ready: Callable[[], None]  # once, when all processes are
    forwards_hangup: bool = False
    _name: str = field(default_factory=lambda: secrets.token_hex(6))
    _code: int | None = None  # set: all are to end, and this is the exit code
    _is_told: bool = False
    _signals: list[int] = field(default_factory=list)

    def run(self) -> ServerProcess | int:
        """Returns in each new process, and at the end in the supervisor with the exit code."""
        self._places = [_Place() for _ in range(self.count)]
        self._woken, wake = os.pipe()
        for descriptor in (self._woken, wake):
            os.set_blocking(descriptor, False)
        caught = [signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, *([signal.SIGHUP] if self.forwards_hangup else [])]
        before = {number: signal.signal(number, self._note) for number in caught}
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        gc.collect()
        gc.freeze()  # what is there now stays the same in all processes, and so in one place of the memory
        while True:
            for place in self._due():
                if (process := self._start(place)) is not None:
                    signal.set_wakeup_fd(-1)
                    for number, handler in before.items():
                        signal.signal(number, handler)
                    # A terminal sends Ctrl-C to all processes; what follows from it is the supervisor's business.
                    signal.signal(signal.SIGINT, lambda *_: None)
                    os.close(self._woken)
                    os.close(wake)
                    return process
            if self._code is not None and not any(place.pid for place in self._places):
                signal.set_wakeup_fd(-1)
                for number, handler in before.items():
                    signal.signal(number, handler)
                return self._code
            self._wait()

    def _note(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self._signals.append(number)

    # Starting.

    def _due(self) -> list[int]:
        """Places whose process is to be started now. The others wait for the first: it makes the store, the
        certificate and the token.
        """
        if self._code is not None:
            return []
        if self._is_first_starting:
            return []
        now = time.monotonic()
        places = range(self.count) if self._places[0].starts else range(1)
        return [number for number in places if not self._places[number].pid and self._places[number].due <= now]

    @property
    def _is_first_starting(self) -> bool:
        first = self._places[0]
        return bool(first.pid) and first.starts == 1 and not first.is_ready

    def _start(self, number: int) -> ServerProcess | None:
        """The new process, in itself; None in the supervisor."""
        place = self._places[number]
        heard, orders = os.pipe()
        answers, answered = os.pipe()
        pid = os.fork()
        if pid == 0:
            for other in self._places:
                _close((other.orders, other.answers))
            _close((orders, answers))
            group = ServerGroup(self._name, number, self.count)
            return ServerProcess(group, self.connections.of(number), heard, answered)
        _close((heard, answered))
        os.set_blocking(answers, False)
        place.pid, place.orders, place.answers = pid, orders, answers
        place.is_ready, place.began, place.starts = False, time.monotonic(), place.starts + 1
        return None

    # Watching.

    def _wait(self) -> None:
        waiting = [place.due for place in self._places if not place.pid] if self._code is None else []
        if self._is_first_starting:
            waiting = []
        timeout = max(0.0, min(waiting) - time.monotonic()) if waiting else None
        answering = {place.answers: place for place in self._places if place.pid and not place.is_ready}
        with suppress(InterruptedError):
            readable, _, _ = select.select([self._woken, *answering], [], [], timeout)
            for descriptor in readable:
                if descriptor == self._woken:
                    _drain(descriptor)
                elif _drain(descriptor):
                    answering[descriptor].is_ready = True
        self._obey()
        self._reap()
        if not self._is_told and self._code is None and all(place.is_ready for place in self._places):
            self._is_told = True
            self.ready()

    def _obey(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGHUP:
                self._tell_all(signal.SIGHUP)
            elif self._code is None:
                self._stop(Exit.OK)
            else:  # a second one: at once
                self._tell_all(signal.SIGKILL)

    def _stop(self, code: int) -> None:
        self._code = code
        self._tell_all(signal.SIGTERM)

    def _tell_all(self, number: int) -> None:
        for place in self._places:
            if place.pid:
                os.kill(place.pid, number)  # it is reaped by us, so its number is its own until then

    def _reap(self) -> None:
        for number, place in enumerate(self._places):
            if not place.pid:
                continue
            ended, status = os.waitpid(place.pid, os.WNOHANG)
            if not ended:
                continue
            _close((place.orders, place.answers))
            was_ready, lived = place.is_ready, time.monotonic() - place.began
            place.pid, place.orders, place.answers, place.is_ready = 0, -1, -1, False
            self.connections.leave(number)
            if self._code is None:
                self._ended(place, number, os.waitstatus_to_exitcode(status), was_ready=was_ready, lived=lived)

    def _ended(self, place: _Place, number: int, code: int, *, was_ready: bool, lived: float) -> None:
        place.failures = 0 if was_ready else place.failures + 1
        is_hopeless = place.starts == 1 or (place.failures >= 3 and not any(other.is_ready for other in self._places))
        if not was_ready and code > 0 and is_hopeless:  # it has said why
            self._stop(code)
            return
        place.pause = FIRST_PAUSE if was_ready and lived >= STEADY else min(LONGEST_PAUSE, place.pause * 2)
        place.due = time.monotonic() + place.pause
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self.say(f"process {number + 1} of {self.count} {how}; it is started again in {place.pause:.1f} s")
        for other in self._places:  # they take over what it had
            if other.is_ready:
                with suppress(OSError):
                    os.write(other.orders, LOOK)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)


def _drain(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1_000)
    except BlockingIOError:
        return b""
