"""The chaos test for as long as one likes, with figures:

    python -m tests.journeys.soak --minutes 20

Runs three engines on a PostgreSQL server of its own, starts and steers runs of the three languages at a steady pace,
injects fault after fault, and watches: how long take-overs take, how much memory engines and how much disk tables need,
how long runs take from start to end. In the end everything is checked, and the figures go to
`docs/reliability/soak.json`. `python -m tests.journeys.soak --write` writes them into `docs/reliability.md`.
"""

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.journeys.chaos.cluster import Cluster
from tests.journeys.chaos.database import ChaosDatabase
from tests.journeys.chaos.scenario import ChaosSettings, Report, with_faults, without_faults

REPOSITORY = Path(__file__).parents[2]
FIGURES = REPOSITORY / "docs" / "reliability" / "soak.json"
PAGE = REPOSITORY / "docs" / "reliability.md"
BEGIN, END = "<!-- figures of the soak begin -->", "<!-- figures of the soak end -->"

LOOK_EVERY = 2.0  # seconds
MEGABYTE = 1024 * 1024

_SIZES = """
SELECT relname, pg_total_relation_size(oid) FROM pg_class
WHERE relnamespace = 'perdure'::regnamespace AND relkind = 'r' ORDER BY 2 DESC
"""
_LATENCIES = """
SELECT language, count(*), percentile_cont(ARRAY[0.5, 0.99, 1.0]) WITHIN GROUP (ORDER BY (ended_at - created_at) / 1e6)
FROM perdure.runs WHERE ended_at IS NOT NULL GROUP BY language ORDER BY language
"""
_SLOWEST = """
SELECT id, (ended_at - created_at) / 1e6, to_timestamp(created_at / 1e6)::time FROM perdure.runs
WHERE ended_at IS NOT NULL ORDER BY ended_at - created_at DESC LIMIT 30
"""


@dataclass
class Watch:
    """Looks at engines and tables while the play goes on."""

    cluster: Cluster
    database: ChaosDatabase
    memory: dict[int, list[tuple[float, int]]] = field(default_factory=dict)  # process → age, resident bytes
    tables: list[tuple[Any, ...]] = field(default_factory=list)
    latencies: list[tuple[Any, ...]] = field(default_factory=list)
    slowest: list[tuple[Any, ...]] = field(default_factory=list)

    def __enter__(self) -> "Watch":
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exit: object) -> None:
        self._is_over.set()
        self._thread.join()
        ask = self.database.ask
        self.tables = [(name, size, *ask(f"SELECT count(*) FROM perdure.{name}")[0]) for name, size in ask(_SIZES)]
        self.latencies = ask(_LATENCIES)
        self.slowest = ask(_SLOWEST)

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_EVERY):
            for life in self.cluster.engines:
                if life is not None and (size := _resident(life.pid)):
                    self.memory.setdefault(life.pid, []).append((time.time() - life.born_at, size))

    def growth(self) -> dict[str, float]:
        """Of the engine that lived longest: how much it held early and late."""
        longest = max(self.memory.values(), key=lambda looks: looks[-1][0], default=[])
        warm = [size for age, size in longest if age > 5] or [size for _, size in longest]
        third = max(1, len(warm) // 3)
        return {
            "lived_seconds": round(longest[-1][0], 1),
            "early_megabytes": round(median(warm[:third]) / MEGABYTE, 1),
            "late_megabytes": round(median(warm[-third:]) / MEGABYTE, 1),
            "most_megabytes": round(max(size for looks in self.memory.values() for _, size in looks) / MEGABYTE, 1),
        }


def _resident(process: int) -> int:
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # it was killed meanwhile
    return 0


def figures(report: Report, watch: Watch) -> dict[str, Any]:
    seen = report.verdict
    return {
        "when": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {_cores()} cores, Python {platform.python_version()}",
        "postgresql": report.told.version,
        "engines": report.told.engines,
        "lease_seconds": report.told.lease,
        "seed": report.told.seed,
        "minutes": round(report.troubled / 60, 1),
        "seconds_until_all_ended": round(report.seconds - report.troubled, 1),
        "orders": report.orders,
        "runs": seen.runs,
        "runs_per_second": round(seen.runs / report.seconds, 1),
        "tasks": seen.tasks,
        "events": seen.events,
        "faults": dict(sorted(report.injected.items())),
        "takeovers": _spread(report.takeovers),
        "redelivered": seen.redelivered,
        "in_doubt": seen.in_doubt,
        "words": seen.words,
        "words_declined": seen.declined,
        "losses_charged": seen.charged,
        "charges": report.charges,
        "charges_repeated": report.repeated,
        "wishes_asked_again": report.asked_again,
        "wrong": report.wrong,
        "memory": watch.growth(),
        "tables": [
            {"table": name, "megabytes": round(size / MEGABYTE, 1), "rows": rows}
            for name, size, rows in watch.tables
            if size > MEGABYTE / 2
        ],
        "run_seconds": {
            language: {"runs": count, "median": round(half, 2), "p99": round(most, 2), "max": round(longest, 2)}
            for language, count, (half, most, longest) in watch.latencies
        },
    }


def _spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {"count": 0}
    return {"count": len(values), "median": round(median(values), 2), "max": round(max(values), 2)}


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0))


