"""Random documents of each language, played on the kernel: what happens was foreseen (ANA-004, ANA-008)."""

from random import Random

import pytest

from perdure.dialects.flow import middleware
from perdure.dialects.flow.steps import ACTIONS
from perdure.dialects.story.steps import TYPES
from perdure.kernel.graphs.net import Certainty, Defect, DefectKind
from tests.analysis.plays import Play, contradictions, contradictions_of
from tests.analysis.random_documents import FlowAuthor, playbook, story


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(80))
@pytest.mark.parametrize("language", ["playbook", "story", "flow"])
def test_what_a_document_does_was_foreseen(language: str, seed: int) -> None:
    """Every end and deadlock was found, and what is called *will* happens in every play (ANA-004)."""
    assert contradictions_of(language, seed) == []


def test_every_kind_of_step_is_played() -> None:
    """A kind that is added to a language is added to its random documents (ANA-001)."""
    flows = "".join(str(FlowAuthor(Random(seed)).document()) for seed in range(80))
    stories = "".join(str(story(Random(seed))) for seed in range(80))
    playbooks = b"".join(playbook(Random(seed)) for seed in range(80)).decode()

    for action in ACTIONS:
        assert f"'action': '{action}'" in flows
    for uri in middleware.KNOWN:
        assert uri in flows
    for kind in TYPES:
        assert f"'type': '{kind}'" in stories
    for part in ("map-reduce-adapter", "compensations", "finally", "'onTimeout'", "'requires'", "'postExecution'"):
        assert part in stories
    for part in (
        "join",
        "admit",
        "loop",
        "fanout",
        "timeout",
        "deadline_s",
        "final_step",
        "retry",
        "jump",
        "on_stranded",
    ):
        assert f'"{part}"' in playbooks


@pytest.mark.parametrize(
    ("kind", "play"),
    [
        (DefectKind.DEADLOCK, Play(True)),
        (DefectKind.ENDLESS_LOOP, Play(True)),
        (DefectKind.STRANDED, Play(True)),
        (DefectKind.NO_MATCH, Play(True)),
        (DefectKind.DEAD_STEP, Play(True, {(DefectKind.DEAD_STEP, "s")})),
        (DefectKind.DEAD_STEP, Play(False, waiting={"other"})),
        (DefectKind.DEAD_STEP, Play(True, is_endless=True)),
        (DefectKind.DEAD_STEP, Play(True, stranded={"other"})),
    ],
)
def test_a_wrong_finding_would_be_noticed(kind: DefectKind, play: Play) -> None:
    """ANA-008: of the comparison itself."""
    assert list(contradictions([Defect(kind, Certainty.WILL, "s", (), "m", "h")], play))
