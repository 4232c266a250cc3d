"""`Retry-After` of an answer delays the retry: in Playbooks without a written delay, in Stories up to `maxDelay`."""

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.testing import World

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
workflow:
  - step: a
    tool:
      kind: http
      url: http://localhost/
      spec:
        policy:
          rules:
            - {when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 2%s}}
            - else: {then: {do: continue}}
"""
STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec:
  steps:
    - {name: a, ref: {name: limited-by-retry-after}, execution: {retry: {maxRetries: 1, delay: 1s, maxDelay: %s}}}
"""


@perdure.engram("limited-by-retry-after")
def limited(inputs: dict[str, Any]) -> dict[str, Any]:
    raise perdure.EngramError("too many", exit_class="rateLimited", details={"retry_after": 30})


def _refuse(**request: Any) -> None:
    details = {"status": 429, "headers": {}, "retry_after": 30.0}
    raise perdure.ProviderFailure("Provider.Call.Http.Status429", "too many", retryable=True, details=details)


async def _wait(folder: Path, document: str) -> str:
    async with World(folder, mocks={"http": _refuse}) as world:
        return "; ".join(await (await world.start(document.encode())).awaited())


@pytest.mark.parametrize(("written", "seconds"), [("", 30), (", delay: 2", 2), (", backoff: linear", 30)])
async def test_a_retry_of_a_playbook_waits_as_long_as_the_server_asks(
    tmp_path: Path, written: str, seconds: int
) -> None:
    assert f"a timer that is due in {seconds} s" in await _wait(tmp_path, PLAYBOOK % written)


@pytest.mark.parametrize(("most", "seconds"), [("1m", 30), ("10s", 10)])
async def test_a_retry_of_a_story_waits_as_long_as_the_server_asks_up_to_its_cap(
    tmp_path: Path, most: str, seconds: int
) -> None:
    assert f"a timer that is due in {seconds} s" in await _wait(tmp_path, STORY % most)
