"""Inputs and time: invariants 6 to 10."""

from pathlib import Path
from typing import Any

import pytest

from perdure.engine.client import Client
from perdure.kernel import inputs as i
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Succeeded
from perdure.stores.commit_types import Message
from perdure.stores.pool_tasks import LeaseRequest
from perdure.testing import World
from perdure.wiring import languages
from tests.engine.documents import DRAW, SLEEPER, drill

pytestmark = pytest.mark.every_store

WAITS = drill({"signal": "go", "save": "a"}, {"signal": "go", "save": "b"}, {"return": ["$a", "$b"]})


async def test_the_same_key_counts_once(tmp_path: Path) -> None:
    """Invariant 6: same content, same answer."""
    async with World(tmp_path) as world:
        run = await world.start(WAITS)
        await run.signal("go", 1, key="k")
        await run.signal("go", 1, key="k")
        await run.signal("go", 2, key="other")

        assert await run.result() == [1, 2]


async def test_the_same_key_for_something_else_is_a_conflict(tmp_path: Path) -> None:
    """Invariant 6: kept as long as the run, across crashes."""
    async with World(tmp_path) as world:
        run = await world.start(WAITS)
        await run.signal("go", 1, key="k")
        await world.crash()
        await world.boot()

        with pytest.raises(Conflict, match="'k' was used before"):
            await run.signal("go", 2, key="k")


async def test_a_conflict_is_answered_also_while_nobody_runs_the_run(tmp_path: Path) -> None:
    """Invariant 6: what waits in the inbox counts too."""
    async with World(tmp_path) as world:
        run = await world.start(WAITS)
        await world.crash()
        async with Client(world.open_store(), languages(), world.clock, None) as observer:
            await observer.signal(run.id, "go", 1, key="k")
            await observer.signal(run.id, "go", 1, key="k")
            with pytest.raises(Conflict, match="'k' was used before"):
                await observer.signal(run.id, "go", 2, key="k")
        await world.boot()
        await run.signal("go", 2)

        assert await run.result() == [1, 2]


async def test_the_same_token_starts_a_run_only_once(tmp_path: Path) -> None:
    """Invariant 6."""
    async with World(tmp_path) as world:
        first = await world.start(WAITS, {"n": 1}, token="order-7")
        again = await world.start(WAITS, {"n": 1}, token="order-7")
        await world.crash()
        await world.boot()
        later = await world.start(WAITS, {"n": 1}, token="order-7")

        assert first.id == again.id == later.id
        with pytest.raises(Conflict):
            await world.start(WAITS, {"n": 2}, token="order-7")


