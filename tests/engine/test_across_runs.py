"""Across runs: invariants 17 to 20."""

from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.errors import Conflict, EventNotFound, RunNotFound
from perdure.kernel.outcomes import Succeeded
from perdure.stores.protocol import RunFilter
from perdure.testing import RunInWorld, World
from tests.engine.documents import drill
from tests.engine.scenes import make_world

pytestmark = pytest.mark.every_store


def printing(limit: int | None, priority: int = 0) -> dict[str, Any]:
    step: dict[str, Any] = {"permit": "printer", "priority": priority, "do": [{"call": "slow"}]}
    if limit is not None:
        step["limit"] = limit
    return drill(step)


async def test_a_limit_holds_over_many_runs(tmp_path: Path) -> None:
    """Invariant 17: a permit is released in the commit that ends its work."""
    async with World(tmp_path, held={"slow"}) as world:
        runs = [await world.start(printing(2)) for _ in range(5)]
        most = 0
        while world.hands.waiting:
            most = max(most, len(world.hands.waiting))
            world.hands.release(Succeeded(b"1"))
            await world.settle()

        assert most == 2
        assert {"succeeded"} == {await run.status() for run in runs}


async def test_a_limit_holds_over_a_crash(tmp_path: Path) -> None:
    """Invariant 17: permits are rows."""
    async with World(tmp_path, held={"slow"}) as world:
        for _ in range(3):
            await world.start(printing(1))
        await world.crash()
        await world.boot()

        assert len(world.hands.waiting) == 1


async def test_higher_priority_goes_first_then_who_asked_first(tmp_path: Path) -> None:
    """Invariant 17: one pure allocator decides."""
    async with World(tmp_path, held={"slow"}) as world:
        runs = {}
        for name, priority in (("first", 0), ("low", 0), ("high", 5), ("low too", 0)):
            runs[(await world.start(printing(1, priority))).id] = name
            await world.advance(1)
        order = []
        while world.hands.waiting:
            order.append(runs[world.hands.release(Succeeded(b"1")).run])
            await world.settle()

        assert order == ["first", "high", "low", "low too"]


async def test_the_permits_of_a_run_that_ends_are_swept(tmp_path: Path) -> None:
    """Invariant 17."""
    async with World(tmp_path, held={"slow"}) as world:
        first = await world.start(printing(1))
        second = await world.start(printing(1))
        await first.cancel()
        await world.settle()

        assert [second.id] == [assignment.run for assignment, _, _ in world.hands.waiting.values()]


@pytest.mark.sqlite_inside
async def test_without_a_limit_there_is_no_row(tmp_path: Path) -> None:
    """Invariant 17."""
    async with World(tmp_path, held={"slow"}) as world:
        await world.start(printing(None))
        assert world.engine is not None

        assert len(world.hands.waiting) == 1
        assert world.engine.store._read("SELECT count(*) FROM permits") == [(0,)]  # type: ignore[attr-defined]


async def test_an_operator_can_set_a_limit(tmp_path: Path) -> None:
    """Invariant 17."""
    async with World(tmp_path, held={"slow"}) as world:
        assert world.engine is not None
        await world.engine.store.set_limit("printer", 1)
        for _ in range(3):
            await world.start(printing(None))
        assert len(world.hands.waiting) == 1

        await world.engine.store.set_limit("printer", 3)
        await world.engine.runtime.read_inbox()
        await world.settle()

        assert len(world.hands.waiting) == 3


PARENT = drill(
    {"child": drill({"call": "slow", "save": "x"}, {"return": "$x"}, name="kid"), "save": "kid", "input": 3},
    {"return": "$kid"},
)


async def _children(world: World, run: RunInWorld) -> list[RunInWorld]:
    assert world.engine is not None
    rows = await world.engine.search(RunFilter(parent=run.id))
    return [world.run(row.id) for row in rows]


async def test_a_childs_end_reaches_its_parent(tmp_path: Path) -> None:
    """Invariant 18: start and end are inbox rows in the sender's commit."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(PARENT)
        (child,) = await _children(world, run)
        await world.crash()
        await world.boot()
        world.hands.release(Succeeded(b'"from the kid"'))
        await world.settle()

        assert await run.result() == "from the kid"
        assert f"{run.id}.1" == child.id


async def test_cancelling_a_parent_cancels_its_children(tmp_path: Path) -> None:
    """Invariant 18."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(PARENT)
        (child,) = await _children(world, run)
        await run.cancel("enough")

        assert await child.status() == "cancelled"
        assert await run.status() == "cancelled"


async def test_a_failing_child_is_an_ordinary_failure_of_its_parent(tmp_path: Path) -> None:
    """Invariant 18."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"child": drill({"fail": "Kid.Fell"})}))

        assert (await run.show())["outcome"]["code"] == "Kid.Fell"


async def test_a_child_that_cannot_begin_is_a_failure_of_its_parent(tmp_path: Path) -> None:
    """Invariant 18: nobody waits for ever."""
    async with World(tmp_path) as world:
        world.drill.trips["at once"] = ZeroDivisionError("bug")
        run = await world.start(drill({"child": drill({"trip": "at once"})}))
        await world.settle()
        assert world.engine is not None
        await world.engine.runtime.read_inbox()
        await world.settle()

        assert (await run.show())["outcome"]["code"] == "Platform.CannotBegin"


async def test_a_detached_child_outlives_its_parent(tmp_path: Path) -> None:
    """Invariant 18."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(drill({"child": drill({"call": "slow"}), "wait": False}, {"return": "gone ahead"}))
        (child,) = await _children(world, run)
        assert await run.result() == "gone ahead"
        world.hands.release(Succeeded(b"1"))
        await world.settle()

        assert await child.status() == "succeeded"


