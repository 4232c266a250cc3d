"""What goes wrong in the chaos test. A kind of fault is one function and its line in `FAULTS`.

Every fault ends well: whatever was stopped goes on, whoever was killed is started anew, before the next one begins.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from perdure.kernel.json_values.values import SECOND
from tests.journeys.chaos.cluster import Cluster
from tests.journeys.chaos.database import ChaosDatabase
from tests.journeys.chaos.receiver import Receiver
from tests.journeys.chaos.workers import LEASE as WORKER_LEASE
from tests.journeys.chaos.workers import ClusterWithWorkers, pick


@dataclass
class Scene:
    cluster: Cluster
    receiver: Receiver
    database: ChaosDatabase | None  # None: a store without a server
    chance: Random
    lease: float  # seconds
    injected: Counter[str] = field(default_factory=Counter)
    log: list[tuple[float, str, float]] = field(default_factory=list)  # when, which, for how many seconds
    takeovers: list[float] = field(default_factory=list)  # seconds from a death until others had all its partitions

    def anyone(self) -> int:
        return self.chance.randrange(len(self.cluster.engines))

    def start(self, number: int) -> None:
        """A process that starts while there is no database says so and ends: only one that serves is patient."""
        life = self.cluster.start(number)
        if self.database is not None:
            self.database.joined_by(life.pid, 60)

    def wait(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))


def killed(scene: Scene) -> None:
    """kill -9, and a new process some time later."""
    victim = scene.anyone()
    life = scene.cluster.kill(victim)
    if scene.database is not None:
        scene.takeovers.append(scene.database.taken_over(life.pid, scene.lease * 4 + 10))
    scene.wait(0, 1)
    scene.start(victim)


def killed_and_back(scene: Scene) -> None:
    """kill -9, and its successor is there before anyone has noticed."""
    victim = scene.anyone()
    scene.cluster.kill(victim)
    scene.start(victim)


def stopped(scene: Scene) -> None:
    """SIGSTOP for longer than its lease, then SIGCONT: it wakes up in a world that went on without it."""
    victim = scene.anyone()
    scene.cluster.stop(victim)
    time.sleep(scene.lease * scene.chance.uniform(1.5, 2.5))
    scene.cluster.go_on(victim)


def paused(scene: Scene) -> None:
    """SIGSTOP for less than its lease: nobody should notice."""
    victim = scene.anyone()
    scene.cluster.stop(victim)
    time.sleep(scene.lease * scene.chance.uniform(0.1, 0.4))
    scene.cluster.go_on(victim)


def terminated(scene: Scene) -> None:
    """SIGTERM, as in a rolling upgrade."""
    victim = scene.anyone()
    scene.cluster.terminate(victim)
    scene.wait(0, 1)
    scene.start(victim)


def everyone_killed(scene: Scene) -> None:
    """Nobody owns anything for longer than a lease. What is said to runs meanwhile waits in the store."""
    for number in range(len(scene.cluster.engines)):
        scene.cluster.kill(number)
    time.sleep(scene.lease * scene.chance.uniform(1.2, 2.0))
    for number in range(len(scene.cluster.engines)):
        scene.start(number)


def successors_left(scene: Scene) -> None:
    """One is stopped for longer than its lease, those who took over leave in order: it wakes up, and is alone."""
    sleeper = scene.anyone()
    others = [number for number in range(len(scene.cluster.engines)) if number != sleeper]
    life = scene.cluster.stop(sleeper)
    time.sleep(scene.lease * scene.chance.uniform(1.5, 2.5))
    for other in others:
        scene.cluster.terminate(other)
    scene.cluster.go_on(sleeper)
    if scene.database is not None:
        scene.database.owned_by(life.pid, scene.lease * 4 + 30)
    scene.wait(0, 1)
    for other in others:
        scene.start(other)


def killed_by_task(scene: Scene) -> None:
    """A task ends its process once or more, among others that have done nothing. Nobody fails for it.

    Of a file it may be charged from its first death on: it kills less often than the smallest cap allows.
    """
    scene.receiver.let_a_task_kill(scene.chance.randint(1, 2 if scene.database is None else 3))
    end = time.monotonic() + scene.lease * 4 + 20  # so long: perhaps nothing begins any more
    while (scene.receiver.deaths or scene.receiver.doomed) and time.monotonic() < end:
        while scene.receiver.doomed:
            number = scene.cluster.bury(scene.receiver.doomed.pop())
            if number is not None:  # else it was a process of the task's own
                scene.start(number)
        time.sleep(0.05)
    scene.receiver.let_a_task_kill(0)


def connections_cut(scene: Scene) -> None:
    """Every connection of everyone ends, whatever was under way on it."""
    assert scene.database is not None
    scene.database.cut_all()


def one_cut_off(scene: Scene) -> None:
    """The network to one engine is gone for longer than its lease: connections stay, nothing passes."""
    assert scene.database is not None
    scene.database.proxy.hold()
    time.sleep(scene.lease * scene.chance.uniform(1.2, 2.0))
    scene.database.proxy.cut()


def database_restarted(scene: Scene) -> None:
    assert scene.database is not None
    scene.database.restart("fast")


def database_crashed(scene: Scene) -> None:
    """As a power cut, without the power cut: it recovers from its log."""
    assert scene.database is not None
    scene.database.restart("immediate")


def database_clock_set(scene: Scene) -> None:
    """By an hour or two, forward or back; it stays so until the next time. The store's clock goes on nevertheless."""
    assert scene.database is not None
    scene.database.set_clock(scene.chance.choice([by for by in (-1, 0, 1) if by != scene.database.hours_ahead]))
    end = time.monotonic() + scene.lease + 20
    while abs((count := scene.database.clock())() - scene.receiver.store_clock()) > SECOND:
        assert time.monotonic() < end, "nobody has noticed that the database's clock was set"
        time.sleep(0.05)
    scene.receiver.store_clock = count


