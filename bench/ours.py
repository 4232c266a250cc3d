"""Perdure, as a measured process, in any of its languages.

Every function works on a fresh SQLite file, or on a fresh PostgreSQL server, with every acknowledged transition synced.
The variant says what kind of function the steps are: `thread` (what users write: a plain function, run off the event
loop), `async` or `inline`.
"""

import asyncio
import gc
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import perdure
from bench.languages.language import Language
from bench.marks import Marks
from bench.processes import resident_mb, size_of
from bench.scene import Scene, evenness, latencies, per_second, reached
from bench.sizes import Sizes
from perdure.engine.clock import SystemClock
from perdure.kernel.events import RunEnded
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.outcomes import Status

ENGINES = 2
"""W8: as many as the smallest machine has cores."""

WAIT = 300
"""Seconds. The longest that all languages can wait in the same way."""


@perdure.provider("step")
def step(input: Any = None, value: Any = None) -> Any:
    """Playbooks hand over arguments, the other languages an input."""
    return value if input is None else input


@perdure.provider("step-async")
async def step_async(input: Any = None, value: Any = None) -> Any:
    return value if input is None else input


@perdure.provider("step-inline", inline=True)
def step_inline(input: Any = None, value: Any = None) -> Any:
    return value if input is None else input


@perdure.engram("step")
def step_of_a_story(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"value": inputs["value"]}


@perdure.engram("step-async")
async def step_of_a_story_async(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"value": inputs["value"]}


PROVIDERS = {"": "step", "thread": "step", "async": "step-async", "inline": "step-inline"}


def language_of(scene: Scene) -> Language:
    language: Language = import_module(f"bench.languages.{scene.subject.partition('@')[0]}").LANGUAGE
    return language


def address_of(scene: Scene) -> str:
    if not scene.subject.endswith("@postgres"):
        return f"sqlite:///{scene.folder / 'runs.db'}"
    from bench import postgres

    return postgres.start(scene)


def engine_for(scene: Scene, **options: Any) -> perdure.Engine:
    return perdure.Engine(address_of(scene), **options)


async def warm(engine: perdure.Engine, language: Language, provider: str) -> None:
    """Imports and first uses are W6's business; the peers are warmed in the same way."""
    await (await engine.start(language.sequence(1, provider), language.given({"i": 1}))).result()


def w1(scene: Scene) -> dict[str, float]:
    """Many workflows at once."""
    return asyncio.run(_w1(scene))


async def _w1(scene: Scene) -> dict[str, float]:
    language, sizes = language_of(scene), scene.sizes
    document = language.sequence(sizes.steps, PROVIDERS[scene.variant])
    payload = language.given({"i": 1, "n": ""})
    async with engine_for(scene) as engine:
        await warm(engine, language, PROVIDERS[scene.variant])
        began = time.perf_counter()
        handles = await asyncio.gather(*[engine.start(document, payload) for _ in range(sizes.workflows)])
        results = await asyncio.gather(*[handle.result() for handle in handles])
        figures = per_second(sizes.workflows * sizes.steps, began)
    assert all(language.value_of(result) == {"i": 1, "n": ""} for result in results)
    return figures


def w8(scene: Scene) -> dict[str, float]:
    """W1 shared out to two engines, each a process of its own, on one server."""
    address = address_of(scene)
    command = [sys.executable, "-c", "import sys; from bench.ours import half; half(*sys.argv[1:])"]
    arguments = [address, scene.subject, scene.sizes.dump(), scene.variant]
    halves = [
        subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(ENGINES)
    ]
    for half in halves:
        assert half.stdout is not None and half.stdout.readline() == "ready\n"
    for half in halves:
        assert half.stdin is not None
        half.stdin.write("go\n")
        half.stdin.flush()
    began = time.perf_counter()
    for half in halves:
        assert half.stdout is not None and half.stdout.readline() == "done\n"
    return per_second(scene.sizes.workflows * scene.sizes.steps, began)


def half(address: str, subject: str, sizes: str, variant: str) -> None:
    """One of the engines of W8."""
    asyncio.run(_half(address, Scene(subject, Path(), Sizes.load(sizes), variant)))