@pytest.mark.sqlite_inside
async def test_large_values_are_copied_when_they_cross_and_go_with_their_run(tmp_path: Path) -> None:
    """Invariant 19."""
    kid = drill({"call": "echo", "input": "$input"}, name="kid")
    document = drill(
        {"call": "big", "save": "big"}, {"child": kid, "input": "$big", "save": "back"}, {"return": "$back"}
    )
    async with make_world(tmp_path) as world:
        run = await world.start(document)
        assert len(await run.result()) == 200_000
        assert world.engine is not None
        store: Any = world.engine.store
        assert store._read("SELECT count(DISTINCT run) FROM large_values") == [(2,)]

        await world.advance(100)
        assert await world.engine.prune(world.clock.now()) == 2

        assert store._read("SELECT count(*) FROM large_values") == [(0,)]
        assert store._read("SELECT count(*) FROM log") == [(0,)]
        assert store._read("SELECT count(*) FROM programs") == [(0,)]
        with pytest.raises(RunNotFound):
            await run.show()


async def test_retention_removes_closed_trees_only(tmp_path: Path) -> None:
    """Invariant 19: leaves first, and no child of an open parent."""
    open_parent = drill({"child": drill({"call": "echo", "input": 1})}, {"signal": "never"})
    async with World(tmp_path) as world:
        parent = await world.start(open_parent)
        done = await world.start(drill({"call": "echo", "input": 1}))
        recent_cutoff = world.clock.now()
        await world.advance(100)
        late = await world.start(drill({"call": "echo", "input": 1}))
        assert world.engine is not None

        assert await world.engine.prune(recent_cutoff + 50) == 1

        kept = {row.id for row in await world.engine.search(RunFilter())}
        assert {parent.id, f"{parent.id}.1", late.id} == kept
        assert done.id not in kept


async def test_a_fork_keeps_finished_work_and_issues_open_work_anew(tmp_path: Path) -> None:
    """Invariant 20."""
    document = drill(
        {"call": "echo", "input": "once", "save": "a"},
        {
            "all": [
                [{"call": "slow", "save": "b"}],
                [{"sleep": "10s"}],
                [{"child": drill({"call": "slow", "input": "kid"}, name="kid")}],
            ]
        },
        {"return": ["$a", "$b"]},
    )
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(document)
        assert world.engine is not None
        forked = world.run((await world.engine.fork(run.id)).id)
        await world.settle()
        await world.advance(11)
        while world.hands.waiting:
            assignment = next(iter(world.hands.waiting.values()))[0]
            world.hands.release(Succeeded(b'"original"' if assignment.run == run.id else b'"forked"'))
            await world.settle()

        assert await run.result() == ["once", "original"]
        assert await forked.result() == ["once", "forked"]
        assert [assignment.provider for assignment in world.hands.performed].count("echo") == 1, (
            "finished work is a fact"
        )
        keys = [assignment.idempotency_key for assignment in world.hands.performed if assignment.provider == "slow"]
        assert len(set(keys)) == 4, "open work is issued under the fork's own name"
        assert len(await _children(world, forked)) == 1


async def test_a_fork_can_begin_at_any_past_event(tmp_path: Path) -> None:
    """Invariant 20 and promise 5."""
    document = drill({"call": "echo", "input": 1, "save": "a"}, {"signal": "go", "save": "b"}, {"return": ["$a", "$b"]})
    async with World(tmp_path) as world:
        run = await world.start(document)
        await run.signal("go", "first")
        assert await run.result() == [1, "first"]
        assert world.engine is not None
        before = (await run.events()).index("SignalReceived")

        forked = world.run((await world.engine.fork(run.id, before)).id)
        await world.settle()
        await forked.signal("go", "second")

        assert await forked.result() == [1, "second"]
        with pytest.raises(Conflict, match="nothing to continue"):
            await world.engine.fork(run.id)
        with pytest.raises(EventNotFound, match="there is no event 99"):
            await world.engine.fork(run.id, 99)


async def test_a_reopened_run_lives_again_under_the_same_id(tmp_path: Path) -> None:
    """Invariant 20: appends to the same log; who was told of an end is not told again."""
    async with World(tmp_path, held={"slow"}) as world:
        parent = await world.start(PARENT)
        (child,) = await _children(world, parent)
        world.hands.release(Succeeded(b"1"))
        await world.settle()
        assert await parent.result() == 1
        assert world.engine is not None

        await world.engine.redrive(child.id, key="again")
        await world.engine.redrive(child.id, key="again")
        await world.settle()
        world.hands.release(Succeeded(b"2"))
        await world.settle()

        assert await child.result() == 2
        assert await parent.result() == 1
        assert (await child.events()).count("RunEnded") == 2
        assert (await parent.events()).count("ChildEnded") == 1
        keys = [assignment.idempotency_key for assignment in world.hands.performed]
        assert len(set(keys)) == 2, "a new life does its work under new keys"


async def test_only_an_ended_run_is_reopened(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(drill({"signal": "go"}))
        assert world.engine is not None

        with pytest.raises(Conflict, match="only a run that has ended"):
            await world.engine.redrive(run.id)


async def test_steering_is_the_dialects_own_vocabulary(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(drill({"signal": "go"}, {"return": "$x"}))
        assert world.engine is not None
        await world.engine.steer(run.id, "set", {"x": 9}, key="k")
        with pytest.raises(Conflict, match="cannot be asked to 'dance'"):
            await world.engine.steer(run.id, "dance")
        await run.signal("go")

        assert await run.result() == 9