def worker_killed(scene: Scene) -> None:
    """kill -9 of a worker elsewhere, and a new one."""
    cluster, victim = pick(scene.cluster, scene.chance)
    cluster.end_worker(victim, signal.SIGKILL)
    scene.wait(0, 1)
    cluster.start_worker(victim)


def worker_stopped(scene: Scene) -> None:
    """SIGSTOP of a worker for longer than its leases last: it wakes up, and its tasks are others'."""
    cluster, victim = pick(scene.cluster, scene.chance)
    cluster.pause_worker(victim, WORKER_LEASE * scene.chance.uniform(1.2, 2.0))


def worker_drained(scene: Scene) -> None:
    """SIGTERM of a worker: it finishes what it has, and gives the rest back."""
    cluster, victim = pick(scene.cluster, scene.chance)
    cluster.end_worker(victim, signal.SIGTERM)
    cluster.start_worker(victim)


Fault = Callable[[Scene], None]

OF_PROCESSES: tuple[Fault, ...] = (
    killed,
    killed_and_back,
    killed_by_task,
    everyone_killed,
    stopped,
    paused,
    terminated,
    successors_left,
)
OF_DATABASES: tuple[Fault, ...] = (
    connections_cut,
    one_cut_off,
    database_restarted,
    database_crashed,
    database_clock_set,
)

OF_WORKERS: tuple[Fault, ...] = (worker_killed, worker_stopped, worker_drained, killed, stopped, terminated)


def kinds(scene: Scene) -> tuple[Fault, ...]:
    if isinstance(scene.cluster, ClusterWithWorkers):
        return (*OF_WORKERS, killed_by_task, connections_cut)
    return OF_PROCESSES + (OF_DATABASES if scene.database is not None else ())


def first_round(faults: tuple[Fault, ...], seed: int, chance: Random) -> list[Fault]:
    """In reverse. However short a play is: with as many seeds in a row as there are kinds, each has come first once."""
    first = faults[seed % len(faults)]
    others = [fault for fault in faults if fault is not first]
    return [*chance.sample(others, len(others)), first]


def inject(scene: Scene, seconds: float, pause: tuple[float, float], seed: int) -> None:
    """Fault after fault for so long; each kind comes once before any comes again."""
    faults = kinds(scene)
    end = time.monotonic() + seconds
    ahead = first_round(faults, seed, scene.chance)
    while time.monotonic() < end:
        scene.wait(*pause)
        if not ahead:
            ahead = scene.chance.sample(faults, len(faults))
        fault = ahead.pop()
        begun = time.time()
        fault(scene)
        scene.log.append((begun, fault.__name__, time.time() - begun))
        scene.injected[fault.__name__] += 1
        scene.cluster.check()
