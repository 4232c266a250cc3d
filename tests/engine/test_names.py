"""One name, one run in a namespace: the commit that creates a run gives it its name, or does not create it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from perdure.engine.client import Client
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.stores.commit_types import CommitAnswer, Transition
from perdure.stores.protocol import RunFilter, Store
from perdure.testing import World
from perdure.testing.crashing import CrashingStore
from perdure.wiring import Engine
from tests.dialects.story.world import story

CHILD = story("steps: [{name: waits, type: wait, with: {until: '{{ false }}'}}]", "child")
QUICK = story("steps: [{name: c, type: condition}]", "quick")


def calls(**members: Any) -> dict[str, Any]:
    step = {"name": "below", "type": "executeStory", "with": {"storyRef": {"name": "child"}, **members}}
    return {**story("steps: [{name: x, type: condition}]", "parent"), "spec": {"steps": [step]}}


class Interrupted:
    """The real store; somebody else comes before each commit that a condition names, and after every commit."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.before: Callable[[Sequence[Transition]], Awaitable[None]] | None = None
        self.after: Callable[[], Awaitable[None]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit_at_once(self, batch: Sequence[Transition]) -> None:
        return None  # so that every commit passes below

    async def commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        if self.before is not None:
            await self.before(batch)
        answer = await self._inner.commit(batch)
        if self.after is not None:
            await self.after()
        return answer


class Beside(World):
    """A world with another engine beside it, on the same store."""

    def __init__(self, folder: Path) -> None:
        self.stores: list[Interrupted] = []
        super().__init__(folder, wrap=self._interrupt)

    def _interrupt(self, store: Store) -> Store:
        self.stores.append(Interrupted(store))
        return cast(Store, self.stores[-1])

    @property
    def store(self) -> Interrupted:
        return self.stores[-1]

    async def __aenter__(self) -> "Beside":
        await super().__aenter__()
        self.other = Engine(
            self.open_store(), clock=self.clock, hands=self.hands, spoken=self._languages, recover=False
        )
        await self.other.runtime.open()
        return self

    async def __aexit__(self, *exit: object) -> None:
        await super().__aexit__(*exit)
        await self.other.runtime.close()

    async def is_refused_to_strangers(self, name: str) -> bool:
        try:
            await self.other.start(QUICK, options={"name": name})
        except Conflict:
            return True
        return False


def applied(*resources: dict[str, Any]) -> list[AppliedDocument]:
    return [
        AppliedDocument(f"{resource['metadata']['name']}.yaml", jsontext.encode(resource).decode())
        for resource in resources
    ]


@pytest.mark.every_store
async def test_a_foreign_run_under_the_name_of_a_child_makes_the_step_fail(tmp_path: Path) -> None:
    """STY-014 STY-088 STY-261: the step fails as SubStoryRunSpoofed, and the other run is left alone."""
    async with World(tmp_path) as world:
        other = await world.start(QUICK, options={"name": "mine-below"})
        run = await world.start(calls(), options={"name": "mine"}, applied=applied(CHILD))
        shown = await run.show()

        state = shown["status"]["stepStates"]["below"]
        assert state["phase"] == "Failed" and other.id in state["message"]
        assert "SubStoryRunSpoofed" in str(await run.handle.history())
        assert (await other.show())["metadata"]["name"] == "mine-below"


@pytest.mark.every_store
async def test_a_child_that_nobody_waits_for_is_not_mistaken_either(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.start(QUICK, options={"name": "mine-below"})
        run = await world.start(calls(waitForCompletion=False), options={"name": "mine"}, applied=applied(CHILD))

        assert (await run.show())["status"]["stepStates"]["below"]["phase"] == "Failed"
        assert "SubStoryRunSpoofed" in str(await run.handle.history())


@pytest.mark.every_store
async def test_a_start_under_the_name_of_a_child_is_refused(tmp_path: Path) -> None:
    """STY-284."""
    async with World(tmp_path) as world:
        run = await world.start(calls(), options={"name": "mine"}, applied=applied(CHILD))
        assert world.engine is not None

        with pytest.raises(Conflict, match=f"'mine-below' in namespace 'default' belongs to run {run.id}.1"):
            await world.engine.start(QUICK, options={"name": "mine-below"})


@pytest.mark.every_store
async def test_of_racing_starts_of_one_name_one_wins(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        assert world.engine is not None
        starts = [world.engine.start(QUICK, {"n": n}, options={"name": "one"}) for n in range(5)]
        ends = await asyncio.gather(*starts, return_exceptions=True)

        assert sorted(isinstance(end, Conflict) for end in ends) == [False, True, True, True, True]


@pytest.mark.every_store
async def test_a_name_is_free_again_when_its_run_is_gone(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        first = await world.start(QUICK, options={"name": "one"})
        assert world.engine is not None
        await world.engine.store.remove([first.id])
        again = await world.start(QUICK, {"n": 2}, options={"name": "one"})

        assert await again.status() == "succeeded"


@pytest.mark.every_store
async def test_a_redriven_step_gives_its_name_to_its_new_child(tmp_path: Path) -> None:
    """STY-183: the sub-run of what was reset is removed, and its successor has its name."""
    async with World(tmp_path) as world:
        run = await world.start(calls(), options={"name": "mine"}, applied=applied(CHILD))
        assert world.engine is not None
        first = await world.engine.store.run_named("story", "default", "mine-below")
        await world.engine.steer(run.id, "redrive", {"token": "again"})
        await world.settle()
        second = await world.engine.store.run_named("story", "default", "mine-below")

        assert first == RunId(f"{run.id}.1")
        assert second is not None and second != first
        assert (await run.show())["status"]["stepStates"]["below"]["phase"] == "Running"


@pytest.mark.every_store
@pytest.mark.parametrize("waits", [True, False])
async def test_a_stranger_who_comes_between_decision_and_commit_is_noticed(tmp_path: Path, waits: bool) -> None:
    """STY-088: the commit decides, for a child that is waited for and for one that is not; nobody looks before."""
    async with Beside(tmp_path) as world:
        came: list[str] = []

        async def come(batch: Sequence[Transition]) -> None:
            if not came and any(change.name_claims or change.run.endswith(".1") for change in batch):
                came.append((await world.other.start(QUICK, options={"name": "mine-below"})).id)

        world.store.before = come
        run = await world.start(calls(waitForCompletion=waits), options={"name": "mine"}, applied=applied(CHILD))
        state = (await run.show())["status"]["stepStates"]["below"]

        assert came and state["phase"] == "Failed" and came[0] in state["message"]
        assert "SubStoryRunSpoofed" in str(await run.handle.history())
        assert "SubStoryRunCreated" not in str(await run.handle.history()) or waits
        assert await world.store.find(RunId(f"{run.id}.1")) is None
        assert await world.store.run_named("story", "default", "mine-below") == came[0]


@pytest.mark.every_store
@pytest.mark.parametrize("waits", [True, False])
async def test_at_no_instant_of_a_redrive_is_the_name_of_a_child_free(tmp_path: Path, waits: bool) -> None:
    """STY-091 STY-183: a stranger tries after every single commit."""
    async with Beside(tmp_path) as world:
        run = await world.start(calls(waitForCompletion=waits), options={"name": "mine"}, applied=applied(CHILD))
        refused: list[bool] = []

        async def try_it() -> None:
            refused.append(await world.is_refused_to_strangers("mine-below"))

        world.store.after = try_it
        assert world.engine is not None
        for token in ("again", "and again"):
            before = await world.store.run_named("story", "default", "mine-below")
            await world.engine.steer(run.id, "redrive", {"token": token})
            await world.settle()
            now = await world.store.run_named("story", "default", "mine-below")

            assert now not in (None, before) and str(now).startswith(f"{run.id}.")
            assert (await run.show())["status"]["stepStates"]["below"]["phase"] == ("Running" if waits else "Succeeded")
        assert len(refused) >= 4 and all(refused)
        assert "SubStoryRunSpoofed" not in str(await run.handle.history())


@pytest.mark.every_store
@pytest.mark.parametrize("waits", [True, False])
async def test_racing_for_the_name_of_a_child_one_has_it(tmp_path: Path, waits: bool) -> None:
    """Two engines at full speed; whoever is second is told, and nothing is lost or made twice."""
    async with Beside(tmp_path) as world:
        assert world.engine is not None
        document, around = calls(waitForCompletion=waits), applied(CHILD)

        async def launch(n: int) -> str:
            handle = await world.engine.start(document, options={"name": f"r{n}"}, applied=around)  # type: ignore[union-attr]
            return handle.id

        for n in range(8):
            run, refused = await asyncio.gather(launch(n), world.is_refused_to_strangers(f"r{n}-below"))
            await world.settle()
            holder = await world.store.run_named("story", "default", f"r{n}-below")
            state = (await world.run(RunId(run)).show())["status"]["stepStates"]["below"]["phase"]

            assert state == ({True: "Running", False: "Succeeded"}[waits] if refused else "Failed")
            assert (holder == f"{run}.1") == refused
            assert (await world.store.find(RunId(f"{run}.1")) is not None) == refused


@pytest.mark.every_store
async def test_a_fork_of_a_run_with_a_sub_run_has_one_too_without_its_name(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(calls(), options={"name": "mine"}, applied=applied(CHILD))
        assert world.engine is not None
        fork = await world.engine.fork(run.id)
        await world.settle()

        assert (await fork.show())["status"]["stepStates"]["below"]["phase"] == "Running"
        assert await world.engine.store.find(RunId(f"{fork.id}.1")) is not None
        assert await world.engine.store.run_named("story", "default", "mine-below") == f"{run.id}.1"


@pytest.mark.every_store
async def test_a_fork_launches_a_sub_run_that_it_does_not_wait_for_beside_the_first(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        document = calls(waitForCompletion=False)
        document["spec"]["steps"][0]["needs"] = ["open"]
        document["spec"]["steps"].insert(0, {"name": "open", "type": "gate"})
        run = await world.start(document, options={"name": "mine"}, applied=applied(CHILD))
        assert world.engine is not None
        fork = await world.engine.fork(run.id)
        for run_id in (run.id, fork.id):
            await world.engine.steer(run_id, "gate", {"step": "open", "state": "Approved"})
            await world.settle()

            assert (await world.run(run_id).show())["status"]["phase"] == "Succeeded"
        holder = await world.engine.store.run_named("story", "default", "mine-below")
        children = {row.id for row in await world.engine.search(RunFilter()) if row.parent is not None}
        assert len(children) == 2 and holder in children and str(holder).startswith(run.id)


@pytest.mark.every_store
async def test_a_child_that_was_not_born_when_it_was_disowned_leaves_the_name_to_the_next(tmp_path: Path) -> None:
    """The process died right after the commit that started it; the redrive and its start come up together."""
    stores: list[CrashingStore] = []

    def crashing(store: Store) -> Store:
        stores.append(CrashingStore(store, 1, after=True, dies=not stores))
        return cast(Store, stores[-1])

    world = World(tmp_path, wrap=crashing)
    await world.boot()
    assert world.engine is not None
    start = world.engine.start(calls(waitForCompletion=False), options={"name": "mine"}, applied=applied(CHILD))
    starting = asyncio.ensure_future(start)
    await stores[0].crashed.wait()
    starting.cancel()
    await world.crash()
    outside = Client(world.open_store(), world._languages, world.clock, None)
    (row,) = await outside.search(RunFilter())
    await outside.redrive(row.id, {"token": "again"})
    await outside.store.close()
    async with world:
        run = world.run(row.id)
        holder = await stores[1].run_named("story", "default", "mine-below")

        assert (await run.show())["status"]["stepStates"]["below"]["phase"] == "Succeeded"
        assert holder not in (None, row.id, f"{row.id}.1") and await stores[1].find(holder) is not None
        assert "SubStoryRunSpoofed" not in str(await run.handle.history())
