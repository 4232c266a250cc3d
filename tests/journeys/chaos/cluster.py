"""Engine processes of the chaos test: `perdure serve`, real processes that can be killed, stopped and started anew."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.commandline import fork_server
from tests.cli.fork_server import Forked

TASKS = Path(__file__).with_name("tasks.py")
RECEIVER = "CHAOS_RECEIVER"  # as the tasks know it


@dataclass
class Life:
    """One process, from its start to its end, and when it was stopped and continued."""

    process: Forked
    born_at: float
    pauses: list[tuple[float, float]] = field(default_factory=list)
    paused_at: float | None = None
    ended_at: float | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def was_paused(self, since: float, until: float) -> bool:
        return any(begin < until and end > since for begin, end in self.pauses)


class Cluster:
    """Some engines on one store. `addresses`: where each of them finds it."""

    def __init__(
        self, folder: Path, addresses: Sequence[str], receiver: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._addresses = addresses
        talkative = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
        self._environment = {**os.environ, **talkative, RECEIVER: receiver, **(variables or {})}
        self.lives: list[Life] = []
        self.engines: list[Life | None] = [None] * len(addresses)

    def __enter__(self) -> "Cluster":
        for number in range(len(self.engines)):
            self.start(number)
        return self

    def __exit__(self, *exit: object) -> None:
        for number, life in enumerate(self.engines):
            if life is not None:
                self.go_on(number)
                self.kill(number)

    def start(self, number: int) -> Life:
        assert self.engines[number] is None, "it lives"
        life = self.engines[number] = self._begin(self._words(number), self.said(number))
        return life

    def _begin(self, words: Sequence[str], log: Path) -> Life:
        with log.open("ab") as file, Path(os.devnull).open() as nothing:
            streams = [nothing.fileno(), file.fileno(), file.fileno()]
            process = fork_server().start(words, self._folder, self._environment, streams)
        self.lives.append(Life(process, time.time()))
        return self.lives[-1]

    def _words(self, number: int) -> list[str]:
        return ["serve", "--listen", "off", "--db", self._addresses[number], "--load", str(TASKS)]

    def said(self, number: int) -> Path:
        return self._folder / f"engine-{number}.log"

    def kill(self, number: int) -> Life:
        """As the kernel does it when memory is short: nothing is said, nothing is done."""
        return self._end(number, signal.SIGKILL)

    def terminate(self, number: int, timeout: float = 30) -> Life:
        """As an operator does it: what it has is handed over."""
        return self._end(number, signal.SIGTERM, timeout)

    def _end(self, number: int, how: signal.Signals, timeout: float = 30) -> Life:
        life = self.engines[number]
        assert life is not None
        life.process.send_signal(how)
        try:
            life.process.wait(timeout)
        except subprocess.TimeoutExpired:
            life.process.send_signal(signal.SIGABRT)  # it says what its threads are doing, and ends
            life.process.wait(10)
            raise AssertionError(
                f"engine {number} did not end {timeout:.0f} s after {how.name}:\n{self._tail(number)}"
            ) from None
        life.ended_at = time.time()
        self.engines[number] = None
        return life

    def bury(self, process: int, timeout: float = 30) -> int | None:
        """The number of the engine that this process was, once it has ended by itself; None: it was none of them."""
        for number, life in enumerate(self.engines):
            if life is not None and life.pid == process:
                life.process.wait(timeout)
                life.ended_at = time.time()
                self.engines[number] = None
                return number
        return None

    def stop(self, number: int) -> Life:
        """As a machine does that is overloaded, or moved to another host."""
        life = self.engines[number]
        assert life is not None
        life.process.send_signal(signal.SIGSTOP)
        life.paused_at = time.time()
        return life

    def go_on(self, number: int) -> None:
        life = self.engines[number]
        if life is not None and life.paused_at is not None:
            life.process.send_signal(signal.SIGCONT)
            life.pauses.append((life.paused_at, time.time() + 1.0))  # what was under way needs a moment to end
            life.paused_at = None

    def check(self) -> None:
        """Nobody ended who was not made to."""
        for number, life in enumerate(self.engines):
            if life is not None and life.process.poll() is not None:
                raise AssertionError(
                    f"engine {number} ended by itself with {life.process.returncode}:\n{self._tail(number)}"
                )

    def _tail(self, number: int) -> str:
        return self.said(number).read_text(errors="replace")[-6_000:]
