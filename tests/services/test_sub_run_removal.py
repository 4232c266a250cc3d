"""Removal of sub-runs: by a redrive, and with the record of their parent."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.runs.retention import Sweeper
from perdure.kernel.json_values.values import RunId
from perdure.stores.protocol import RunFilter
from perdure.testing.world import RunInWorld, World
from tests.dialects.story.world import story
from tests.services.story_engine import NEEDED, WORK, DyingStore, engine_of, texts

LEAF = story("steps: [{name: a, ref: {name: echo}}]", "leaf")
INNER = story("steps: [{name: deep, type: executeStory, with: {storyRef: {name: leaf}}}]", "inner")
GATED = story("steps: [{name: g, type: gate}]", "gated")
OUTER = """
steps:
- {name: first, type: executeStory, with: {storyRef: {name: leaf}}}
- {name: sub, type: executeStory, needs: [first], with: {storyRef: {name: inner}}}
- {name: loose, type: executeStory, needs: [first], with: {storyRef: {name: gated}, waitForCompletion: false}}
"""


async def _prepared(world: World, outer: str = OUTER) -> RunInWorld:
    engine = engine_of(world)
    await engine.apply(texts(*NEEDED, LEAF, INNER, GATED, story(outer, "outer")))
    await engine.trigger("outer", {}, token="T")
    await world.settle()
    (row,) = [row for row in await engine.search(RunFilter()) if row.parent is None]
    return world.run(row.id)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def _below(world: World) -> set[RunId]:
    return {row.id for row in await engine_of(world).search(RunFilter()) if row.parent is not None}


async def test_a_redrive_removes_the_sub_runs_of_the_life_before(tmp_path: Path) -> None:
    """STY-183 STY-091: with what is below them; one that is open is canceled first."""
    async with World(tmp_path, functions=WORK) as world:
        run = await _prepared(world)
        before = await _below(world)
        assert len(before) == 4 and (await run.show())["status"]["phase"] == "Succeeded"
        await engine_of(world).redrive(run.id, {"token": "again"})
        await world.advance(60)
        after = await _below(world)
        assert len(after) == 4 and not after & before
        shown = await run.show()
        assert shown["status"]["phase"] == "Succeeded" and shown["status"]["attempts"] == 2
        assert shown["status"]["triggerTokens"] == ["story"]
        events = [event for event in await run.handle.history() if event["event_type"] == "storyrun.childrenDeleted"]
        assert len(events) == 1 and len(events[0]["payload"]["children"]) == 3


async def test_a_redrive_from_a_step_removes_the_sub_runs_of_what_it_resets(tmp_path: Path) -> None:
    """STY-184"""
    async with World(tmp_path, functions=WORK) as world:
        run = await _prepared(world)
        before = await _below(world)
        await engine_of(world).redrive(run.id, {"token": "again", "step": "sub"})
        await world.advance(60)
        after = await _below(world)
        assert len(after) == 4 and len(after & before) == 2  # `first` and `loose` stay


async def test_a_live_run_that_starts_over_removes_the_sub_run_it_waits_for(tmp_path: Path) -> None:
    """STY-185 STY-183"""
    waits = "steps: [{name: sub, type: executeStory, with: {storyRef: {name: gated}}}]"
    async with World(tmp_path, functions=WORK) as world:
        run = await _prepared(world, waits)
        before = await _below(world)
        await engine_of(world).steer(run.id, "redrive", {"token": "now"})
        await world.advance(60)
        after = await _below(world)
        assert len(before) == len(after) == 1 and not after & before
        (child,) = after
        await engine_of(world).steer(child, "gate", {"step": "g", "state": "Approved"})
        await world.settle()
        assert (await run.show())["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize("after", [False, True])
async def test_whatever_dies_on_the_way_the_sub_runs_go(tmp_path: Path, after: bool) -> None:
    """STY-183: a crash before or after any write of the redrive."""
    write = 0
    while True:
        write += 1
        stores: list[DyingStore] = []

        def wrap(store: Any, write: int = write, stores: list[DyingStore] = stores) -> Any:
            stores.append(DyingStore(store, 10_000, after=after))
            return stores[-1]

        async with World(_made(tmp_path / str(write)), functions=WORK, wrap=wrap) as world:
            run = await _prepared(world)
            before = await _below(world)
            stores[0].die_at(stores[0].writes + write)
            asking = asyncio.ensure_future(engine_of(world).redrive(run.id, {"token": "again"}, key="again"))
            async with asyncio.timeout(60):
                while not stores[0].crashed.is_set() and not (asking.done() and engine_of(world).runtime.is_quiet):
                    await asyncio.sleep(0.001)
            has_died = stores[0].crashed.is_set()
            asking.cancel()
            await world.crash()
            await world.boot()
            await engine_of(world).redrive(run.id, {"token": "again"}, key="again")
            await engine_of(world).resume()  # a run that had ended has no owner since the crash: the word waits for one
            await world.advance(60)
            below = await _below(world)
            assert len(below) == 4 and not below & before, write
            assert (await run.show())["status"]["attempts"] == 2
        if not has_died:
            break
    assert write > 5


async def test_a_run_that_is_deleted_takes_its_open_sub_runs_along(tmp_path: Path) -> None:
    """STY-091 STY-191: it has ended itself; what it has started stops first, and children go before it."""
    async with World(tmp_path, functions=WORK) as world:
        run = await _prepared(world)
        engine = engine_of(world)
        assert not await Sweeper(engine).remove(run.id)
        await Sweeper(engine).disown(run.id)
        await engine.runtime.read_inbox()
        await world.advance(60)
        assert await engine.search(RunFilter()) == []
        assert await engine.store.list_resources("StoryTrigger") == []
