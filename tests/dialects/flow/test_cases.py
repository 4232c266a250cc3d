"""Every conformance case, public and own: purely with a crash at every commit, and through the real engine."""

from collections import Counter
from pathlib import Path

import pytest

from perdure.dialects.flow.views.result_comparison import differences
from perdure.kernel.execution import Limits
from perdure.services.flow.conformance import Scenario, run_suite
from tests.dialects.flow.suite import OWN, PUBLIC, all_scenarios, needs_public_suite
from tests.dialects.flow.world import World

by_name = pytest.mark.parametrize("scenario", all_scenarios(), ids=lambda scenario: scenario.name)


def _world(scenario: Scenario, *, cancel_after: int | None = None, moves_per_commit: int = 1_000) -> World:
    return World(
        scenario.definition,
        scenario.input,
        scenario.arguments,
        crash=True,
        cancel_after=cancel_after,
        limits=Limits(slice=moves_per_commit),
    )


@by_name
def test_a_case_gives_its_result_with_a_crash_after_every_commit(scenario: Scenario) -> None:
    """MWL-700 MWL-705 MWL-706 MWL-707: after each commit the run goes on from a fold of its log."""
    actual = _world(scenario).run()

    assert list(differences(scenario.expected, actual)) == []


@by_name
def test_a_case_gives_its_result_with_a_crash_after_every_single_move(scenario: Scenario) -> None:
    world = _world(scenario, moves_per_commit=1)

    actual = world.run()

    assert list(differences(scenario.expected, actual)) == []
    assert_nothing_is_left(world)


@pytest.mark.sampled(4)
@by_name
def test_a_case_can_be_cancelled_after_any_move_and_leaves_nothing_behind(scenario: Scenario) -> None:
    """MWL-551 MWL-552 MWL-557 MWL-558: every established entry sees onAlways once; all targets are stopped."""
    whole = _world(scenario, moves_per_commit=1)
    whole.run()
    for commits in range(1, len(whole.rows), max(1, len(whole.rows) // 8)):
        world = _world(scenario, cancel_after=commits, moves_per_commit=1)

        result = world.run()

        assert result["type"] != "success"
        assert_nothing_is_left(world)


def assert_nothing_is_left(world: World) -> None:
    count = Counter(type(event).__name__ for event in world.events)
    body = world.execution.body
    assert count["EntryOpened"] == count["EntryLeft"]
    assert count["FrameOpened"] == count["FrameClosed"]
    assert count["TimerSet"] == count["TimerFired"] + count["TimerDropped"]
    assert count["TaskScheduled"] == count["TaskEnded"]
    assert not body.frames and not body.agenda and not body.waits and not body.bounds


async def test_our_own_cases_pass_through_the_real_engine(tmp_path: Path) -> None:
    from perdure.services.flow.conformance import read_suite

    verdicts = await run_suite(read_suite([OWN]).scenarios, tmp_path / "runs.db", virtual_time=True)

    assert {item.scenario.name: item.differences for item in verdicts if item.differences} == {}


@needs_public_suite
async def test_the_public_suite_passes_through_the_real_engine(tmp_path: Path) -> None:
    from perdure.services.flow.conformance import read_suite

    verdicts = await run_suite(read_suite([PUBLIC]).scenarios, tmp_path / "runs.db", virtual_time=True)

    assert {item.scenario.name: item.differences for item in verdicts if item.differences} == {}
    assert len(verdicts) == 77
