"""What is measured, in which unit, and what we want of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bench.sizes import Sizes

BEST = "the best peer"


class Times(NamedTuple):
    """So many times a peer or, where lower is better, at most that part of it."""

    flow: float
    others: float


@dataclass(frozen=True)
class Metric:
    """A figure of a workload. `higher` says which way is better; `wanted` is for Perdure."""

    name: str
    title: str
    unit: str
    higher: bool
    times_best: Times | None = None
    """Wanted, beside the best peer."""
    bound: float | None = None
    """Wanted: at least, or at most, this."""
    on_postgres: tuple[str, Times] | None = None
    """Wanted on PostgreSQL instead of all that, beside a peer by name, or `BEST`."""
    beside: tuple[str, float] | None = None
    """Wanted: so many times what the same subject comes to in another workload."""


@dataclass(frozen=True)
class Workload:
    name: str
    label: str
    """What readers call it."""
    title: Callable[[Sizes], str]
    metrics: tuple[Metric, ...]
    limits: tuple[tuple[str, str], ...] = ()
    """What stands in the way in the end: figures of bench/limits.py, beside the first metric."""


_MINIMAL = "a minimal program: the same function, rows and syncs on SQLite, no features"
_BATCHES = (
    ("minimal_short_per_s", _MINIMAL),
    ("rows_per_s", "physical limit: SQLite, rows/s in synced batches of 100"),
    ("postgres_rows_per_s", "physical limit: PostgreSQL, rows/s in synced batches of 100"),
)
_COMMITS = (
    ("minimal_long_per_s", f"{_MINIMAL}; the function in a thread"),
    ("commits_per_s", "physical limit: SQLite, synced commits/s"),
    ("postgres_commits_per_s", "physical limit: PostgreSQL, synced commits/s"),
)
_STEPS = ("steps_per_s", "speed", "steps/s", True)

WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "w1",
        "short workflows",
        lambda sizes: f"{sizes.workflows:,} workflows of {sizes.steps} sequential steps",
        (Metric(*_STEPS, times_best=Times(20, 10), on_postgres=("absurd", Times(10, 6))),),
        _BATCHES,
    ),
    Workload(
        "w2",
        "parallel steps",
        lambda sizes: f"one workflow, {sizes.width:,} parallel steps, gathered",
        (Metric(*_STEPS, times_best=Times(15, 15), on_postgres=(BEST, Times(7, 7))),),
        _BATCHES,
    ),
    Workload(
        "w3",
        "one step, start to result",
        lambda sizes: f"start to result of a 1-step workflow, one at a time, {sizes.starts:,} times",
        (
            Metric("p50_ms", "median", "ms", False, times_best=Times(1 / 3, 1 / 3)),
            Metric("p99_ms", "99th percentile", "ms", False, times_best=Times(1 / 3, 1 / 3)),
        ),
    ),
    Workload(
        "w4",
        "one long workflow",
        lambda sizes: f"one workflow of {sizes.rounds:,} sequential steps",
        (
            Metric(*_STEPS, times_best=Times(3, 2.5), on_postgres=(BEST, Times(2, 2))),
            Metric("last_to_first", "last tenth to first", "", True, bound=0.9),
        ),
        _COMMITS,
    ),
    Workload(
        "w5",
        "restart after `kill -9`",
        lambda sizes: "`kill -9` in the middle of the short workflows, then a restart",
        (
            Metric("recover_s", "restart to all complete", "s", False, times_best=Times(1 / 2, 1 / 2)),
            Metric("lost", "workflows lost or wrong", "workflows", False, bound=0),
            Metric("again", "finished steps run again", "steps", False, bound=0),
        ),
    ),
    Workload(
        "w6",
        "start and rest",
        lambda sizes: "a process with an open engine; cold start to first result",
        (
            Metric("rss_mb", "memory at rest", "MB", False, bound=45),
            Metric("cold_s", "cold start to first result", "s", False, bound=0.25),
        ),
    ),
    Workload(
        "w7",
        "waiting workflows",
        lambda sizes: f"{sizes.parked:,} workflows parked in a durable wait",
        (
            Metric("starts_per_s", "starts", "starts/s", True, times_best=Times(9, 9)),
            Metric("ram_kb", "memory of each", "KB", False, bound=0.5),
            Metric("disk_kb", "disk of each", "KB", False, bound=1.0),
            Metric("wake_s", "all due at once, woken", "s", False, bound=5.0),
        ),
        _BATCHES,
    ),
    Workload(
        "w8",
        "short workflows, two engines",
        lambda sizes: f"the {sizes.workflows:,} short workflows shared out to two engines on one PostgreSQL server",
        (Metric(*_STEPS, beside=("w1", 1)),),
    ),
)

SYNCS: dict[str, float] = {"w1": 0.1, "w4": 1.05}
"""Syncs per step that we allow ourselves."""


def workload_named(name: str) -> Workload:
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    raise KeyError(f"there is no workload {name!r}: {', '.join(workload.name for workload in WORKLOADS)}")
