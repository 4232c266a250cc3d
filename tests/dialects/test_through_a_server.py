"""Every scenario of the three languages through the client of a real server, many at once (SRV-051).

The same expectations as on the embedded engine (`test_stores.py`). A share of them runs at each commit, all of them in
`make deep`. `LEFT_OUT` has those that no client can bring about, each with the reason.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.kernel.json_values import jsontext
from tests.dialects.flow.suite import all_scenarios
from tests.dialects.playbook import cases as playbooks
from tests.dialects.scenario_client import FlowPart, Part, PlaybookPart, StoryPart, play_all, scenario_server
from tests.dialects.story import cases as stories
from tests.sampling import Sample

REFUSED = "the start is refused, because the document is not valid; it shows what a run of such a document would do"
LOST = "the process that is at work on a task is lost: nobody asks for that (tests/journeys kill real servers)"
SHIPPED = "it waits for an EngramTemplate that comes with Perdure: every server has it"
LEFT_OUT = {
    "graph-cycle": REFUSED,
    "graph-unknown-dependency": REFUSED,
    "wait-denied-function": REFUSED,
    "limits-queue-and-global": REFUSED,
    "child-version-pin": REFUSED,
    "lost-execution-starts-again": LOST,
    "lost-executions-capped": LOST,
    "blocked-until-it-appears": SHIPPED,
    "timeout-of-a-blocked-branch": SHIPPED,
    "gate-last-word-counts": "a gate is opened again; a request says Approved or Rejected (SRV-082)",
    "retry-waits-visibly": "the wait for a retry is ended by hand; there is no request for that",
}
SETTINGS = [story for story in stories.all_cases() if story.told.get("settings") and story.name not in LEFT_OUT]


async def assert_as_expected(parts: Sequence[Part], folder: Path, **env: str) -> None:
    async with scenario_server(folder, **env) as server:
        outcomes = await play_all(server, parts)
    assert {name: differences for name, differences in outcomes.items() if differences} == {}
    assert len(outcomes) == len(parts)


@pytest.mark.sampled(2)
async def test_flows_end_as_on_the_embedded_engine(tmp_path: Path, sample: Sample) -> None:
    await assert_as_expected([FlowPart(scenario) for scenario in sample.take(all_scenarios())], tmp_path)


@pytest.mark.sampled(2)
async def test_playbooks_end_as_on_the_embedded_engine(tmp_path: Path, sample: Sample) -> None:
    await assert_as_expected([PlaybookPart(case) for case in sample.take(playbooks.all_cases())], tmp_path)


@pytest.mark.sampled(2)
async def test_stories_end_as_on_the_embedded_engine(tmp_path: Path, sample: Sample) -> None:
    usual = [case for case in stories.all_cases() if not case.told.get("settings") and case.name not in LEFT_OUT]
    await assert_as_expected([StoryPart(case) for case in sample.take(usual)], tmp_path)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("case", SETTINGS, ids=lambda case: case.name)
async def test_a_story_ends_as_expected_on_a_server_with_other_settings(case: stories.Case, tmp_path: Path) -> None:
    settings = jsontext.encode(case.told["settings"]).decode()
    await assert_as_expected(
        [StoryPart(case, from_catalog=any("apply" in action for action in case.told.get("steer", [])))],
        tmp_path,
        PERDURE_STORY_SETTINGS=settings,
    )


def test_what_is_left_out_is_there() -> None:
    assert LEFT_OUT.keys() <= {case.name for case in stories.all_cases()}
