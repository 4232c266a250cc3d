"""How cost grows: per step against history length, width, payload and open runs. Perdure only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.harness import Failure, Harness, Subject


@dataclass(frozen=True)
class Curve:
    name: str  # a function in bench/points.py
    title: str
    axis: str
    unit: str
    points: tuple[int, ...]
    grows: bool = False  # a point x has x steps to do


LONGEST = 150.0
"""Seconds. A point that would take longer, as the one before tells, is left out, and the page says so."""

CURVES: tuple[Curve, ...] = (
    Curve("history", "Cost of a step against the length of its run", "steps in one run, one after the other", "µs/step",
          (10, 100, 1_000, 10_000, 100_000), grows=True),
    Curve("width", "Cost of a step against the width of its fan-out", "parallel steps in one run", "µs/step",
          (10, 100, 1_000, 10_000, 100_000), grows=True),
    Curve("payload", "Cost of a step against the size of its value", "bytes handed from step to step", "µs/step",
          (100, 1_000, 10_000, 100_000, 1_000_000)),
    Curve("open_runs", "Start to result of a 1-step run against the runs that wait meanwhile", "open runs", "µs/run",
          (1, 10, 100, 1_000, 10_000, 100_000)),
)  # fmt: skip


def draw(
    harness: Harness, subjects: list[Subject], most: int, say: Callable[[str], None]
) -> dict[str, dict[str, list[Any]]]:
    """By curve and subject: points (x, microseconds). A point that fails is told, and ends its line."""
    drawn: dict[str, dict[str, list[Any]]] = {}
    for curve in CURVES:
        largest = most * 10 if curve.name == "payload" else most
        for subject in subjects:
            line: list[Any] = []
            for x in curve.points:
                if x > largest:
                    break
                expected = line[-1][1] * x / 1e6 if line and curve.grows else 0
                if expected > LONGEST:
                    say(f"{curve.name} {subject.name} {x:,}: left out, it would take {expected:.0f} s")
                    line.append([x, None, f"left out: about {expected:.0f} s"])
                    break
                try:
                    point = harness.call(subject, "bench.points", curve.name, str(x))
                except Failure as failure:
                    say(f"{curve.name} {subject.name} {x:,}: FAILED: {failure}")
                    line.append([x, None, str(failure)])
                    break
                say(f"{curve.name} {subject.name} {x:,}: {point['us']:,.0f} {curve.unit}")
                line.append([x, round(point["us"], 2)])
            drawn.setdefault(curve.name, {})[subject.name] = line
    return drawn
