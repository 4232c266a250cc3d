"""The engine's workloads, one JSON line each: `python bench/workloads.py [--provider step|inline] [W1 W2 W3 W4 W7]`.

W1  200 runs of 10 sequential steps            W2  one run of 1,000 parallel steps
W3  start to result of a one-step run          W4  one run of 2,000 sequential steps
W7  10,000 runs parked in a durable wait, then all woken

Every run is on a fresh SQLite file, with every acknowledged transition synced. Not part of the test suite:
times mean something only beside other times of the same minute on the same machine.
"""

import argparse
import asyncio
import gc
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import perdure


@perdure.provider("step")
def step(input: Any) -> Any:
    """What users write: a plain function, run off the event loop."""
    return {"i": 1, "n": ""}


@perdure.provider("inline", inline=True)
def inline(input: Any) -> Any:
    """A function that says of itself that it may be called on the event loop."""
    return {"i": 1, "n": ""}


def drill(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"drill": 1, "name": "bench", "steps": list(steps)}


async def w1(engine: perdure.Engine, call: dict[str, Any]) -> dict[str, float]:
    document = drill({"repeat": 10, "do": [call]})
    began = time.perf_counter()
    handles = await asyncio.gather(*[engine.start(document) for _ in range(200)])
    await asyncio.gather(*[handle.result() for handle in handles])
    return {"steps_per_s": 2000 / (time.perf_counter() - began)}


async def w2(engine: perdure.Engine, call: dict[str, Any]) -> dict[str, float]:
    began = time.perf_counter()
    handle = await engine.start(drill({"each": 1000, "do": [call]}))
    await handle.result()
    return {"steps_per_s": 1000 / (time.perf_counter() - began)}


async def w3(engine: perdure.Engine, call: dict[str, Any]) -> dict[str, float]:
    document = drill(call)
    times = []
    for _ in range(210):
        began = time.perf_counter()
        await (await engine.start(document)).result()
        times.append((time.perf_counter() - began) * 1e3)
    times = sorted(times[10:])
    return {"p50_ms": statistics.median(times), "p99_ms": times[197]}


async def w4(engine: perdure.Engine, call: dict[str, Any]) -> dict[str, float]:
    stamps: list[float] = []
    forget = engine.runtime.watch(lambda run, told: stamps.append(time.perf_counter()))
    began = time.perf_counter()
    await (await engine.start(drill({"repeat": 2000, "do": [call]}))).result()
    whole = time.perf_counter() - began
    forget()
    tenth = len(stamps) // 10
    first, last = stamps[tenth] - stamps[0], stamps[-1] - stamps[-1 - tenth]
    return {"steps_per_s": 2000 / whole, "last_tenth_to_first": first / last}


async def w7(engine: perdure.Engine, call: dict[str, Any]) -> dict[str, float]:
    await asyncio.gather(*[engine.start(drill({"signal": "never"})) for _ in range(1000)])  # warm: caches are full
    before = _resident_kb()
    began = time.perf_counter()
    wait = drill({"sleep": "20s"}, {"return": "awake"})
    for _ in range(10):
        handles = await asyncio.gather(*[engine.start(wait) for _ in range(1000)])
    parked = time.perf_counter() - began
    grown = _resident_kb() - before
    await handles[-1].result()
    return {"starts_per_s": 10_000 / parked, "rss_kb_each": grown / 10_000}


def _resident_kb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


WORKLOADS: dict[str, Callable[[perdure.Engine, dict[str, Any]], Awaitable[dict[str, float]]]] = {
    "W1": w1,
    "W2": w2,
    "W3": w3,
    "W4": w4,
    "W7": w7,
}


async def measure(name: str, provider: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with perdure.Engine(f"sqlite:///{Path(folder) / 'bench.db'}") as engine:
            found = await WORKLOADS[name](engine, {"call": provider, "input": {"i": 1}})
    rounded = {key: round(value, 3) for key, value in found.items()}
    print(json.dumps({"engine": "perdure", "workload": name, "provider": provider, **rounded}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), metavar="W")
    parser.add_argument("--provider", choices=("step", "inline"), default="step")
    arguments = parser.parse_args()
    for name in arguments.workloads:
        asyncio.run(measure(name.upper(), arguments.provider))


if __name__ == "__main__":
    main()
