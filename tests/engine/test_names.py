"""One name, one run in a namespace: the commit that creates a run gives it its name, or does not create it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.kernel import jsontext
from perdure.kernel.errors import Conflict
from perdure.kernel.judging import Applied
from perdure.kernel.values import RunId
from perdure.testing import World
from tests.dialects.story.world import story

CHILD = story("steps: [{name: waits, type: wait, with: {until: '{{ false }}'}}]", "child")
QUICK = story("steps: [{name: c, type: condition}]", "quick")


def calls(**given: Any) -> dict[str, Any]:
    step = {"name": "below", "type": "executeStory", "with": {"storyRef": {"name": "child"}, **given}}
    return {**story("steps: [{name: x, type: condition}]", "parent"), "spec": {"steps": [step]}}


def applied(*resources: dict[str, Any]) -> list[Applied]:
    return [Applied(f"{one['metadata']['name']}.yaml", jsontext.encode(one).decode()) for one in resources]


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
        first = await world.engine.store.named("story", "default", "mine-below")
        await world.engine.steer(run.id, "redrive", {"token": "again"})
        await world.settle()
        second = await world.engine.store.named("story", "default", "mine-below")

        assert first == RunId(f"{run.id}.1")
        assert second is not None and second != first
        assert (await run.show())["status"]["stepStates"]["below"]["phase"] == "Running"
