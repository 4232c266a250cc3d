"""A Story that is stopped waits for its awaited child runs before it cleans up and ends."""

from typing import Any

import pytest

from perdure.kernel import inputs as i
from perdure.kernel.execution import Limits
from tests.dialects.story.world import World, engram, story, template

SLOW_STEPS = "steps: [{name: works, ref: {name: slow}, with: {seconds: 3600, stubborn: true}}]"
SLOW = story(SLOW_STEPS, "child")
OTHERS = [SLOW, engram("map-reduce-adapter"), template("map-reduce-adapter")]
WAITS = {
    "executeStory": "{name: below, type: executeStory, with: {storyRef: {name: child}}}",
    "map": "{name: below, ref: {name: map-reduce-adapter}, with: {items: [1, 2], map: {storyRef: {name: child}}}}",
}
SETTINGS = {"engram.default-graceful-shutdown-timeout-seconds": 5}
WAYS = {
    "cancel": "",
    "timeout": "policy: {timeouts: {story: 60s}}",
    "stop": "",
}


def spec(waits: str, way: str) -> str:
    stop = "- {name: halt, type: sleep, with: {duration: 60s}}\n- {name: stop, type: stop, needs: [halt]}\n"
    return f"""
{WAYS[way]}
steps:
- {WAITS[waits]}
{stop if way == "stop" else ""}
finally: [{{name: tidy, ref: {{name: echo}}}}]
"""


def stopped(waits: str, way: str, **ways: Any) -> World:
    """A world in which the Story has just been told to stop, after a minute, and its children take 5 s to obey."""
    world = World(spec(waits, way), others=OTHERS, settings=SETTINGS, **ways)
    world.pass_time(60)
    if way == "cancel":
        world.tell(i.Cancel("enough"))
        world.pass_time(0)
    return world


@pytest.mark.parametrize("ways", [{}, {"crash": True, "limits": Limits(slice=1)}], ids=["live", "folded"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("waits", WAITS)
def test_cleaning_up_begins_when_the_children_have_ended(waits: str, way: str, ways: dict[str, Any]) -> None:
    """STY-057 STY-135 STY-186: strictly sequential; the children's own grace bounds it."""
    world = stopped(waits, way, **ways)
    assert world.phases["below"] == "Running" and "tidy" not in world.phases
    shown = world.run()["status"]

    below, tidy = shown["stepStates"]["below"], shown["stepStates"]["tidy"]
    children = [life for run, life in world.lives.items() if run != world.life.id]
    assert below["phase"] == "Canceled" and tidy["phase"] == "Succeeded"
    assert tidy["startedAt"] >= below["finishedAt"]
    assert children and all(life.is_over for life in children)
    ends = [life.execution.state.ended_at or 0 for life in [*children, world.life]]
    assert max(ends) == ends[-1]


@pytest.mark.parametrize("waits", WAITS)
def test_a_child_that_can_never_end_is_waited_for_one_grace(waits: str) -> None:
    """It is stuck, or nobody drives it: the parent gives it up, and nothing hangs."""
    world = World(spec(waits, "cancel"), others=OTHERS, settings=SETTINGS)
    world.pass_time(60)
    world.stranded = {run for run in world.lives if run != world.life.id}
    world.tell(i.Cancel("enough"))
    world.pass_time(4)
    assert world.phases["below"] == "Running"
    world.pass_time(1)

    assert world.phases == {"below": "Canceled", "tidy": "Succeeded"}
    assert world.status["phase"] == "Finished"


def test_a_child_that_takes_its_time_is_not_given_up() -> None:
    """The parent sets no second grace: a child may have a longer one."""
    patient = story(f"policy: {{timeouts: {{gracefulShutdownTimeout: 40s}}}}\n{SLOW_STEPS}", "child")
    world = World(spec("executeStory", "cancel"), others=[patient], settings=SETTINGS)
    world.pass_time(60)
    world.tell(i.Cancel("enough"))
    world.pass_time(39)
    assert world.phases["below"] == "Running"
    world.pass_time(1)

    assert world.phases == {"below": "Canceled", "tidy": "Succeeded"}


def test_a_child_that_succeeds_although_it_was_asked_to_stop_has_succeeded() -> None:
    """A result that was there before everything else was stopped stands."""
    quick = story("steps: [{name: works, type: sleep, with: {duration: 60s}}]\noutput: {n: 1}", "child")
    world = World(spec("executeStory", "timeout"), others=[quick], settings=SETTINGS)
    world.pass_time(60)

    assert world.phases["below"] == "Succeeded"


def test_a_map_whose_time_is_up_ends_with_its_children() -> None:
    """STY-133: as Timeout, and nothing more is started."""
    step = WAITS["map"].replace("{name: below,", "{name: below, execution: {timeout: 30s},")
    world = World(f"steps:\n- {step}", others=OTHERS, settings=SETTINGS)
    world.pass_time(34)
    assert world.phases == {"below": "Running"}
    world.pass_time(1)

    assert world.phases == {"below": "Timeout"}
