"""How the tests bring a run to its end, whatever it waits for, and what must hold on the way."""

from pathlib import Path
from typing import Any

from perdure.engine.settings import Settings
from perdure.engine.slot import Slot
from perdure.engine.views import fold_stored
from perdure.kernel.codec import encode_snapshot, fold
from perdure.kernel.execution import Execution
from perdure.kernel.values import RunId
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

    def compare(run: RunId, told: object) -> None:
        slot: Slot = runtime._slots[run]
        live = slot.execution
        assert live is not None
        stored = _now(runtime.store.load([run]))[0]
        rows = _now(runtime.store.history(run))
        for folded in (
            fold(Execution(run, live.dialect, live.program), rows),
            _now(fold_stored(runtime.store, stored, live.dialect, live.program)),
        ):
            assert encode_snapshot(folded) == encode_snapshot(live), f"fold differs from live state of {run}"

    runtime.watch(compare)


def _now(reading: Any) -> Any:
    """The answer of a read on SQLite, which never has to wait."""
    try:
        reading.send(None)
    except StopIteration as answer:
        return answer.value
    raise AssertionError("a read had to wait")
