"""The numbers of the topologies of this process for Prometheus, with the original names (STR-097).

Every series has the labels `namespace`, `storyrun` and `step`. A transport with `observability.metrics.enabled: false`
has none.
"""

import sys
import time
from collections.abc import Iterator, Mapping

from perdure.streams.inlet import Inlet
from perdure.streams.stream_graph import SECOND

PREFIX = "bobravoz_hub_"

METRICS: dict[str, tuple[str, str]] = {
    "buffer_current_size": ("gauge", "Messages that wait for a step."),
    "buffer_current_bytes": ("gauge", "Bytes that wait for a step."),
    "messages_dropped_total": ("counter", "Messages that a step did not get, by reason."),
    "buffer_flushed_total": ("counter", "Messages handed over that had waited for a worker."),
    "event_time_watermark_seconds": ("gauge", "The largest event time that a step has seen."),
    "event_time_lag_seconds": ("gauge", "Now minus the watermark."),
    "replay_last_ack": ("gauge", "Up to which sequence everything is acknowledged, by partition."),
    "replay_unacked_current": ("gauge", "Messages that were handed over and are not acknowledged."),
    "stream_recordings_total": ("counter", "Messages of a publisher that were recorded."),
}

StreamSample = tuple[str, dict[str, str], float]
"""The name of the metric, labels, value."""
Metric = tuple[str, str, str, list[tuple[str, tuple[tuple[str, str], ...], float]]]
"""As `perdure.services.METRICS` describes it."""


def live_metrics() -> list[Metric]:
    """Of the topologies at work here."""
    module = sys.modules.get("perdure.services.story.streams.live_topology")  # without it there are none
    topologies = {} if module is None else module.TOPOLOGIES
    now = time.time_ns() // 1_000
    samples: list[StreamSample] = []
    for topology in list(topologies.values()):
        labels = {"namespace": topology.run["namespace"], "storyrun": topology.run["name"]}
        samples += samples_of(topology.hub.inlets, labels, now)
    return list(metrics_of(samples))


LARGEST = ("event_time_watermark_seconds", "event_time_lag_seconds")
ONLY_BY_STEP = ("replay_last_ack",)  # a number of one partition of one step: there is no total


def total_metrics() -> list[Metric]:
    """Over all topologies at work here: sums, and of times the largest."""
    totals = []
    for name, kind, meaning, series in live_metrics():
        own_name = name.removeprefix(PREFIX)
        if own_name not in ONLY_BY_STEP:
            combine = max if own_name in LARGEST else sum
            by_reason: dict[tuple[tuple[str, str], ...], list[float]] = {}
            for _, labels, value in series:
                by_reason.setdefault(tuple(label for label in labels if label[0] == "reason"), []).append(value)
            totals.append(
                (name, kind, meaning, [("", labels, combine(values)) for labels, values in by_reason.items()])
            )
    return totals


def samples_of(inlets: Mapping[str, Inlet], labels: Mapping[str, str], now: int) -> Iterator[StreamSample]:
    for inlet in inlets.values():
        if inlet.settings.has_metrics:
            for name, more, value in _numbers(inlet, now):
                yield name, {**labels, "step": inlet.plan.public_name, **more}, value


def _numbers(inlet: Inlet, now: int) -> Iterator[StreamSample]:
    counters, settings = inlet.counters, inlet.settings
    yield "buffer_current_size", {}, len(inlet.waiting)
    yield "buffer_current_bytes", {}, inlet.bytes
    for reason, count in counters.dropped.items():
        yield "messages_dropped_total", {"reason": reason}, count
    yield "buffer_flushed_total", {}, counters.flushed
    if counters.watermark:
        yield "event_time_watermark_seconds", {}, counters.watermark / SECOND
        yield "event_time_lag_seconds", {}, max(0.0, (now - counters.watermark) / SECOND)
    if settings.is_sequenced:
        for partition, sequence in inlet.state.acked.items():
            yield "replay_last_ack", {"partition": partition}, sequence
        yield "replay_unacked_current", {}, len(inlet.pending)
    yield "stream_recordings_total", {}, counters.recorded


def metrics_of(samples: list[StreamSample]) -> Iterator[Metric]:
    """Every metric once, with all its series."""
    for name, (kind, meaning) in METRICS.items():
        series = [("", tuple(labels.items()), value) for of, labels, value in samples if of == name]
        if series:
            yield f"{PREFIX}{name}", kind, meaning, series
