"""The whole chaos test: engines, clients, faults, and then the checks.

expected = await without_faults(folder)                 how every kind of run ends when nothing goes wrong
report = await with_faults(folder, expected, told)      the same kinds, many of them, while everything goes wrong
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random

from perdure.kernel.json_values.values import RunId
from perdure.wiring import Observer
from tests.journeys.chaos import checks, workload
from tests.journeys.chaos.checks import Ends, Verdict
from tests.journeys.chaos.clients import Clients
from tests.journeys.chaos.cluster import Cluster, Life
from tests.journeys.chaos.database import ChaosDatabase, chaos_database
from tests.journeys.chaos.faults import Scene, inject
from tests.journeys.chaos.receiver import Receiver
from tests.journeys.chaos.workers import ROUTES, ClusterWithWorkers
from tests.journeys.chaos.workload import Order, Word

EXAMPLE = "calm"
LEASE = "PERDURE_DB_LEASE"
ON_SQLITE = range(1, 1_000)  # partitions that could have messages


@dataclass(frozen=True)
class ChaosSettings:
    """What kind of chaos. `version`: of PostgreSQL, or None for SQLite."""

    runs: int
    seconds: float  # for which runs are started and faults injected
    seed: int
    version: int | None = 18
    engines: int = 3
    workers: int = 0  # elsewhere, which do all tasks; 0: servers do them
    lease: float = 2.0
    pause: tuple[float, float] = (0.5, 2.5)  # seconds between faults
    timeout: float = 120.0  # seconds after the last fault in which everything must end


@dataclass
class Report:
    told: ChaosSettings
    injected: Counter[str]
    faults: list[tuple[float, str, float]]  # when, which, for how many seconds
    takeovers: list[float]
    verdict: Verdict
    leaks: list[str]
    orders: int
    troubled: float  # seconds until everything was started and said, and the last fault was over
    seconds: float  # until every run had ended
    asked_again: int
    charges: int
    repeated: int  # charges under a key that the receiver knew already

    @property
    def wrong(self) -> list[str]:
        return self.leaks + self.verdict.wrong

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.injected.items()))
        seen = self.verdict
        return (
            f"seed {self.told.seed}: {self.orders} orders, {seen.runs} runs, {seen.tasks} tasks, {seen.events} events;"
            f" all ended after {self.seconds:.0f} s, {self.troubled:.0f} s of trouble.\n"
            f"Faults: {faults}; slowest take-over {max(self.takeovers, default=0):.1f} s.\n"
            f"{seen.redelivered} tasks were delivered again, {seen.in_doubt} effects were in doubt, {self.repeated} of"
            f" {self.charges} charges repeated a known key; {self.asked_again} wishes were asked again.\n"
            f"{seen.words} words were acknowledged, {seen.declined} of them declined with a trace;"
            f" {seen.charged} losses were charged to a task.\n"
            f"{len(self.wrong)} things are wrong."
        )

    def explain(self) -> str:
        return "\n".join([str(self), *self.wrong[:40]])


@dataclass(frozen=True)
class Calm:
    """A fault-free play: an example of each kind and a second one, the store they left, and what was seen outside."""

    url: str
    orders: Mapping[Order, RunId]
    words: Sequence[tuple[RunId, Word]]  # that were acknowledged
    ends: Ends
    receiver: Receiver
    lives: Sequence[Life]

    def expected(self, orders: Iterable[Order]) -> Ends:
        """How these end if each ends as the example of its kind did."""
        return self.ends.of(orders, {kind: f"{kind}-{EXAMPLE}" for kind in workload.kinds()})

    async def find_problems(self, url: str, receiver: Receiver) -> list[str]:
        async with Observer(url) as observer:
            expected = self.expected(self.orders)
            verdict = await checks.check_everything(
                observer, self.orders, self.words, expected, receiver, self.lives, ON_SQLITE
            )
            return verdict.wrong


async def without_faults(folder: Path) -> Calm:
    url = f"sqlite:///{folder / 'calm.db'}"
    orders = [Order(kind, f"{kind}-{name}") for kind in workload.kinds() for name in (EXAMPLE, "another")]
    with Receiver() as receiver, Cluster(folder, [url], receiver.address) as cluster:
        await _until_there(folder / "calm.db")
        async with Observer(url) as observer:
            receiver.store_clock = observer.clock.now
            clients = Clients(url, observer, Random(1))
            await clients.serve(orders, 0)
            assert await clients.all_ended(60) == []
            cluster.terminate(0)
            runs, _ = await checks.recorded(observer)
            endings = checks.ends(clients.runs, runs, receiver)
    calm = Calm(url, clients.runs, clients.words, endings, receiver, cluster.lives)
    wrong = await calm.find_problems(url, receiver)
    assert wrong == [], "something is wrong without any fault:\n" + "\n".join(wrong)
    return calm


Watching = Callable[[Cluster, ChaosDatabase | None], AbstractContextManager[object]]


def _unwatched(cluster: Cluster, database: ChaosDatabase | None) -> AbstractContextManager[object]:
    return nullcontext()


async def with_faults(folder: Path, calm: Calm, settings: ChaosSettings, watching: Watching = _unwatched) -> Report:
    orders = workload.orders(settings.runs, settings.seed)
    chance = Random(settings.seed)
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        database = None if settings.version is None else stack.enter_context(chaos_database(settings.version))
        url, addresses = _addresses(folder, database, settings)
        about = (folder, addresses, receiver.address, {LEASE: str(settings.lease)})
        fleet = ClusterWithWorkers(*about, workers=settings.workers) if settings.workers else Cluster(*about)
        cluster = stack.enter_context(fleet)
        await _until_served(folder, database, settings)
        scene = Scene(cluster, receiver, database, chance, settings.lease)
        async with Observer(url) as observer:
            receiver.store_clock = observer.clock.now if database is None else database.clock()
            clients = Clients(url, observer, Random(settings.seed + 1), ROUTES if settings.workers else {})
            begun = time.monotonic()
            with watching(cluster, database):
                injecting = asyncio.create_task(
                    asyncio.to_thread(inject, scene, settings.seconds, settings.pause, settings.seed)
                )
                await clients.serve(orders, settings.seconds)
                await injecting
                troubled = time.monotonic() - begun
                await clients.all_ended(settings.timeout)
                seconds = time.monotonic() - begun
            cluster.check()
            if database is not None:
                await asyncio.to_thread(
                    database.left_by, os.getpid(), 60
                )  # clients connect and disconnect in every state of the store
            leaks = await asyncio.to_thread(_leaks, cluster, database, settings)
            verdict = await checks.check_everything(
                observer,
                clients.runs,
                clients.words,
                calm.expected(orders),
                receiver,
                cluster.lives,
                _partitions(database),
            )
        charges = len(receiver.charges())
        return Report(
            settings,
            scene.injected,
            scene.log,
            scene.takeovers,
            verdict,
            leaks,
            len(clients.runs),
            troubled,
            seconds,
            clients.asked_again,
            charges,
            charges - len(receiver.performed),
        )


def _partitions(database: ChaosDatabase | None) -> Sequence[int]:
    if database is None:
        return ON_SQLITE
    return [id for (id,) in database.ask("SELECT id FROM perdure.partitions")]


def _addresses(folder: Path, database: ChaosDatabase | None, settings: ChaosSettings) -> tuple[str, list[str]]:
    """Where the clients and each of the engines find the store; one engine goes through the proxy."""
    if database is None:
        url = f"sqlite:///{folder / 'runs.db'}"
        return url, [url] * settings.engines
    direct = [database.address] * (settings.engines - 1)
    return database.address, [*direct, database.address_by_proxy]


async def _until_served(folder: Path, database: ChaosDatabase | None, settings: ChaosSettings) -> None:
    if database is None:
        await _until_there(folder / "runs.db")
        return
    await asyncio.to_thread(database.served_by, settings.engines, 60)


async def _until_there(path: Path) -> None:
    async with asyncio.timeout(60):
        while not path.exists():
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)


def _leaks(cluster: Cluster, database: ChaosDatabase | None, settings: ChaosSettings) -> list[str]:
    """Everyone leaves in an orderly way; then nobody owns anything and nothing is held.

    One whose lease is over, as after the last fault or on a busy machine, gives nothing back when it leaves: whoever
    stays takes it over. So the last one leaves when all is its own.
    """
    *others, last = range(len(cluster.engines))
    for number in others:
        cluster.terminate(number)
    if database is not None and (life := cluster.engines[last]) is not None:
        database.owned_by(life.pid, settings.lease * 4 + 30)
    cluster.terminate(last)
    return [] if database is None else database.leaks()
