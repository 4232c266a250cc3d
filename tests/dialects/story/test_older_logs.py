"""A log written when a StepRun and its attempt were two events, and a bound was dropped by an event of its own.

The rows in `older_log.json` were recorded by that program: a step that was retried once has ended, another is at work.
"""

import base64
import json
from pathlib import Path

from perdure.dialects.story.state import events as s
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns
from perdure.kernel.outcomes import Succeeded
from tests.dialects.story.test_runs import told
from tests.dialects.story.world import World

SPEC = """
steps:
- {name: a, ref: {name: flaky}, with: {times: 1}}
- {name: b, ref: {name: slow}, needs: [a], with: {seconds: 60, output: {done: "{{ steps.a.output.calls }}"}}}
output: {done: "{{ steps.b.output.done }}"}
"""


def older() -> World:
    """The run as it is after its recorded life; nothing else has happened in its world."""
    world = World(SPEC)
    world.queue.clear()
    written = json.loads((Path(__file__).parent / "older_log.json").read_text())
    world.life.rows = [base64.b64decode(row) for row in written]
    for row in world.life.rows:
        world.life.execution.fold(decode_turns(world.life.dialect, row))
    return world


def newer() -> World:
    world = World(SPEC)
    world.pass_time(30)
    return world


def test_an_older_log_folds_to_what_would_be_recorded_today() -> None:
    """Invariant 24. Only numbers of tasks differ: timers were numbered before them."""
    shown, current = older().show(), newer().show()
    for view in (shown, current):
        for step_run in view["stepRuns"].values():
            step_run["metadata"]["annotations"].clear()

    assert shown == current


def test_a_run_of_an_older_log_ends_as_any_other_and_leaves_no_timer() -> None:
    """Invariant 24."""
    world = older()
    state = world.life.execution.state
    ((task, _),) = state.tasks.items()
    assert len(state.timers) == 1

    world.take(world.life, i.TaskResult(task, 1, 1, Succeeded(b'{"done": 2}')), world.now)

    assert world.life.is_over and world.status["output"] == {"done": 2}
    assert any(isinstance(event, e.TimerDropped) for event in world.life.events)


def test_the_history_is_told_as_it_was() -> None:
    """STY-264."""
    first, second = (
        [(event["event_type"], event.get("step"), event["payload"].get("phase")) for event in told(world)]
        for world in (older(), newer())
    )

    assert first == second


def test_a_step_that_ends_well_is_five_events() -> None:
    world = World("steps: [{name: a, ref: {name: echo}, with: {x: 1}}]")
    world.run()

    of_step = world.life.events[2:-2]
    assert [type(event) for event in of_step] == [
        s.StepLaunched,
        e.TaskScheduled,
        e.TimerSet,
        e.TaskEnded,
        s.StepEnded,
    ]
    assert not world.life.execution.state.timers
