"""How long Stories are kept, and what survives of them."""

from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.story import Story
from perdure.dialects.story.plan.retention import retention
from perdure.engine.runs.retention import Sweeper, Swept
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Retention
from perdure.testing.world import World
from tests.dialects.story.world import bundle, engram, story, template
from tests.services.story_engine import NEEDED, WORK, engine_of, runs, texts

CHILD = story("steps: [{name: a, ref: {name: echo}}]", "child")
PARENT = """
steps:
- {name: one, ref: {name: echo}, with: {n: 1}}
- {name: bad, ref: {name: broken}, allowFailure: true, execution: {retry: {maxRetries: 0}}}
- {name: sub, type: executeStory, with: {storyRef: {name: child}}}
output: {n: "{{ steps.one.output.n }}"}
"""


def broken(arguments: Any, input: Any) -> Any:
    raise RuntimeError("not today")


def _story(run: Any) -> Any:
    return run["metadata"]["labels"]["bubustack.io/story-name"]


ALL = {**WORK, "engram:broken@1.0.0": broken}


@pytest.mark.parametrize(
    ("policy", "settings", "expected"),
    [
        ("", {}, Retention(3600 * SECOND, 86400 * SECOND)),
        ("{ttlSecondsAfterFinished: 0, storyRunRetentionSeconds: 60}", {}, Retention(0, 60 * SECOND)),
        ("{ttlSecondsAfterFinished: -1}", {}, Retention(None, 86400 * SECOND)),
        ("{storyRunRetentionSeconds: 0}", {}, Retention(3600 * SECOND, None)),
        ("{storyRunRetentionSeconds: -1}", {}, Retention(3600 * SECOND, 3600 * SECOND, is_brief=True)),
        ("{storyRunRetentionSeconds: 10}", {}, Retention(3600 * SECOND, 3600 * SECOND)),
        ("{ttlSecondsAfterFinished: -1, storyRunRetentionSeconds: -1}", {}, Retention(None, None, is_brief=True)),
        ("", {"storyrun.retention-seconds": 0, "job.ttl-seconds-after-finished": 5}, Retention(5 * SECOND, None)),
    ],
)
def test_how_long_runs_are_kept(policy: str, settings: Any, expected: Retention) -> None:
    """STY-189 STY-190"""
    head = f"policy: {{execution: {{job: {policy}}}}}\n" if policy else ""
    resource = story(f"{head}steps: [{{name: a, type: condition}}]")
    assert retention(Story().load(bundle(resource, settings=settings))) == expected


def test_children_of_a_stream_go_at_once_unless_it_says_otherwise() -> None:
    """STY-189"""
    resource = story("pattern: streaming\nsteps: [{name: a, ref: {name: echo}}]")
    assert retention(Story().load(bundle(resource))).children == 0
    resource["spec"]["policy"] = {"execution": {"realtime": {"ttlSecondsAfterFinished": -1}}}
    assert retention(Story().load(bundle(resource))).children is None


async def test_children_go_first_and_what_steps_did_survives_them(tmp_path: Path) -> None:
    """STY-189 STY-190 STY-191"""
    async with World(tmp_path, functions=ALL) as world:
        engine = engine_of(world)
        parent = story(PARENT, "parent")
        await engine.apply(texts(*NEEDED, parent, CHILD, engram("broken"), template("broken")))
        await engine.trigger("parent", {}, token="T")
        await world.settle()
        before = next(run for run in await runs(engine) if _story(run) == "parent")
        assert before["status"]["phase"] == "Succeeded" and len(await runs(engine)) == 2
        sweeper = Sweeper(engine)

        await world.advance(3590)
        assert await sweeper.sweep() == Swept()
        await world.advance(20)
        assert await sweeper.sweep() == Swept(cleaned=1)
        assert await sweeper.sweep() == Swept() == await Sweeper(engine).sweep()
        (after,) = await runs(engine)
        assert after["stepRuns"] == {} and after["status"]["childrenCleanedAt"]
        assert after["status"]["output"] == {"n": 1} and after["status"]["phase"] == "Succeeded"
        for name, state in before["status"]["stepStates"].items():
            assert state.items() <= after["status"]["stepStates"][name].items()
        kept = after["status"]["stepStates"]
        assert kept["one"]["output"] == {"n": 1} and kept["bad"]["phase"] == "Failed"
        assert kept["bad"]["error"] == before["stepRuns"]["bad"]["status"]["error"]

        await world.crash()
        await world.boot()
        assert (await runs(engine_of(world)))[0]["status"] == after["status"]
        await world.advance(86_400)
        assert await Sweeper(engine_of(world)).sweep() == Swept(removed=1)
        assert await runs(engine_of(world)) == []
        assert await engine_of(world).store.list_resources("StoryTrigger") == []
        again = await engine_of(world).trigger("parent", {}, token="T")
        assert again["status"]["decision"] == "Created"


async def test_what_is_kept_for_ever_and_what_is_open_stays(tmp_path: Path) -> None:
    """STY-190"""
    policy = "policy: {execution: {job: {storyRunRetentionSeconds: 0}}}"
    forever = story(f"{policy}\nsteps: [{{name: a, type: condition}}]", "x")
    brief = story(
        "policy: {execution: {job: {ttlSecondsAfterFinished: 5, storyRunRetentionSeconds: -1}}}\n"
        "steps: [{name: a, type: condition}]",
        "y",
    )
    gated = story("steps: [{name: a, type: gate}]", "z")
    async with World(tmp_path, functions=ALL) as world:
        for document in (forever, brief, gated):
            await world.start(document)
        sweeper = Sweeper(engine_of(world))
        await world.advance(4)
        assert await sweeper.sweep() == Swept()
        await world.advance(2)
        assert await sweeper.sweep() == Swept(cleaned=1, removed=1)
        await world.advance(10 * 86_400)
        assert await sweeper.sweep() == Swept(cleaned=1)
        assert {run["metadata"]["labels"]["bubustack.io/story-name"] for run in await runs(engine_of(world))} == {
            "x",
            "z",
        }


async def test_sweeps_are_bounded(tmp_path: Path) -> None:
    """STY-189"""
    async with World(tmp_path, functions=ALL) as world:
        for _ in range(5):
            await world.start(story("steps: [{name: a, type: condition}]"))
        await world.advance(2 * 86_400)
        sweeper = Sweeper(engine_of(world))
        counts = []
        while (swept := await sweeper.sweep(limit=3)).cleaned or swept.removed:
            counts.append(swept.cleaned + swept.removed)
        assert max(counts) <= 4 and await runs(engine_of(world)) == []


async def test_a_live_run_cannot_be_cleaned_and_a_redrive_begins_anew(tmp_path: Path) -> None:
    """STY-189 STY-183"""
    async with World(tmp_path, functions=ALL) as world:
        run = await world.start(story("steps: [{name: g, type: gate}]"))
        with pytest.raises(PerdureError, match="has not ended"):
            await engine_of(world).steer(run.id, "clean")
        await engine_of(world).steer(run.id, "gate", {"step": "g", "state": "Approved"})
        await world.advance(4000)
        await Sweeper(engine_of(world)).sweep()
        assert "childrenCleanedAt" in (await run.show())["status"]
        await engine_of(world).redrive(run.id, {"token": "again"})
        await world.settle()
        assert "childrenCleanedAt" not in (await run.show())["status"]