async def _half(address: str, scene: Scene) -> None:
    language, provider = language_of(scene), PROVIDERS[scene.variant]
    document, payload = language.sequence(scene.sizes.steps, provider), language.given({"i": 1, "n": ""})
    async with perdure.Engine(address) as engine:
        await warm(engine, language, provider)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        starting = [engine.start(document, payload) for _ in range(scene.sizes.workflows // ENGINES)]
        handles = await asyncio.gather(*starting)
        await asyncio.gather(*[handle.result() for handle in handles])
        print("done", flush=True)


def w2(scene: Scene) -> dict[str, float]:
    """One wide workflow."""
    return asyncio.run(_w2(scene))


async def _w2(scene: Scene) -> dict[str, float]:
    language, provider = language_of(scene), PROVIDERS[scene.variant]
    document = language.fan(scene.sizes.width, provider)
    async with engine_for(scene) as engine:
        await warm(engine, language, provider)
        began = time.perf_counter()
        await (await engine.start(document)).result()
        return per_second(scene.sizes.width, began)


def w3(scene: Scene) -> dict[str, float]:
    """One after the other."""
    return asyncio.run(_w3(scene))


async def _w3(scene: Scene) -> dict[str, float]:
    language = language_of(scene)
    document, payload = language.sequence(1, PROVIDERS[scene.variant]), language.given({"i": 1, "n": ""})
    times = []
    async with engine_for(scene) as engine:
        for _ in range(scene.sizes.starts * 11 // 10):
            began = time.perf_counter()
            await (await engine.start(document, payload)).result()
            times.append(time.perf_counter() - began)
    return latencies(times)


def w4(scene: Scene) -> dict[str, float]:
    """One long workflow."""
    return asyncio.run(_w4(scene))


async def _w4(scene: Scene) -> dict[str, float]:
    language, provider = language_of(scene), PROVIDERS[scene.variant]
    document = language.rounds(scene.sizes.rounds, provider)
    stamps: list[float] = []
    async with engine_for(scene) as engine:
        await warm(engine, language, provider)
        engine.runtime.watch(lambda run, turns: stamps.append(time.perf_counter()))
        began = time.perf_counter()
        await (await engine.start(document)).result()
        figures = per_second(scene.sizes.rounds, began)
    return {**evenness(stamps), **figures}


def w5_begin(scene: Scene) -> None:
    """Is killed in the middle."""
    asyncio.run(_w5_begin(scene))


async def _w5_begin(scene: Scene) -> None:
    language, sizes = language_of(scene), scene.sizes
    _register_marking(scene)
    document = language.sequence(sizes.steps, "mark")
    async with engine_for(scene) as engine:
        names = [f"w{number}" for number in range(sizes.workflows)]
        starting = [engine.start(document, language.given({"of": name, "marks": []})) for name in names]
        handles = await asyncio.gather(*starting)
        scene.all_submitted({name: handle.id for name, handle in zip(names, handles, strict=True)})
        await asyncio.gather(*[handle.result() for handle in handles])


def w5_recover(scene: Scene) -> dict[str, Any]:
    """The next process on the same file."""
    return asyncio.run(_w5_recover(scene))


async def _w5_recover(scene: Scene) -> dict[str, Any]:
    language = language_of(scene)
    _register_marking(scene)
    async with engine_for(scene) as engine:
        await engine.resume()
        runs: dict[str, str] = scene.submitted()
        results = await asyncio.gather(*[engine.handle(run).result() for run in runs.values()])
        reached("recovered")
    ended = {name: language.value_of(result)["marks"] for name, result in zip(runs, results, strict=True)}
    return {"ended": ended}


def _register_marking(scene: Scene) -> None:
    marks = Marks(scene.marks, scene.life)

    @perdure.provider("mark")
    def mark(input: Any = None, value: Any = None) -> Any:
        had = value if input is None else input
        made = marks.leave(had["of"], len(had["marks"]))
        return {"of": had["of"], "marks": [*had["marks"], made]}

    @perdure.engram("mark")
    def mark_of_a_story(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"value": mark(inputs["value"])}


def w6(scene: Scene) -> dict[str, float]:
    """From nothing to the first result, and what stays in memory then."""
    return asyncio.run(_w6(scene))


async def _w6(scene: Scene) -> dict[str, float]:
    language = language_of(scene)
    async with engine_for(scene) as engine:
        document = language.sequence(1, PROVIDERS[scene.variant])
        await (await engine.start(document, language.given({"i": 1}))).result()
        reached("first result")
        await asyncio.sleep(1)
        return {"rss_mb": resident_mb()}


class LaterClock(SystemClock):
    """The system's clock, as if we had been away."""

    def __init__(self, away: int) -> None:
        super().__init__()
        self._away: Instant = away * SECOND

    def now(self) -> Instant:
        return super().now() + self._away


def w7(scene: Scene) -> dict[str, float]:
    """Parked in a durable wait; after a pause of all of them, everything is due in the same instant."""
    return asyncio.run(_w7(scene))


async def _w7(scene: Scene) -> dict[str, float]:
    language, parked = language_of(scene), scene.sizes.parked
    document, warming = language.wait(WAIT), 1_000
    batch = 1_000
    async with engine_for(scene) as engine:
        await asyncio.gather(*[engine.start(document) for _ in range(warming)])
        gc.collect()
        before = resident_mb()
        began = time.perf_counter()
        for _ in range(parked // batch):
            await asyncio.gather(*[engine.start(document) for _ in range(batch)])
        starts_per_s = parked / (time.perf_counter() - began)
        gc.collect()
        ram_kb = (resident_mb() - before) * 1024 / parked
    disk_kb = size_of(scene.folder) / 1024 / (parked + warming)
    wake_s = await _wake_all(scene, parked + warming)
    return {"starts_per_s": starts_per_s, "ram_kb": ram_kb, "disk_kb": disk_kb, "wake_s": wake_s, "parked": parked}


async def _wake_all(scene: Scene, count: int) -> float:
    """Seconds until every one of them has ended well, all being due in the instant in which we come back."""
    woken, left = asyncio.Event(), count

    def look(run: Any, turns: Any) -> None:
        nonlocal left
        left -= sum(
            isinstance(event, RunEnded) and event.status is Status.SUCCEEDED for _, events in turns for event in events
        )
        if left == 0:
            woken.set()

    async with engine_for(scene, clock=LaterClock(WAIT + 60)) as engine:
        engine.runtime.watch(look)
        began = time.perf_counter()
        await engine.resume()
        await woken.wait()
        return time.perf_counter() - began
