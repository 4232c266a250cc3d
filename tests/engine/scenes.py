"""How the tests bring a run to its end, whatever it waits for, and what must hold on the way."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

from perdure.engine.runs.run_views import fold_stored
from perdure.engine.settings import Settings
from perdure.engine.slot import Slot
from perdure.kernel.codec import encode_snapshot, fold
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.values import RunId
from perdure.stores.protocol import Store
from perdure.testing import RunInWorld, World

BIG = "x" * 200_000


def broken(arguments: Any, input: Any) -> Any:
    raise ValueError("always")


def make_world(folder: Path, **options: Any) -> World:
    def flaky(arguments: Any, input: Any) -> Any:
        attempt = world.hands.performed[-1].attempt
        if attempt < 3:
            raise OSError(f"no luck at attempt {attempt}")
        return "at last"

    functions = {
        "flaky": flaky,
        "broken": broken,
        "big": lambda arguments, input: BIG,
        "measure": lambda arguments, input: len(input),
    }
    settings = options.pop("settings", None) or Settings(poll=0.005)
    world = World(folder, functions=functions, held={"slow"}, settings=settings, **options)
    return world


async def finish(world: World, run: RunInWorld) -> Any:
    """Let time pass and say what is waited for, until the run has ended; its picture without what differs by design."""
    for _ in range(40):
        shown = await run.show()
        if shown["outcome"] is not None:
            return {"status": shown["status"], "outcome": shown["outcome"], "variables": shown["variables"]}
        for name in shown["open"]["signals"]:
            await run.signal(name, "now", key="the-word")
        await world.advance(1800 if shown["open"]["timers"] and not shown["open"]["tasks"] else 2)
    raise AssertionError(f"the run does not end: {shown}")


async def check_fold(world: World) -> None:
    """From now on, every commit of every run must be what a fold of its log gives (with and without snapshot)."""
    assert world.engine is not None
    runtime = world.engine.runtime

    def compare(run: RunId, expected: object) -> None:
        slot: Slot = runtime._slots[run]
        live = slot.execution
        assert live is not None
        dialect, program = live.dialect, live.program

        async def folds(store: Store) -> list[Execution]:
            (stored,) = await store.load([run])
            rows = await store.history(run)
            return [
                fold(Execution(run, dialect, program), rows),
                await fold_stored(store, stored, dialect, program),
            ]

        for folded in _now(world, folds):
            assert encode_snapshot(folded) == encode_snapshot(live), f"fold differs from live state of {run}"

    runtime.watch(compare)


def _now(world: World, read: Callable[[Store], Coroutine[Any, Any, list[Execution]]]) -> list[Execution]:
    """What is on disk at this very moment: nothing of the world moves before it is known."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(copy_context().run, asyncio.run, _read(world, read)).result()


async def _read(world: World, read: Callable[[Store], Coroutine[Any, Any, list[Execution]]]) -> list[Execution]:
    store = world.open_store()
    try:
        return await read(store)
    finally:
        await store.close()