def page(figures: dict[str, Any]) -> str:
    """The figures as they stand in the page."""
    faults = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in figures["faults"].items())
    memory = figures["memory"]
    rows = [
        (
            "when, machine",
            f"{figures['when']}; {figures['machine']}; PostgreSQL {figures['postgresql']} on the same machine",
        ),
        (
            "length, seed",
            f"{figures['minutes']} minutes of faults, seed {figures['seed']}, lease {figures['lease_seconds']:g} s",
        ),
        (
            "load",
            f"{figures['orders']} orders: {figures['runs']} runs, {figures['tasks']} tasks, {figures['events']} events",
        ),
        ("pace", f"{figures['runs_per_second']} runs per second, as configured, during the faults too"),
        ("faults", f"{sum(figures['faults'].values())}: {faults}"),
        (
            "take-over after kill -9",
            f"{figures['takeovers']['count']} measured, median {figures['takeovers'].get('median', 0)} s,"
            f" slowest {figures['takeovers'].get('max', 0)} s",
        ),
        (
            "repeated",
            f"{figures['redelivered']} tasks delivered again; {figures['in_doubt']} effects in doubt;"
            f" {figures['charges_repeated']} of {figures['charges']} charges repeated a key, each was performed once",
        ),
        (
            "control messages",
            f"{figures['words']} acknowledged: each took effect, or is one of {figures['words_declined']} that were"
            " declined, with a reason in the log",
        ),
        (
            "memory of an engine",
            f"{memory['early_megabytes']} MB early, {memory['late_megabytes']} MB late in a life of"
            f" {memory['lived_seconds']:.0f} s; at most {memory['most_megabytes']} MB",
        ),
        ("after the last fault", f"everything had ended {figures['seconds_until_all_ended']} s later"),
        ("problems found", f"**{len(figures['wrong'])}**"),
    ]
    lines = ["| | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in rows), ""]
    lines += ["| language | runs | median | 99 % | longest |", "| --- | ---: | ---: | ---: | ---: |"]
    for language, times in figures["run_seconds"].items():
        lines.append(f"| {language} | {times['runs']} | {times['median']} s | {times['p99']} s | {times['max']} s |")
    lines += ["", "| table, with its indexes | MB | rows |", "| --- | ---: | ---: |"]
    lines += [f"| {table['table']} | {table['megabytes']} | {table['rows']} |" for table in figures["tables"]]
    return "\n".join(lines)


def write(figures: dict[str, Any]) -> None:
    text = PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{page(figures)}\n\n{END}{after}")


async def play(settings: ChaosSettings) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="perdure-soak-") as name:
        folder = Path(name)
        calm = await without_faults(folder)
        watches: list[Watch] = []

        def watching(cluster: Cluster, database: ChaosDatabase | None) -> Watch:
            assert database is not None
            watches.append(Watch(cluster, database))
            return watches[-1]

        report = await with_faults(folder, calm, settings, watching=watching)
        print(report.explain(), file=sys.stderr)
        for when, fault, seconds in report.faults:
            print(f"  {time.strftime('%H:%M:%S', time.gmtime(when))} {fault}, {seconds:.1f} s", file=sys.stderr)
        for run, seconds, born in watches[0].slowest:
            print(f"  {seconds:.1f} s: {run}, born {born}", file=sys.stderr)
        return figures(report, watches[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.journeys.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--pace", type=float, default=6.0, help="orders per second (default: 6)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", type=float, default=2.0, help="seconds (default: 2)")
    parser.add_argument("--postgres", type=int, default=18, help="version (default: 18)")
    parser.add_argument("--write", action="store_true", help="only write the saved figures into docs/reliability.md")
    asked = parser.parse_args()
    if not asked.write:
        seconds = asked.minutes * 60
        settings = ChaosSettings(
            runs=int(seconds * asked.pace), seconds=seconds, seed=asked.seed, version=asked.postgres, lease=asked.lease
        )
        figures = asyncio.run(play(settings))
        FIGURES.parent.mkdir(exist_ok=True)
        FIGURES.write_text(json.dumps(figures, indent=2) + "\n")
    figures = json.loads(FIGURES.read_text())
    write(figures)
    print(page(figures))
    return 1 if figures["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
