"""Every scenario of the three languages through the real engine: on every store, in turns.

Its engine dies at every commit, just before it is on disk and just after, and leaves in order at every commit; and at
every commit the run is paused, and goes on after its engine has died: within
20 commits at each of them on each store, a share of them at a time (see `tests/sampling.py`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from perdure.dialects.flow import Flow
from perdure.dialects.flow.views.result_comparison import differences as flow_differences
from perdure.services.flow.conformance import Scenario
from tests.dialects.differences import differences
from tests.dialects.flow.suite import all_scenarios
from tests.dialects.playbook import cases as playbooks
from tests.dialects.played import NEVER, Stage
from tests.dialects.story import cases as stories
from tests.sampling import Sample
from tests.storing import open_file, worlds_on

pytestmark = pytest.mark.every_store(sqlite=2, postgres15=10, postgres18=5)


class Case(Protocol):
    @property
    def name(self) -> str: ...


Play = Callable[..., Awaitable[Stage]]


async def play_flow(scenario: Scenario, folder: Path, **options: Any) -> Stage:
    stage = Stage(folder, {"flow": Flow(lambda name: None, tuple)}, {}, **options)
    await stage.world.boot()
    start_options = {} if scenario.arguments is None else {"args": scenario.arguments}
    await stage.begin("flow", scenario.definition, scenario.input, start_options)
    await stage.settle()
    return stage


@pytest.mark.parametrize("case", all_scenarios(), ids=lambda case: case.name)
async def test_a_flow_ends_as_expected(case: Scenario, tmp_path: Path, sample: Sample) -> None:
    async for shown, when in _plays(play_flow, case, tmp_path, sample):
        assert list(flow_differences(case.expected, shown)) == [], when


@pytest.mark.parametrize("case", playbooks.all_cases(), ids=lambda case: case.name)
async def test_a_playbook_ends_as_expected(case: playbooks.Case, tmp_path: Path, sample: Sample) -> None:
    async for shown, when in _plays(playbooks.stage_play, case, tmp_path, sample):
        assert list(differences(case.expected, shown)) == [], when


@pytest.mark.parametrize("case", stories.all_cases(), ids=lambda case: case.name)
async def test_a_story_ends_as_expected(case: stories.Case, tmp_path: Path, sample: Sample) -> None:
    async for shown, when in _plays(stories.stage_play, case, tmp_path, sample, is_shown=case.tells_of_crashes):
        assert list(differences(case.expected, shown)) == [], when


async def _plays(
    play: Play, case: Case, folder: Path, sample: Sample, *, is_shown: bool = False
) -> AsyncIterator[tuple[Any, str]]:
    """What the scenario shows in the end, and what became of its engine; `is_shown`: then it does not die."""
    shown, commits = await _undisturbed(play, case, folder)
    yield shown, "undisturbed, on SQLite"
    every = range(1, commits + 1)
    moments = [(at, after) for at in every for after in (False, True)]
    for at, after in [(NEVER, False)] if is_shown else sample.take(moments):
        place = folder / f"{at}-{after}"
        place.mkdir()
        stage = await play(case, place, crash_at=at, after=after)
        shown = await stage.show()
        await stage.world.close()
        yield shown, f"died {'after' if after else 'before'} commit {at}" if stage.crashed else "undisturbed"
    for at in sample.take(every):
        place = folder / f"handed-over-{at}"
        place.mkdir()
        stage = await play(case, place, crash_at=at, leaves=True)
        shown = await stage.show()
        await stage.world.close()
        if stage.is_drained:
            assert {assignment.delivery for assignment in stage.outside.performed} <= {1} or is_shown, "begun twice"
            yield shown, f"handed over at commit {at}"
    for at in [] if is_shown else sample.take(every):
        place = folder / f"paused-{at}"
        place.mkdir()
        stage = await play(case, place, crash_at=at, pauses=True)
        shown = await stage.show()
        await stage.world.close()
        if stage.was_paused:
            yield shown, f"paused at commit {at}"


async def _undisturbed(play: Play, case: Case, folder: Path) -> tuple[Any, int]:
    """Also how many commits it takes; on SQLite, where that is quickly known."""
    with worlds_on(open_file):
        stage = await play(case, folder)
        shown = await stage.show()
        await stage.world.close()
        return shown, stage.commits
