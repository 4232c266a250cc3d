"""From samples to answers: medians, ranges, the best peer, and whether a goal is met."""

import statistics
from dataclasses import dataclass
from typing import Any

from bench.workloads import BEST, WORKLOADS, Metric, Times, Workload, workload_named

Results = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """What the repetitions of one metric came to."""

    median: float
    low: float
    high: float
    by_round: dict[int, float]


@dataclass(frozen=True)
class Verdict:
    """A goal, the peer that it compares with, and the result."""

    goal: str
    peer: str | None
    value: float | None
    is_met: bool | None  # None: nothing to compare with
    range: tuple[float, float] | None = None  # of the ratios within one round


def figure(results: Results, workload: str, subject: str, metric: str) -> Figure | None:
    """Over the repetitions of the setting that was chosen for the subject."""
    chosen = results["chosen"].get(f"{workload} {subject}")
    by_round = {
        sample["round"]: sample["figures"][metric]
        for sample in results["samples"]
        if sample["workload"] == workload
        and sample["subject"] == subject
        and (chosen is None or sample["variant"] == chosen)
        and metric in sample.get("figures", {})
    }
    if not by_round:
        return None
    values = by_round.values()
    return Figure(statistics.median(values), min(values), max(values), by_round)


def failures(results: Results, workload: str, subject: str) -> list[str]:
    return [
        sample["error"]
        for sample in results["samples"]
        if sample["workload"] == workload and sample["subject"] == subject and "error" in sample
    ]


def mine(results: Results, *, on_postgres: bool | None = None) -> list[str]:
    """Perdure's languages, of one store or of both."""
    names = [name for name, about in results["subjects"].items() if about["ours"]]
    return names if on_postgres is None else [name for name in names if is_on_postgres(name) == on_postgres]


def in_order(results: Results) -> Results:
    """With the languages that users write first: the test dialect only shows what the kernel costs."""

    def last(results: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(results.items(), key=lambda item: is_test_dialect(item[0])))

    sorted_too = {name: last(results[name]) for name in ("subjects", "split", "profile") if results.get(name)}
    return {**results, **sorted_too, "curves": {name: last(lines) for name, lines in results["curves"].items()}}


def is_test_dialect(subject: str) -> bool:
    return subject.partition("@")[0] == "drill"


def is_on_postgres(subject: str) -> bool:
    return subject.endswith("@postgres")


def peers(results: Results) -> list[str]:
    return [name for name, about in results["subjects"].items() if not about["ours"]]


def best_peer(results: Results, workload: str, metric: Metric) -> tuple[str, Figure] | None:
    figures = [(name, figure(results, workload, name, metric.name)) for name in peers(results)]
    known = [(name, measurement) for name, measurement in figures if measurement is not None]
    if not known:
        return None
    return (max if metric.higher else min)(known, key=lambda item: item[1].median)


def verdicts(results: Results, workload: Workload, metric: Metric, subject: str) -> list[Verdict]:
    """Every goal of a metric, for one of our languages."""
    ours = figure(results, workload.name, subject, metric.name)
    goals = []
    if (required := _beside_a_peer(metric, subject)) is not None:
        name, times = required
        if name == BEST:
            peer, theirs = best_peer(results, workload.name, metric) or (None, None)
        else:
            theirs = figure(results, workload.name, name, metric.name)
            peer = name if theirs else None
        goals.append(_ratio(name, peer, metric, times, ours, theirs, is_flow=subject.partition("@")[0] == "flow"))
    if metric.beside is not None and is_on_postgres(subject):
        other, least = metric.beside
        theirs = figure(results, other, subject, metric.name)
        label = f"{workload_named(other).label} with one engine"
        goals.append(_ratio(label, None, metric, Times(least, least), ours, theirs, is_flow=False))
    if metric.bound is not None and not is_on_postgres(subject):
        value = ours.median if ours else None
        is_met = None if value is None else value >= metric.bound if metric.higher else value <= metric.bound
        sign = "≥" if metric.higher else "≤"
        goals.append(Verdict(f"{sign} {number(metric.bound)} {metric.unit}".strip(), None, value, is_met))
    return goals


def _beside_a_peer(metric: Metric, subject: str) -> tuple[str, Times] | None:
    if is_on_postgres(subject):
        return metric.on_postgres
    return None if metric.times_best is None else (BEST, metric.times_best)


def _ratio(
    of: str,
    peer: str | None,
    metric: Metric,
    times: Times,
    ours: Figure | None,
    theirs: Figure | None,
    *,
    is_flow: bool,
) -> Verdict:
    if metric.higher:
        exception = f" (Flow: {number(times.flow)})" if times.flow != times.others else ""
        goal = f"≥ {number(times.others)}{exception} × {of}"
    else:
        goal = f"≤ 1/{number(1 / times.others)} of {of}"
    if ours is None or theirs is None or not theirs.median:
        return Verdict(goal, peer, None, None)
    ratio, limit = ours.median / theirs.median, times.flow if is_flow else times.others
    ratios = [value / theirs.by_round[at] for at, value in ours.by_round.items() if theirs.by_round.get(at)]
    span = (min(ratios), max(ratios)) if len(ratios) > 1 else None
    return Verdict(goal, peer, ratio, ratio >= limit if metric.higher else ratio <= limit, span)


def number(value: float) -> str:
    """As few digits as tell it apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.2f}".rstrip("0").rstrip(".")


def all_metrics() -> list[tuple[Workload, Metric]]:
    return [(workload, metric) for workload in WORKLOADS for metric in workload.metrics]
