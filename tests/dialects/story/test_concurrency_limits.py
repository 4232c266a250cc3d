"""Why a step is queued (section 3.4), over several runs."""

from typing import Any

from perdure.dialects.story.state import events as s
from perdure.kernel import events as e
from tests.dialects.story.world import World, story


def messages(world: World, name: str) -> dict[str, Any]:
    (life,) = [candidate for candidate in world.lives.values() if candidate.execution.program.name == name]
    return {step: state["message"] for step, state in life.show()["status"]["stepStates"].items()}


def test_a_queued_step_says_how_many_run_and_how_many_may() -> None:
    """STY-071 STY-073."""
    world = World(
        """
policy: {concurrency: 2}
steps:
- {name: a, ref: {name: slow}, with: {seconds: 5}}
- {name: b, ref: {name: slow}, with: {seconds: 5}}
- {name: c, ref: {name: slow}, with: {seconds: 5}}
"""
    )
    world.pass_time(1)

    assert messages(world, "test") == {
        "a": "Scheduled",
        "b": "Scheduled",
        "c": "Queued due to story concurrency limit (2 running, limit 2)",
    }
    queued = [event.message for event in world.life.events if isinstance(event, s.StepQueued)]
    assert [text.partition("(")[2] for text in queued] == [
        "0 running, limit 2)",
        "1 running, limit 2)",
        "2 running, limit 2)",
    ]


def test_who_stands_behind_more_important_work_is_told_so() -> None:
    """STY-073 STY-074 STY-075."""
    child = (
        "policy: {{queue: q, priority: {priority}}}\nsteps: [{{name: s, ref: {{name: slow}}, with: {{seconds: 9}}}}]"
    )
    world = World(
        """
steps:
- {name: first, type: executeStory, with: {storyRef: {name: low}}}
- {name: nap, type: sleep, with: {duration: 1s}}
- {name: second, type: executeStory, needs: [nap], with: {storyRef: {name: high}}}
- {name: rest, type: sleep, needs: [nap], with: {duration: 1s}}
- {name: third, type: executeStory, needs: [rest], with: {storyRef: {name: middle}}}
""",
        others=[
            story(child.format(priority=1), "low"),
            story(child.format(priority=9), "high"),
            story(child.format(priority=5), "middle"),
        ],
        settings={"storyrun.queue.q.concurrency": 1},
    )
    world.pass_time(3)

    assert messages(world, "low") == {"s": "Scheduled"}
    assert messages(world, "high") == {"s": "Queued due to queue concurrency limit (1 running, limit 1)"}
    assert messages(world, "middle") == {"s": "Queued due to higher-priority work"}


def test_priorities_say_nothing_while_there_are_places() -> None:
    """STY-075."""
    child = (
        "policy: {{queue: q, priority: {priority}}}\nsteps: [{{name: s, ref: {{name: slow}}, with: {{seconds: 9}}}}]"
    )
    world = World(
        """
steps:
- {name: first, type: executeStory, with: {storyRef: {name: high}}}
- {name: nap, type: sleep, with: {duration: 1s}}
- {name: second, type: executeStory, needs: [nap], with: {storyRef: {name: low}}}
""",
        others=[story(child.format(priority=9), "high"), story(child.format(priority=1), "low")],
        settings={"storyrun.queue.q.concurrency": 2},
    )
    world.pass_time(3)

    assert messages(world, "high") == messages(world, "low") == {"s": "Scheduled"}
    assert not [event for life in world.lives.values() for event in life.events if isinstance(event, e.PermitReleased)]
