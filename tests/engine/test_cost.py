"""What waiting, starting up and resting cost, counted: invariant 25. No seconds here; steps are in test_work_bounds."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.clock import SystemClock
from perdure.engine.settings import Settings
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import encode_turns
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.kernel.turn import Turn
from perdure.stores.commit_types import Committed, NewRun, RunSummary, Transition
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import ScriptedHands, World
from perdure.testing.drill import Drill
from perdure.wiring import Engine
from tests.engine.documents import drill
from tests.engine.meter import Meter, metered


@pytest.mark.sampled(4)
async def test_a_run_that_only_waits_is_not_in_memory(tmp_path: Path) -> None:
    """W7: 10,000 parked runs add under 0.5 KB each."""
    document = drill({"signal": "go"})
    async with metered(tmp_path) as (engine, meter, _):
        for _ in range(3):
            await asyncio.gather(*[engine.start(document) for _ in range(100)])
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            await asyncio.gather(*[engine.start(document) for _ in range(500)])
        gc.collect()
        added = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        size = sum(path.stat().st_size for path in tmp_path.iterdir())
        rows = meter.rows

    assert added / 10_000 < 500
    assert rows == 10_300, "one log row each"
    assert size / 10_300 < 2_500, "with the write-ahead log not yet folded in"
    assert (tmp_path / "runs.db").stat().st_size / 10_300 < 1_000


@pytest.mark.sampled(4)
@pytest.mark.parametrize("parked", [100_000])
async def test_start_up_with_100_000_parked_runs_loads_none_of_them(tmp_path: Path, parked: int) -> None:
    """Invariant 9."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"sleep": "1h"}, {"return": "awake"}))
        assert world.engine is not None
        store = world.engine.store
        await _park(store, world.engine.runtime.home, await world.engine.find(run.id), parked)
        await world.crash()
        loaded = 0
        original = SqliteStore.load

        async def counting(self: SqliteStore, runs: Any) -> Any:
            nonlocal loaded
            loaded += len(runs)
            return await original(self, runs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqliteStore, "load", counting)
            await world.boot()

            assert loaded == 0
            assert world.engine.runtime.is_quiet


async def _park(store: Any, partition: int, like: Any, count: int) -> None:
    """Many runs as the engine would have written them."""
    started = e.RunStarted("drill", like.program, "parked", b"null", b"{}", 1)
    row = encode_turns([(1, [started])])
    new = NewRun("drill", "parked", like.program, None, {}, b"", 1)
    summary = RunSummary(Status.WAITING, False, 4_000_000_000_000_000)
    for begin in range(0, count, 10_000):
        batch = [
            Transition(RunId(f"parked-{number}"), partition, 1, row=row, create=new, summary=summary)
            for number in range(begin, min(begin + 10_000, count))
        ]
        assert isinstance(await store.commit(batch), Committed)


def test_what_waits_for_a_commit_gives_the_garbage_collector_next_to_nothing_to_do() -> None:
    """Hundreds of turns and transitions wait together, and the collector looks at all they hold again and again."""
    language = Drill()
    execution = Execution(RunId("r"), language, language.load(jsontext.encode(drill({"signal": "go"}))))

    assert _counted(lambda: Transition(RunId("r"), 1, 1)) < 0.5
    assert _counted(lambda: Turn(execution, i.Wake(), 0, 0)) < 2.5, "itself and its events"


def _counted(make: Callable[[], object]) -> float:
    """Objects that the collector counts, for each one made."""
    gc.collect()
    gc.disable()
    try:
        before = gc.get_count()[0]
        made = [make() for _ in range(1_000)]
        return (gc.get_count()[0] - before) / len(made)
    finally:
        gc.enable()


async def test_an_idle_engine_writes_nothing_and_reads_next_to_nothing(tmp_path: Path) -> None:
    """Idle CPU near zero: a look costs one pragma, and nothing is written."""
    clock = SystemClock()
    meter = Meter(SqliteStore(tmp_path / "runs.db", clock.now))
    inboxes = 0
    inbox = meter.inbox

    async def counted(*arguments: Any) -> Any:
        nonlocal inboxes
        inboxes += 1
        return await inbox(*arguments)

    meter.inbox = counted  # type: ignore[attr-defined]
    engine = Engine(meter, clock=clock, hands=ScriptedHands(), settings=Settings(poll=0.001))
    await engine.runtime.open()
    await engine.start(drill({"signal": "go"}))
    await asyncio.sleep(0.05)
    before, commits = inboxes, meter.commits
    await asyncio.sleep(0.05)
    after = inboxes
    await engine.runtime.close()

    assert before == after
    assert commits == meter.commits
