"""Servers that send every task to workers elsewhere, and those workers: real processes, each with its own server."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from tests.journeys.chaos.cluster import TASKS, Cluster, Life

POOL = "far"
PROVIDERS = ("labour", "flaky", "charge")
ROUTES = {name: POOL for provider in PROVIDERS for name in (provider, f"engram:{provider}@1.0.0")}
LEASE = 3.0  # seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ClusterWithWorkers(Cluster):
    """`perdure serve` three times and `perdure worker` four times, say. No server has the code of a task."""

    def __init__(
        self,
        folder: Path,
        addresses: Sequence[str],
        receiver: str,
        variables: Mapping[str, str] | None = None,
        *,
        workers: int,
    ) -> None:
        super().__init__(folder, addresses, receiver, variables)
        self._ports = [free_port() for _ in addresses]
        self._settings = folder / "settings.toml"
        self._settings.write_text(f"[workers]\nlease = {LEASE}\n")
        self._token = folder / "worker-token"
        self.workers: list[Life | None] = [None] * workers

    def __enter__(self) -> "ClusterWithWorkers":
        super().__enter__()
        command = [sys.executable, "-m", "perdure", "token", "create", "--db", self._addresses[0], "--name", "fleet"]
        done = subprocess.run(
            [*command, "--role", "worker", "--pool", POOL], capture_output=True, text=True, timeout=120, check=True
        )
        self._token.write_text(done.stdout)
        for number in range(len(self.workers)):
            self.start_worker(number)
        return self

    def __exit__(self, *exit: object) -> None:
        for life in self.workers:
            if life is not None:
                life.process.send_signal(signal.SIGCONT)
                life.process.kill()
                life.process.wait()
        super().__exit__(*exit)

    def _words(self, number: int) -> list[str]:
        routes = [word for name, pool in ROUTES.items() for word in ("--route", f"{name}={pool}")]
        listen = ["--listen", f"127.0.0.1:{self._ports[number]}", "--config", str(self._settings)]
        data = ["--data", str(self._folder / f"data-{number}")]
        store = ["--db", self._addresses[number]]
        return ["serve", *listen, *data, *store, *routes]

    def start_worker(self, number: int) -> Life:
        server = f"http://127.0.0.1:{self._ports[number % len(self._ports)]}"
        words = ["--server", server, "--token", f"@{self._token}", "--load", str(TASKS), "--name", f"worker-{number}"]
        log = self._folder / f"worker-{number}.log"
        life = self.workers[number] = self._begin(["worker", *words, "--slots", "6"], log)
        return life

    def end_worker(self, number: int, how: signal.Signals) -> None:
        life = self.workers[number]
        assert life is not None
        life.process.send_signal(how)
        life.process.wait(60)
        life.ended_at = time.time()
        self.workers[number] = None

    def pause_worker(self, number: int, seconds: float) -> None:
        life = self.workers[number]
        assert life is not None
        life.process.send_signal(signal.SIGSTOP)
        begun = time.time()
        time.sleep(seconds)
        life.process.send_signal(signal.SIGCONT)
        life.pauses.append((begun, time.time() + 1.0))

    def bury(self, process: int, timeout: float = 30) -> int | None:
        """A task has killed its worker, which is started anew."""
        for number, life in enumerate(self.workers):
            if life is not None and life.pid == process:
                life.process.wait(timeout)
                life.ended_at = time.time()
                self.start_worker(number)
                return None
        return super().bury(process, timeout)

    def check(self) -> None:
        super().check()
        for number, life in enumerate(self.workers):
            if life is not None and (code := life.process.poll()) is not None and -code != signal.SIGKILL:
                text = (self._folder / f"worker-{number}.log").read_text(errors="replace")[-4_000:]
                raise AssertionError(f"worker {number} ended by itself with {code}:\n{text}")


def pick(cluster: Cluster, chance: Random) -> tuple[ClusterWithWorkers, int]:
    assert isinstance(cluster, ClusterWithWorkers), os.getpid()
    return cluster, chance.randrange(len(cluster.workers))
