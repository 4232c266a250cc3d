"""Deciding and committing: invariants 1 to 5."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.settings import Settings
from perdure.kernel.errors import EngineStopped, PerdureError
from perdure.kernel.execution import Limits
from perdure.kernel.json_values.large_values import INLINE_BYTES
from perdure.stores.commit_types import CommitAnswer, CommitUnknown, Transition
from perdure.stores.errors import StoreError
from perdure.stores.protocol import RunFilter
from perdure.testing import World
from tests.engine.documents import LARGE, drill
from tests.engine.scenes import finish, make_world

pytestmark = pytest.mark.every_store


class SlowStore:
    """A store whose commits wait for the test."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.gate = asyncio.Event()
        self.gate.set()
        self.batches: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit_at_once(self, batch: Sequence[Transition]) -> None:
        return None

    async def commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        self.batches.append([change.run for change in batch])
        await self.gate.wait()
        answer: CommitAnswer = await self._inner.commit(batch)
        return answer


async def test_a_run_with_an_unsynced_transition_takes_no_input(tmp_path: Path) -> None:
    """Invariant 1: deciding ahead happens across runs, never inside one; inputs that waited together share a commit."""
    stores: list[SlowStore] = []

    def wrap(store: Any) -> Any:
        stores.append(SlowStore(store))
        return stores[-1]

    async with World(tmp_path, wrap=wrap) as world:
        run = await world.start(drill({"signal": "a"}, {"signal": "b"}, {"signal": "c"}, {"return": "all"}))
        other = await world.start(drill({"signal": "x"}))
        store = stores[0]
        store.batches.clear()
        store.gate.clear()

        signals = [asyncio.ensure_future(run.handle.signal(name)) for name in "abc"]
        await _until(lambda: len(store.batches) == 1)
        late = asyncio.ensure_future(other.handle.signal("x"))
        await asyncio.sleep(0.02)
        assert not any(signal.done() for signal in signals), "nothing is acknowledged before it is on disk"
        store.gate.set()
        await asyncio.gather(*signals, late)
        await world.settle()

        assert await run.result() == "all"
        assert len([batch for batch in store.batches if run.id in batch]) <= 2


async def _until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


class DoubtfulStore:
    """Answers 'unknown' to chosen commits, which may or may not have been written."""

    def __init__(self, inner: Any, unknown: set[int], *, written: bool) -> None:
        self._inner = inner
        self._unknown = unknown
        self._written = written
        self.commits = 0
        self.reopened = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit_at_once(self, batch: Sequence[Transition]) -> None:
        return None

    async def commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        self.commits += 1
        if self.commits in self._unknown:
            if self._written:
                await self._inner.commit(batch)
            return CommitUnknown(StoreError("the connection was lost at COMMIT"))
        answer: CommitAnswer = await self._inner.commit(batch)
        return answer

    async def reopen(self) -> None:
        self.reopened += 1
        await self._inner.reopen()


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("commit", [1, 2, 3, 4])
async def test_after_an_unknown_commit_nothing_is_assumed(tmp_path: Path, written: bool, commit: int) -> None:
    """Invariant 2: reopen, fold what is on disk, offer the inputs again; the run ends as if nothing had happened."""
    stores: list[DoubtfulStore] = []

    def wrap(store: Any) -> Any:
        stores.append(DoubtfulStore(store, {commit}, written=written))
        return stores[-1]

    document = drill(
        {"call": "echo", "input": 1, "save": "a"}, {"signal": "go"}, {"call": "echo", "input": 2}, {"return": "$a"}
    )
    async with World(tmp_path, wrap=wrap) as world:
        run = await world.start(document)
        await run.signal("go")

        assert await run.result() == 1
        assert stores[0].reopened == 1
        assert (await run.events()).count("SignalReceived") == 1
        assert (await run.events()).count("RunStarted") == 1


async def test_a_store_that_stays_broken_stops_the_engine(tmp_path: Path) -> None:
    """Invariant 2: it never answers from memory."""

    def wrap(store: Any) -> Any:
        return DoubtfulStore(store, set(range(2, 100)), written=False)

    async with World(tmp_path, wrap=wrap) as world:
        run = await world.start(drill({"signal": "go"}))

        with pytest.raises(PerdureError):
            await run.handle.signal("go")
        with pytest.raises(PerdureError, match="lost at COMMIT"):
            await world.start(drill({"signal": "go"}))


