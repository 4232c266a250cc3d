"""A hostile run harms no other run: what is said of a failure stands in the history, and has a limit."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.kernel.json_values import large_values
from perdure.kernel.outcomes import LONGEST_MESSAGE, MOST_DETAILS
from perdure.providers.failure import ProviderFailure
from perdure.providers.registry import Provider, shared

LONG = 3 * MOST_DETAILS
FLOW = """
{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "ask", "steps": {
  "ask": {"action": "Call", "call": {"provider": "mwl:provider.call/perdure/complain/v1"}, "next": "done"},
  "done": {"action": "Return"}}}
"""
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: complains, path: complains}
workflow: [{step: start, tool: {kind: complain}}]
"""


def complain() -> None:
    raise ProviderFailure("Provider.Call.Complain.Long", "x" * LONG, False, {"text": "y" * LONG})


@pytest.fixture(autouse=True)
def complaining() -> Iterator[None]:
    give_back = shared.lend(Provider.of("complain", complain))
    yield
    give_back()


@pytest.mark.parametrize("document", [FLOW, PLAYBOOK])
async def test_the_message_and_the_details_of_a_failure_are_bounded(document: str, tmp_path: Path) -> None:
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(document.encode(), None)
        with pytest.raises(perdure.RunFailed) as failure:
            await handle.result()
        history = await engine.history(handle.id, raw=True)
    assert len(str(failure.value)) < 2 * LONGEST_MESSAGE
    (ended,) = [event for event in history if event["event"] == "TaskEnded"]
    assert len(str(ended)) < 2 * LONGEST_MESSAGE and "more characters" in str(ended)


async def test_a_run_that_cannot_accept_a_failure_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was stuck: the call whose result it had just refused was asked to stop."""
    monkeypatch.setattr(large_values, "LARGEST_VALUE", LONGEST_MESSAGE // 2)
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(FLOW.encode(), None)
        with pytest.raises(perdure.RunFailed):
            await asyncio.wait_for(handle.result(), 30)
