"""Maps over many items: what a child costs does not grow with how many there are (STY-271)."""

from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.story.state.body import freeze
from perdure.kernel import inputs as i
from perdure.kernel.outcomes import Status
from perdure.stores.protocol import RunFilter
from perdure.testing.world import World as EngineWorld
from tests.dialects.story.test_engine import start
from tests.dialects.story.world import World, engram, failure, story, template
from tests.dialects.universe import Work

EACH = story("steps: [{name: c, type: condition}]\noutput: {n: '{{ inputs.item }}'}", "each")
MAP = story(
    """
steps: [{name: m, ref: {name: map-reduce-adapter}, with: {items: "{{ inputs.items }}", map: {storyRef: {name: each}}}}]
output: {stats: "{{ steps.m.output.stats }}"}
""",
    "maps",
)
OTHERS = [EACH, engram("map-reduce-adapter"), template("map-reduce-adapter")]


class Weighed(World):
    """Notes the largest commit and the largest state of the outer run on the way."""

    row = state = 0

    def take(self, life: Any, message: i.Input, arrived: int) -> Any:
        before = len(life.rows)
        turn = super().take(life, message, arrived)
        if life is self.life and before:  # the first has the run's input
            self.row = max(self.row, *map(len, life.rows[before:]), 0)
            self.state = max(self.state, len(freeze(life.execution.body)))
        return turn


def mapped(count: int) -> Weighed:
    world = Weighed(MAP, {"items": [{"id": n} for n in range(count)]}, others=OTHERS)
    shown = world.run()
    assert shown["status"]["output"]["stats"] == {"total": count, "succeeded": count, "failed": 0}
    return world


@pytest.mark.sampled(4)
def test_a_child_costs_the_same_among_few_and_among_many() -> None:
    few, many = mapped(200), mapped(2_000)

    assert len(many.life.events) < len(few.life.events) * 10.5
    assert many.life.moves < few.life.moves * 10.5
    assert many.state < few.state * 2  # a reference for each page of a hundred, and no more
    assert many.row < 16_384
    written = [sum(len(row) for row in world.life.rows) + sum(map(len, world.values.values())) for world in (few, many)]
    assert written[1] < written[0] * 11


def test_a_reduce_may_be_given_more_than_a_run_from_outside() -> None:
    """STY-018: the inline limit is for those who start runs, not for what a run hands to its own child."""
    text = """
steps:
- name: m
  ref: {name: map-reduce-adapter}
  with:
    items: "{{ inputs.items }}"
    map: {storyRef: {name: each}}
    reduce: {story: {steps: [{name: c, type: condition}], output: {n: "{{ len inputs.manifest.items }}"}}}
output: {n: "{{ steps.m.output.reduce.output.n }}"}
"""
    settings = {"storyrun.max-inline-inputs-size": 2_000}
    shown = World(story(text), {"items": list(range(150))}, others=OTHERS, settings=settings).run()

    assert shown["status"]["output"] == {"n": 150}


def test_a_redrive_maps_again() -> None:
    """STY-183 STY-184: children of the life before are not asked again."""
    failing = story("steps: [{name: f, ref: {name: flaky}, with: {key: '{{ inputs.index }}', times: 9}}]", "each")
    failing["spec"]["policy"] = {"retries": {"stepRetryPolicy": {"maxRetries": 5, "delay": "1s"}}}
    world = World(MAP, {"items": [1, 2]}, others=[failing, *OTHERS[1:]])
    world.settle()
    assert world.status["phase"] == "Failed"

    world.redrive("m")
    world.settle()

    assert world.status["phase"] == "Succeeded"
    assert world.status["attempts"] == 2


@pytest.mark.parametrize("count", [3, 250])
async def test_a_map_on_the_real_engine_outlives_a_crash(tmp_path: Path, count: int) -> None:
    """STY-179: most of its children wait in between."""
    nap = story("steps: [{name: nap, type: sleep, with: {duration: 4s}}]\noutput: {n: '{{ inputs.item }}'}", "each")
    async with EngineWorld(tmp_path) as world:
        run = await start(world, MAP, [nap, *OTHERS[1:]], input={"items": list(range(count))})
        await world.advance(2)
        assert (await run.show())["status"]["stepStates"]["m"]["message"] == f"Mapping {count} items"
        await world.crash()
        await world.boot()
        await world.advance(4 * count / 10 + 20)

        status = (await run.show())["status"]
        assert status["phase"] == "Succeeded", status
        assert status["output"]["stats"]["succeeded"] == count


async def test_a_cancel_reaches_the_children(tmp_path: Path) -> None:
    """STY-186."""
    nap = story("steps: [{name: nap, type: sleep, with: {duration: 1h}}]", "each")
    async with EngineWorld(tmp_path) as world:
        run = await start(world, MAP, [nap, *OTHERS[1:]], input={"items": [1, 2, 3]})
        assert world.engine is not None
        await world.engine.cancel(run.id, "enough")
        await world.settle()

        assert (await run.show())["status"]["stepStates"]["m"]["phase"] == "Canceled"
        children = await world.engine.search(RunFilter(parent=run.id))
        assert [child.status for child in children] == [Status.CANCELLED] * 3


@pytest.mark.parametrize("crash", [False, True])
def test_items_of_a_config_map_are_read_by_a_worker(crash: bool) -> None:
    """STY-220: nothing here reads files; a helper step does, and its result is what is mapped."""
    text = """
steps:
- name: m
  ref: {name: map-reduce-adapter}
  with: {items: {$bubuConfigMapRef: "app:items.json"}, map: {storyRef: {name: each}}}
output: {stats: "{{ steps.m.output.stats }}"}
"""
    asked = []

    def materialize(arguments: dict[str, Any]) -> Any:
        asked.append(arguments["inputs"]["vars"])
        return {"result": [[1, 2, 3]]}

    work: dict[str, Work] = {"engram:materialize@1.0.0": materialize}
    shown = World(story(text), others=OTHERS, work=work, crash=crash).run()

    assert shown["status"]["output"]["stats"]["succeeded"] == 3
    assert asked == [{"inputs": {"$bubuConfigMapRef": "app:items.json"}}]
    assert shown["stepRuns"]["materialize-map-items-m"]["status"]["phase"] == "Succeeded"
    assert list(shown["status"]["stepStates"]) == ["m"]


def test_a_config_map_that_cannot_be_read_fails_the_map() -> None:
    """STY-220"""
    text = """
steps:
- name: m
  ref: {name: map-reduce-adapter}
  with: {items: {$bubuConfigMapRef: 'a:b'}, map: {storyRef: {name: each}}}
"""
    work: dict[str, Work] = {
        "engram:materialize@1.0.0": lambda _: failure(message="config map 'a' has no readable key 'b'")
    }
    shown = World(story(text), others=OTHERS, work=work).run()

    assert shown["status"]["stepStates"]["m"]["message"] == "config map 'a' has no readable key 'b'"
