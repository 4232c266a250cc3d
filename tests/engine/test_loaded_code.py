"""Code that comes while an engine lives: what waited for it goes on (STY-118)."""

from pathlib import Path

import pytest

from perdure import Engine, engram
from perdure.providers.registry import shared
from perdure.services.story.engrams.registry import shared_engrams

STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: late, namespace: default}
spec:
  output: {said: "{{ steps.a.output.hello }}"}
  steps: [{name: a, ref: {name: comes-late}}]
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(shared, "_providers", dict(shared._providers))
    monkeypatch.setattr(shared_engrams, "_templates", dict(shared_engrams._templates))


async def test_an_engram_that_is_registered_late_is_noticed(tmp_path: Path) -> None:
    async with Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        run = await engine.start(STORY.encode())
        assert (await run.show())["status"]["stepStates"]["a"]["phase"] == "Blocked"

        engram("comes-late")(lambda inputs, context: {"hello": "there"})

        assert await run.result() == {"said": "there"}
