"""One point of a curve, as a measured process of Perdure. The variant is the point's place on the axis."""

import asyncio
import statistics
import time
from typing import Any

from bench.ours import WAIT, engine_for, language_of, warm
from bench.scene import Scene

STEPS = 500
"""A point of few steps is measured over several runs, so that this many are seen."""


def history(scene: Scene) -> dict[str, float]:
    return asyncio.run(_alone(scene, language_of(scene).rounds))


def width(scene: Scene) -> dict[str, float]:
    return asyncio.run(_alone(scene, language_of(scene).fan))


async def _alone(scene: Scene, shape: Any) -> dict[str, float]:
    count = int(scene.variant)
    document, runs = shape(count, "step"), max(1, STEPS // count)
    async with engine_for(scene) as engine:
        await warm(engine, language_of(scene), "step")
        began = time.perf_counter()
        for _ in range(runs):
            await (await engine.start(document)).result()
        return {"us": (time.perf_counter() - began) / (runs * count) * 1e6}


def payload(scene: Scene) -> dict[str, float]:
    return asyncio.run(_payload(scene))


async def _payload(scene: Scene) -> dict[str, float]:
    language, size, steps = language_of(scene), int(scene.variant), 10
    document, payload = language.sequence(steps, "step"), language.given({"text": "x" * (size - len('{"text":""}'))})
    runs = 20 if size < 1_000_000 else 5
    async with engine_for(scene) as engine:
        await warm(engine, language, "step")
        began = time.perf_counter()
        for _ in range(runs):
            await (await engine.start(document, payload)).result()
        return {"us": (time.perf_counter() - began) / (runs * steps) * 1e6}


def open_runs(scene: Scene) -> dict[str, float]:
    return asyncio.run(_open_runs(scene))


async def _open_runs(scene: Scene) -> dict[str, float]:
    language, count = language_of(scene), int(scene.variant)
    waiting, document, payload = language.wait(WAIT), language.sequence(1, "step"), language.given({"i": 1})
    async with engine_for(scene) as engine:
        await warm(engine, language, "step")
        for begin in range(0, count, 1_000):
            await asyncio.gather(*[engine.start(waiting) for _ in range(min(1_000, count - begin))])
        times = []
        for _ in range(200):
            began = time.perf_counter()
            await (await engine.start(document, payload)).result()
            times.append(time.perf_counter() - began)
    return {"us": statistics.median(times) * 1e6}