async def test_a_run_whose_decision_raises_twice_is_stuck_and_harms_no_other(tmp_path: Path) -> None:
    """Invariant 3: the error is shown, the input is kept, and it is tried again on demand."""
    async with World(tmp_path) as world:
        world.drill.trips["bug"] = ZeroDivisionError("a bug in the dialect")
        bad = await world.start(drill({"signal": "go", "save": "said"}, {"trip": "bug"}, {"return": "$said"}))
        good = await world.start(drill({"signal": "go", "save": "said"}, {"return": "$said"}))

        with pytest.raises(PerdureError, match="stuck"):
            await bad.signal("go", 1)
        await good.signal("go", 2)

        assert await good.result() == 2
        assert world.engine is not None
        rows = await world.engine.search(RunFilter())
        assert [row.stuck for row in rows if row.stuck] == ["ZeroDivisionError: a bug in the dialect"]
        assert "SignalReceived" not in await bad.events()

        world.drill.trips.clear()  # the upgrade
        await world.crash()
        await world.boot()

        assert await bad.result() == 1
        assert [row.stuck for row in await world.engine.search(RunFilter())] == [None, None]


async def test_a_stuck_run_is_tried_again_on_demand(tmp_path: Path) -> None:
    """Invariant 3."""
    from perdure.kernel.inputs import Wake

    async with World(tmp_path) as world:
        world.drill.trips["bug"] = ZeroDivisionError("a bug in the dialect")
        run = await world.start(drill({"call": "echo", "input": 5, "save": "x"}, {"trip": "bug"}, {"return": "$x"}))
        assert world.engine is not None
        assert "ZeroDivisionError" in ((await world.engine.find(run.id)).stuck or "")
        world.drill.trips.clear()

        await world.engine.tell(run.id, Wake())
        await world.settle()

        assert await run.result() == 5
        assert [assignment.delivery for assignment in world.hands.performed] == [1], "the kept result counted"


async def test_large_values_of_one_commit_are_at_hand_for_each_other(tmp_path: Path) -> None:
    """Invariants 1 and 4: inputs that waited together share a commit, so what the first brought is not on disk yet."""
    large = "x" * (INLINE_BYTES + 1)
    functions: dict[str, Any] = {"big": lambda arguments, input: f"{input}{large}"}
    document = drill({"each": 3, "do": [{"call": "big", "input": "$index"}], "save": "all"}, {"return": "$all"})
    async with World(tmp_path, functions=functions) as world:
        run = await world.start(document)
        assert await run.result() == [f"{index}{large}" for index in range(3)]


async def test_a_decision_may_ask_for_large_values(tmp_path: Path) -> None:
    """Invariants 4 and 19: large values live beside the log, once per run; events carry references."""
    async with make_world(tmp_path) as world:
        run = await world.start(LARGE)
        shown = await finish(world, run)

        assert shown["outcome"]["value"] == {"length": 200_000}
        assert world.engine is not None
        rows = await world.engine.store.history(run.id)
        assert sum(len(body) for _, body in rows) < 5_000


async def test_long_work_is_sliced_and_queues_behind_others(tmp_path: Path) -> None:
    """Invariant 5: after 1,000 moves a run commits and others get their turn."""
    async with World(tmp_path) as world:
        assert world.engine is not None
        order: list[str] = []
        world.engine.runtime.watch(lambda run, turns: order.append(run))
        spinning = await world.engine.start(drill({"spin": 5000}, {"return": "dizzy"}))
        quick = await world.engine.start(drill({"call": "echo", "input": 1}))
        await world.settle()

        assert order.index(quick.id) < max(index for index, run in enumerate(order) if run == spinning.id)
        assert (await world.run(spinning.id).events()).count("Sliced") >= 4
        assert await spinning.result() == "dizzy"


async def test_a_document_that_spins_is_ended(tmp_path: Path) -> None:
    """Invariant 5: a cap on moves without outside input ends the run, as its dialect says."""
    settings = Settings(limits=Limits(slice=100, moves=1000))
    async with World(tmp_path, settings=settings) as world:
        run = await world.start(drill({"spin": 1_000_000}, cleanup=[{"call": "echo", "input": "swept"}]))
        shown = await run.show()

        assert shown["outcome"]["code"] == "Platform.MovesExhausted"
        assert [assignment.provider for assignment in world.hands.performed] == ["echo"], "it cleaned up after itself"


async def test_outside_input_starts_the_count_of_moves_anew(tmp_path: Path) -> None:
    """Invariant 5."""
    settings = Settings(limits=Limits(slice=100, moves=1000))
    async with World(tmp_path, settings=settings) as world:
        run = await world.start(
            drill({"repeat": 5, "do": [{"spin": 700}, {"call": "echo", "input": 1}]}, {"return": "ok"})
        )

        assert await run.result() == "ok"


async def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.boot()
    assert world.engine is not None
    engine = world.engine
    run = await engine.start(drill({"signal": "never"}))
    waiting = asyncio.ensure_future(run.result())
    await asyncio.sleep(0)
    await world.close()

    with pytest.raises(EngineStopped):
        await waiting
