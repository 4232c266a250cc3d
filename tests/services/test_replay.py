"""What recorded runs would have done with another document (ANA-031): nothing is called."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.cli.commandline import CommandLine
from tests.cli.test_diff import DOCUMENTS

FLOW = """
{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "ask", "steps": {
  "ask": {"action": "Call", "next": "%(next)s",
          "call": {"provider": "mwl:provider.call/perdure/replay-count/v1", "with": {"n": 1}}},
  "again": {"action": "Call", "next": "done",
            "call": {"provider": "mwl:provider.call/perdure/replay-count/v1", "with": {"n": 2}}},
  "done": {"action": "Return", "value": "{{ step.input }}"}}}
"""
WAITS = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: waits}
spec:
  steps:
  - {name: first, type: condition}
  - {name: ok, type: gate, needs: [first]}
  - {name: last, type: condition, needs: [%(needs)s]}
"""
calls: list[int] = []


@perdure.provider("replay-count")
def count(n: int) -> Any:
    calls.append(n)
    return {"n": n, "text": "x" * 100_000}


def _perform(document: str, input: Any, folder: Path, *, approve: bool = False, wait: bool = True) -> tuple[str, str]:
    (folder / "old.doc").write_text(document)
    url = f"sqlite:///{folder}/runs.db"

    async def perform() -> str:
        async with perdure.Engine(url) as engine:
            handle = await engine.start(folder / "old.doc", input)
            if approve:
                await handle.approve("ok", "yes")
            if wait:
                await handle.result()
            return handle.id

    return asyncio.run(perform()), url


def _replay(folder: Path, document: str, run: str, url: str) -> dict[str, Any]:
    (folder / "new.doc").write_text(document)
    done = CommandLine(folder).here("replay", "--with", "new.doc", run, "--db", url, "--json", code=None)
    (verdict,) = done.json["runs"]
    assert done.code == (0 if verdict["verdict"] == "same" else 7)
    return dict(verdict)


@pytest.mark.parametrize("language", DOCUMENTS)
def test_the_same_document_does_the_same_and_another_decides_otherwise(language: str, tmp_path: Path) -> None:
    document = DOCUMENTS[language]
    run, url = _perform(document, {"n": 3}, tmp_path)
    assert _replay(tmp_path, document, run, url)["verdict"] == "same"
    verdict = _replay(tmp_path, document.replace("5", "2"), run, url)
    assert (verdict["verdict"], verdict["needs"]) == ("diverges", [])
    assert verdict["first_decision"]["left"] != verdict["first_decision"]["right"]
    assert "old" in CommandLine(tmp_path).here("replay", "--with", "new.doc", run, "--db", url, code=7).out


def test_recorded_results_answer_and_nothing_is_called(tmp_path: Path) -> None:
    """A large one too. A call that was never made needs a result that nobody has."""
    calls.clear()
    run, url = _perform(FLOW % {"next": "done"}, {}, tmp_path)
    assert _replay(tmp_path, FLOW % {"next": "done"}, run, url)["verdict"] == "same"
    verdict = _replay(tmp_path, FLOW % {"next": "again"}, run, url)
    assert verdict["verdict"] == "needs output" and "again" in verdict["needs"][0]
    assert verdict["first_decision"]["left"]["next"] == "done"
    assert calls == [1]


def test_control_messages_come_as_they_came(tmp_path: Path) -> None:
    run, url = _perform(WAITS % {"needs": "ok"}, {}, tmp_path, approve=True)
    assert _replay(tmp_path, WAITS % {"needs": "ok"}, run, url)["verdict"] == "same"


def test_of_an_open_run_only_what_has_happened_counts(tmp_path: Path) -> None:
    run, url = _perform(WAITS % {"needs": "ok"}, {}, tmp_path, wait=False)
    assert _replay(tmp_path, WAITS % {"needs": "ok"}, run, url)["verdict"] == "same"
    assert _replay(tmp_path, FLOW % {"next": "done"}, run, url)["verdict"] == "not replayed"