async def test_a_signal_to_a_run_that_has_ended_is_refused(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(drill({"call": "echo", "input": 1}))

        with pytest.raises(Conflict, match="already succeeded"):
            await run.signal("go")


async def test_an_inbox_row_is_deleted_by_the_commit_that_decides_it(tmp_path: Path) -> None:
    """Invariant 7."""
    async with World(tmp_path) as world:
        run = await world.start(WAITS)
        assert world.engine is not None
        store = world.engine.store
        await store.send(Message(run.id, world.clock.now(), i.encode(i.Signal("go", b"1"))))
        await store.send(Message(run.id, world.clock.now(), i.encode(i.Signal("go", b"2"))))
        assert len(await store.inbox(world.engine.runtime.partitions, 10)) == 2

        await world.engine.runtime.read_inbox()
        await world.settle()

        assert await store.inbox(world.engine.runtime.partitions, 10) == []
        assert await run.result() == [1, 2]


async def test_a_result_acknowledged_before_a_deadline_wins_however_late_it_is_read(tmp_path: Path) -> None:
    """Invariant 8: inputs are taken in order of arrival; a timer arrives at its due time."""
    document = drill({"call": "slow", "pool": "gpu", "timeout": "10s"}, {"return": "in time"})
    async with World(tmp_path) as world:
        run = await world.start(document)
        assert world.engine is not None
        (leased,) = await world.engine.store.lease(LeaseRequest(["gpu"], "w1", 1, world.clock.now() + 60 * SECOND))
        world.clock.move_to(world.clock.now() + 9 * SECOND)
        await world.crash()
        result = i.TaskResult(leased.task, 1, leased.delivery, Succeeded(b'"done"'))
        await _report_while_nobody_runs(world, leased, result)
        world.clock.move_to(world.clock.now() + 3600 * SECOND)
        await world.boot()

        assert await run.result() == "in time"


async def test_a_result_acknowledged_elsewhere_wins_before_the_engine_has_heard_of_it(tmp_path: Path) -> None:
    """Invariant 8: another process has it on disk a moment before the deadline, and the engine looks only then."""
    document = drill({"call": "slow", "pool": "gpu", "timeout": "10s"}, {"return": "in time"})
    async with World(tmp_path) as world:
        run = await world.start(document)
        assert world.engine is not None
        (leased,) = await world.engine.store.lease(LeaseRequest(["gpu"], "w1", 1, world.clock.now() + 60 * SECOND))
        world.clock.move_to(world.clock.now() + 9 * SECOND)
        result = Message(leased.run, world.clock.now(), i.encode(i.TaskResult(leased.task, 1, 1, Succeeded(b'"done"'))))
        world.engine.store.changed = lambda: False  # type: ignore[method-assign]  # it does not look by itself
        assert await world.engine.store.report(leased.lease, result)
        world.clock.move_to(world.clock.now() + 60 * SECOND)
        await world.settle()

        assert await run.result() == "in time"


async def test_what_came_after_a_deadline_waits_for_what_came_before_it(tmp_path: Path) -> None:
    """Invariant 8: a result that came late does not overtake the deadline, nor the letter that lies in the store."""
    document = drill({"each": 2, "do": [{"call": "slow", "timeout": "10s"}], "save": "x"}, {"return": "$x"})
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(document)
        world.clock._now += 60 * SECOND  # the alarm has not rung yet
        world.hands.release(Succeeded(b"1"))
        await world.settle()

        status = (await run.show())["status"]
        assert status == "failed", "both were in time only for a clock that stands still"


async def _report_while_nobody_runs(world: World, leased: Any, result: i.TaskResult) -> None:
    store = world.open_store()
    assert await store.report(leased.lease, Message(leased.run, world.clock.now(), i.encode(result)))
    await store.close()


async def test_an_outage_never_expires_a_bound_before_its_work_began(tmp_path: Path) -> None:
    """Invariant 8: new waits and bounds start at the decision, not at the due time that woke the run."""
    document = drill({"sleep": "10s"}, {"call": "slow", "timeout": "5s"}, {"return": "worked"})
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(document)
        await world.crash()
        world.clock.move_to(world.clock.now() + 1000 * SECOND)
        await world.boot()
        await world.advance(4)
        world.hands.release(Succeeded(b"1"))
        await world.settle()

        assert await run.result() == "worked"


async def test_readings_of_one_run_never_go_back(tmp_path: Path) -> None:
    """Invariant 8: whichever machine decides, however its clock stands."""
    async with World(tmp_path) as world:
        run = await world.start(WAITS)
        await run.signal("go", 1)
        await world.crash()
        world.clock._now -= 3600 * SECOND
        await world.boot()
        await run.signal("go", 2)

        instants = [event["at"] for event in await run.handle.history()]
        assert sorted(instants) == instants


async def test_a_timer_due_while_we_were_down_fires_exactly_once(tmp_path: Path) -> None:
    """Invariants 8 and 9: a late restart wakes the run once."""
    async with World(tmp_path) as world:
        run = await world.start(SLEEPER)
        await world.crash()
        world.clock.move_to(world.clock.now() + 3 * 3600 * SECOND)
        await world.boot()

        assert await run.result() == "awake"
        assert (await run.events()).count("TimerFired") == 1


async def test_start_up_loads_only_runs_with_open_work(tmp_path: Path) -> None:
    """Invariant 9: parked runs stay on disk."""
    async with World(tmp_path, held={"slow"}) as world:
        for _ in range(50):
            await world.start(SLEEPER)
        busy = await world.start(drill({"call": "slow"}))
        await world.crash()
        loaded: list[str] = []

        def wrap(store: Any) -> Any:
            load = store.load

            async def watched(runs: Any) -> Any:
                loaded.extend(runs)
                return await load(runs)

            store.load = watched
            return store

        world._wrap = wrap
        await world.boot()

        assert [busy.id] == loaded


async def test_waking_for_nothing_writes_nothing(tmp_path: Path) -> None:
    """Invariant 9: a poll is not an input."""
    async with World(tmp_path) as world:
        run = await world.start(SLEEPER)
        before = await run.events()
        assert world.engine is not None
        await world.engine.tell(run.id, i.Wake())
        await world.settle()

        assert before == await run.events()


async def test_draws_come_from_the_recorded_seed(tmp_path: Path) -> None:
    """Invariant 10: the same seed, path and counter give the same draw, before and after a crash."""
    drawn = []
    for crash in (False, True):
        folder = tmp_path / str(crash)
        folder.mkdir()
        async with World(folder) as world:
            run = await world.start(DRAW, seed=42)
            if crash:
                await world.crash()
                await world.boot()
            await world.advance(2)
            drawn.append(await run.result())
            other = await world.start(DRAW, seed=43)
            await world.advance(2)
            assert drawn[-1] != await other.result()

    assert drawn[0] == drawn[1]
    assert drawn[0]["x"] != drawn[0]["y"]
