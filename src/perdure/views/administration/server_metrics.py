"""Figures of a server as text for Prometheus: its store, the runs and tasks that it carried, its requests, its process.

No label has the id or name of a run, or anything else that documents choose; a namespace only if the operator says so
(`[metrics] namespaces`).
"""

import asyncio
import os
import resource
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from perdure.engine.runtime import Runtime
from perdure.kernel import events as e
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.outcomes import Failed, Succeeded
from perdure.providers.registry import slow_providers
from perdure.stores.admin import StoreStatistics
from perdure.views.administration.prometheus_text import Labels, Metric, Sample

PROC = Path("/proc/self")
MOST_NAMESPACES = 200  # that are counted on their own; further ones together, as `other`
BUCKETS = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0)  # seconds


COUNTED = frozenset({e.TaskScheduled, e.TaskEnded, e.TaskRedelivered, e.RunStarted, e.RunEnded})


class EventMetrics(Protocol):
    """Counts events of the runs of one language."""

    def listen(self, run: RunId, turns: list[tuple[Instant, list[e.Event]]]) -> None: ...

    def metrics(self) -> list[Metric]: ...


Aliases = Mapping[str, Mapping[str, str]]  # language → our name → another name of the same figure

HELP = {
    "perdure_runs": "Runs in the store, by status.",
    "perdure_runs_stuck": "Runs that cannot be decided.",
    "perdure_runs_unowned": "Open runs without a live owner.",
    "perdure_runs_overdue": "Parked runs that are due.",
    "perdure_messages": "Messages on their way to runs.",
    "perdure_message_oldest_seconds": "Age of the oldest message.",
    "perdure_tasks_queued": "Tasks of pools that wait for a worker.",
    "perdure_tasks_leased": "Tasks of pools that a worker has.",
    "perdure_store_bytes": "Size of the store.",
    "perdure_feed_followers": "Live streams of changes of runs.",
    "perdure_feed_lag_seconds": "From the last change that followers were told to its telling.",
    "perdure_runs_started_total": "Runs started by this process.",
    "perdure_runs_ended_total": "Runs ended in this process, by status.",
    "perdure_run_seconds": "From the start of a run to its end.",
    "perdure_tasks_started_total": "Tasks scheduled by this process.",
    "perdure_tasks_ended_total": "Tasks ended, by outcome.",
    "perdure_tasks_redelivered_total": "Tasks handed out again after a loss.",
    "perdure_slow_functions": "Functions declared quick of which a call took more than 5 ms: they run in threads.",
    "perdure_http_requests_total": "Requests answered, by operation and status.",
    "perdure_http_request_seconds": "From a request to the beginning of its answer.",
    "process_cpu_seconds_total": "Processor time of this process.",
    "process_resident_memory_bytes": "Memory of this process.",
    "process_open_fds": "Open file descriptors.",
    "process_start_time_seconds": "When this process started.",
}


