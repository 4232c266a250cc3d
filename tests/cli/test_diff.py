"""`perdure diff`: runs of each language beside each other, and one run at two moments (ANA-030)."""

import asyncio
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine

import perdure

FLOW = """
{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "route", "steps": {
  "route": {"action": "Match", "cases": [{"when": "{{ step.input.n > 5 }}", "next": "large"}],
            "default": {"next": "small"}},
  "large": {"action": "Return", "value": "L"}, "small": {"action": "Return", "value": "S"}}}
"""
STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: sizes}
spec:
  steps:
  - {name: large, type: condition, if: "{{ gt .inputs.n 5 }}"}
  - {name: small, type: condition, if: "{{ le .inputs.n 5 }}"}
"""
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: sizes, path: sizes}
workload: {n: 0}
workflow:
  - step: route
    tool: {kind: noop}
    next: {arcs: [{step: large, when: "{{ workload.n > 5 }}"}, {step: small}]}
  - {step: large, tool: {kind: noop}}
  - {step: small, tool: {kind: noop}}
"""
DOCUMENTS = {"flow": FLOW, "story": STORY, "playbook": PLAYBOOK}


@pytest.mark.parametrize("language", DOCUMENTS)
def test_where_two_runs_part(language: str, tmp_path: Path) -> None:
    document = tmp_path / "sizes.doc"
    document.write_text(DOCUMENTS[language])
    url = f"sqlite:///{tmp_path}/runs.db"

    async def run_three() -> list[str]:
        async with perdure.Engine(url) as engine:
            handles = [await engine.start(document, {"n": n}) for n in (3, 3, 9)]
            for handle in handles:
                await handle.result()
            return [handle.id for handle in handles]

    first, same, other = asyncio.run(run_three())
    line = CommandLine(tmp_path)
    facts = line.here("diff", first, same, "--db", url, "--json").json
    assert (facts["is_same"], facts["same_document"], facts["first_decision"]) == (True, True, None)

    facts = line.here("diff", first, other, "--db", url, "--json").json
    assert (facts["is_same"], facts["left"]["id"], facts["right"]["id"]) == (False, first, other)
    assert any((item.get("left"), item.get("right")) == (3, 9) for item in facts["first_difference"]["differences"])
    assert facts["first_decision"]["left"]["seq"] > facts["first_difference"]["left"]["seq"]

    assert "first other decision at " in line.here("diff", first, other, "--db", url).out
    assert "from event 1 to now" in line.here("diff", first, "--at", "1", "--db", url).out
    line.here("diff", first, other, "--at", "1", "--db", url, code=2)

    replay = ("replay", "--with", str(document), "--db", url, "--json")  # ANA-031: RUN…, or a filter
    replayed = line.here(*replay, "--filter", "status=succeeded").json["runs"]
    assert {run["run"] for run in replayed} == {first, same, other}
    assert {run["verdict"] for run in replayed} == {"same"}
    assert line.here(*replay, "--filter", "name=nobody").json["runs"] == []
    for wrong in ("nam=x", "status=good", "label=x", "name"):
        line.here(*replay, "--filter", wrong, code=2)