class ServerMetrics:
    """Counts what happens in this process, from when it began to listen."""

    def __init__(
        self,
        runtime: Runtime,
        aliases: Aliases,
        event_metrics: Mapping[str, EventMetrics],
        totals: Sequence[Callable[[], list[Metric]]],
        *,
        has_namespaces: bool = False,
    ) -> None:
        """`event_metrics` count by language what only that one has; `totals` are figures of the moment."""
        self._has_namespaces = has_namespaces
        self._namespaces: set[str] = set()
        self._runtime = runtime
        self._event_metrics = event_metrics
        self._totals = totals
        self._aliases = aliases
        self._counts: dict[str, Counter[Labels]] = {name: Counter() for name in HELP if name.endswith("_total")}
        self._times: dict[str, dict[Labels, _Histogram]] = {
            "perdure_run_seconds": {},
            "perdure_http_request_seconds": {},
        }
        self._began = time.time()
        self.counted = asyncio.Event()  # something, since it was cleared
        self.stop = runtime.watch(self._listen)

    def count_request(self, operation: str, status: int, seconds: float) -> None:
        self.counted.set()
        self._counts["perdure_http_requests_total"][("operation", operation), ("status", str(status))] += 1
        self._time("perdure_http_request_seconds", (("operation", operation),), seconds)

    def _listen(self, run: RunId, turns: list[tuple[Instant, list[e.Event]]]) -> None:
        self.counted.set()
        name, namespace, started_at = self._runtime.origin_of(run)
        if name in self._event_metrics:
            self._event_metrics[name].listen(run, turns)
        labels: Labels = (("language", name), *self._namespace_label(namespace))
        for at, events in turns:
            for event in events:
                if type(event) in COUNTED:
                    self._count(event, labels, at - started_at)

    def _namespace_label(self, namespace: str) -> Labels:
        if not self._has_namespaces:
            return ()
        if namespace not in self._namespaces:
            if len(self._namespaces) >= MOST_NAMESPACES:
                return (("namespace", "other"),)
            self._namespaces.add(namespace)
        return (("namespace", namespace),)

    def _count(self, event: e.Event, labels: Labels, age: Instant) -> None:
        match event:
            case e.TaskScheduled():
                self._counts["perdure_tasks_started_total"][labels] += 1
            case e.TaskEnded():
                self._counts["perdure_tasks_ended_total"][*labels, ("outcome", _outcome(event))] += 1
            case e.TaskRedelivered():
                self._counts["perdure_tasks_redelivered_total"][labels] += 1
            case e.RunStarted():
                self._counts["perdure_runs_started_total"][labels] += 1
            case e.RunEnded():
                self._counts["perdure_runs_ended_total"][*labels, ("status", str(event.status))] += 1
                self._time("perdure_run_seconds", labels, age / SECOND)

    def _time(self, name: str, labels: Labels, seconds: float) -> None:
        histogram = self._times[name].get(labels)
        if histogram is None:
            histogram = self._times[name][labels] = _Histogram()
        histogram.add(seconds)

    def own(self, gauges: Mapping[str, float]) -> list[Metric]:
        """What this process has counted, and how it does; `gauges` are further figures of the moment, by name."""
        metrics: list[Metric] = []
        for name, help_text in HELP.items():
            samples = [*self._samples(name), *self._process(name)]
            if name in gauges:
                samples.append(("", (), gauges[name]))
            if samples:
                kind = "counter" if name.endswith("_total") else "histogram" if name in self._times else "gauge"
                metrics.append((name, kind, help_text, samples))
        for language, names in self._aliases.items():
            for name, alias in names.items():
                kind = "counter" if name.endswith("_total") else "histogram"
                samples = [
                    (suffix, tuple(label for label in labels if label[0] != "language"), value)
                    for suffix, labels, value in self._samples(name)
                    if ("language", language) in labels
                ]
                if samples:
                    metrics.append((alias, kind, HELP[name], samples))
        for counted in self._event_metrics.values():
            metrics += [metric for metric in counted.metrics() if metric[3]]
        return [*metrics, *(metric for total in self._totals for metric in total())]

    def _samples(self, name: str) -> Iterator[Sample]:
        for labels, count in self._counts.get(name, {}).items():
            yield "", labels, count
        for labels, histogram in self._times.get(name, {}).items():
            yield from histogram.samples(labels)

    def _process(self, name: str) -> Iterator[Sample]:
        match name:
            case "process_cpu_seconds_total":
                usage = resource.getrusage(resource.RUSAGE_SELF)
                yield "", (), round(usage.ru_utime + usage.ru_stime, 3)
            case "process_resident_memory_bytes" if PROC.is_dir():
                pages = int((PROC / "statm").read_text().split()[1])
                yield "", (), pages * os.sysconf("SC_PAGE_SIZE")
            case "process_open_fds" if PROC.is_dir():
                yield "", (), sum(1 for _ in (PROC / "fd").iterdir())
            case "perdure_slow_functions":
                yield "", (), len(slow_providers)
            case "process_start_time_seconds":
                yield "", (), round(self._began, 3)


def store_metrics(statistics: StoreStatistics, now: Instant) -> list[Metric]:
    """How the store does, for all its processes."""
    described = ((name, text, list(_store_samples(name, statistics, now))) for name, text in HELP.items())
    return [(name, "gauge", text, samples) for name, text, samples in described if samples]


class _Histogram:
    __slots__ = ("_buckets", "_sum")

    def __init__(self) -> None:
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        place = bisect_left(BUCKETS, seconds)
        self._buckets[place] += 1
        self._sum += seconds

    def samples(self, labels: Labels) -> Iterator[Sample]:
        count = 0
        for most, within in zip((*map(str, BUCKETS), "+Inf"), self._buckets, strict=True):
            count += within
            yield "_bucket", (*labels, ("le", most)), count
        yield "_sum", labels, round(self._sum, 6)
        yield "_count", labels, count


def _outcome(event: e.TaskEnded) -> str:
    match event.outcome:
        case Succeeded():
            return "succeeded"
        case Failed():
            return "failed"
        case _:
            return "cancelled"


def _store_samples(name: str, statistics: StoreStatistics, now: Instant) -> Iterator[Sample]:
    runs, oldest = statistics.runs, statistics.oldest_message
    figures = {
        "perdure_runs_stuck": runs.stuck,
        "perdure_runs_unowned": runs.unowned,
        "perdure_runs_overdue": runs.overdue,
        "perdure_messages": statistics.messages,
        "perdure_message_oldest_seconds": 0.0 if oldest is None else max(0.0, (now - oldest) / SECOND),
        "perdure_tasks_queued": statistics.tasks_ready,
        "perdure_tasks_leased": statistics.tasks_leased,
        "perdure_store_bytes": statistics.bytes,
    }
    if name == "perdure_runs":
        for status, count in runs.by_status.items():
            yield "", (("status", str(status)),), count
    elif name in figures:
        yield "", (), figures[name]
