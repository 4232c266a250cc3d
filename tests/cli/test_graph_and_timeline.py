"""`graph RUN` and `timeline RUN`: what a run made of its document, in all three languages."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commandline import CommandLine, in_terminal, strict_json

SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"

PROVIDERS = """
import perdure
from pathlib import Path


@perdure.provider("shaky")
def shaky(**given):
    tries = Path("tries")
    count = len(tries.read_text()) if tries.exists() else 0
    tries.write_text("x" * (count + 1))
    if count < 2:
        raise RuntimeError("not yet")
    return count
"""

FLOW = """
{
  "$schema": "https://mwl.dev/v0.1/flow/schema.json",
  "entrypoint": "look",
  "steps": {
    "look": {
      "action": "Match",
      "cases": [{"when": "{{ match.input > 10 }}", "next": "large"}],
      "default": {"next": "small"}
    },
    "large": {"action": "Raise", "result": {"code": "Too.Large", "message": "no"}},
    "small": {
      "action": "Call",
      "middleware": [{
        "provider": "mwl:provider.middleware/mwl/retry/v1",
        "onEntry": {"with": {"policies": [
          {"match": {"types": ["error"]}, "attempts": 5, "backoff": {"initial": "PT0.2S"}}
        ]}}
      }],
      "call": {"provider": "mwl:provider.call/perdure/shaky/v1"},
      "catch": [{"match": {"codes": ["No.Such"]}, "next": "large"}],
      "next": "each"
    },
    "each": {"action": "Gather", "over": [1, 2], "call": {"flow": "One"}, "next": "done"},
    "done": {"action": "Return"}
  },
  "flows": {"One": {"entrypoint": "inner", "steps": {"inner": {"action": "Return"}}}}
}
"""

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: gated}
spec:
  steps:
  - {name: first, ref: echo, with: {n: 1}}
  - name: both
    type: parallel
    needs: [first]
    with: {steps: [{name: left, ref: echo}, {name: right, ref: echo}]}
  - {name: ask, type: gate, needs: [both]}
  - {name: never, ref: echo, needs: [first], if: "{{ eq 1 2 }}"}
  - {name: last, ref: echo, needs: [ask]}
  finally:
  - {name: tidy, ref: echo}
"""

PLAYBOOK = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: many, path: tests/many}
workflow:
  - step: each
    loop: {in: [1, 2, 3], iterator: item, spec: {mode: parallel}}
    tool:
      - take: {kind: noop, result: "{{ iter.item }}"}
      - give: {kind: noop}
    next:
      arcs:
        - {step: good, when: "{{ event.name != 'step.failed' }}"}
        - {step: bad, when: "{{ event.name == 'step.failed' }}"}
  - step: good
    tool: {kind: noop}
  - step: bad
    tool: {kind: noop}
"""


@pytest.fixture(autouse=True)
def documents(perdure: CommandLine) -> None:
    (perdure.folder / "given.py").write_text(PROVIDERS)
    (perdure.folder / "flow.json").write_text(FLOW)
    (perdure.folder / "story.yaml").write_text(STORY)
    (perdure.folder / "many.yaml").write_text(PLAYBOOK)


def run_flow(perdure: CommandLine, text: str, code: int = 0) -> str:
    """In a process of its own, which loads the provider."""
    perdure("run", "flow.json", "--load", "given.py", "--input", text, code=code)
    (row,) = perdure.here("ps", "--json").json
    id: str = row["id"]
    return id


def statuses(graph: dict[str, Any]) -> dict[str, str | None]:
    return {node["label"]: node["status"] for node in graph["nodes"]}


def taken(graph: dict[str, Any]) -> set[tuple[str, str]]:
    labels = {node["id"]: node["label"] for node in graph["nodes"]}
    return {(labels[edge["from"]], labels[edge["to"]]) for edge in graph["edges"] if edge["taken"]}


def test_a_flow_shows_its_way_its_retries_and_its_elements(perdure: CommandLine) -> None:
    run = run_flow(perdure, "3")
    graph = perdure.here("graph", run, "--json").json

    assert statuses(graph) == {
        "start": "done",
        "look": "done",
        "small": "done",
        "each": "done",
        "inner": "done",
        "done": "done",
        "large": None,
    }
    nodes = {node["label"]: node for node in graph["nodes"]}
    assert nodes["small"]["attempts"] == 3
    assert nodes["inner"]["runs"] == 2
    assert nodes["inner"]["parent"] == nodes["each"]["id"]
    assert nodes["look"]["started_at"] <= nodes["look"]["ended_at"] <= nodes["done"]["ended_at"]
    assert taken(graph) == {
        ("start", "look"),
        ("look", "small"),
        ("small", "small"),  # its retries
        ("small", "each"),
        ("each", "done"),
        ("start", "inner"),
    }


def test_a_flow_that_failed_shows_where(perdure: CommandLine) -> None:
    run = run_flow(perdure, "30", code=3)
    graph = perdure.here("graph", run, "--json").json

    assert statuses(graph)["large"] == "failed"
    assert ("look", "large") in taken(graph) and ("look", "small") not in taken(graph)
    outline = perdure.here("graph", run, "--text").out
    assert "[failed" in outline and "[]" not in outline
    assert "classDef failed" in perdure.here("graph", run).out
    assert "failed" in perdure.here("graph", run, "--dot").out


def test_a_step_that_a_redrive_repeats_has_run_twice(perdure: CommandLine) -> None:
    shell = {"provider": "mwl:provider.call/perdure/shell/v1", "with": {"argv": ["test", "-f", "here"]}}
    steps = {"look": {"action": "Call", "call": shell, "next": "done"}, "done": {"action": "Return"}}
    (perdure.folder / "again.json").write_text(json.dumps({"$schema": SCHEMA, "entrypoint": "look", "steps": steps}))
    perdure.here("run", "again.json", code=3)
    run = perdure.here("ps", "--json").json[0]["id"]
    (perdure.folder / "here").touch()
    perdure.here("redrive", run)
    perdure.here("resume", run)
    graph = perdure.here("graph", run, "--json").json

    nodes = {node["label"]: node for node in graph["nodes"]}
    assert (nodes["look"]["status"], nodes["look"]["runs"], nodes["done"]["status"]) == ("done", 2, "done")


def test_a_story_shows_what_waits_and_what_was_skipped_then_all_that_ran(perdure: CommandLine) -> None:
    run = perdure.here("run", "story.yaml", "--detach").out.strip()
    perdure.here("resume", run, code=None)
    graph = perdure.here("graph", run, "--json").json

    assert statuses(graph) == {
        "steps": "waiting",
        "first": "done",
        "both": "done",
        "left": "done",
        "right": "done",
        "ask": "waiting",
        "never": "skipped",
        "last": None,
        "finally": None,
        "tidy": None,
    }
    assert ("both", "ask") in taken(graph) and ("ask", "last") not in taken(graph)
    shown = perdure("timeline", run).out
    assert re.search(r"^ask +waiting .*░+▶$", shown, re.MULTILINE), shown
    perdure.here("approve", run, "ask")
    perdure.here("resume", run)
    ended = perdure.here("graph", run, "--json").json
    assert statuses(ended)["last"] == statuses(ended)["tidy"] == "done"
    assert ("steps", "finally") in taken(ended)
    before = perdure.here("graph", run, "--at", "2", "--json").json
    assert statuses(before)["last"] is None


def test_a_playbook_shows_its_iterations_and_the_arc_that_fired(perdure: CommandLine) -> None:
    run = perdure.here("run", "many.yaml", "--json").json["execution_id"]
    graph = perdure.here("graph", run, "--json").json

    nodes = {node["label"]: node for node in graph["nodes"]}
    assert (nodes["take"]["runs"], nodes["give"]["runs"], nodes["take"]["parent"]) == (3, 3, "each")
    assert statuses(graph) == {"each": "done", "take": "done", "give": "done", "good": "done", "bad": None}
    assert taken(graph) == {("take", "give"), ("each", "good")}
    svg = ET.fromstring(perdure.here("graph", run, "--svg").out)
    texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text and text.startswith("done · 3 runs") for text in texts)


def test_every_visit_is_in_the_json_of_a_timeline_and_many_share_a_row(perdure: CommandLine) -> None:
    text = PLAYBOOK.replace("[1, 2, 3]", str(list(range(40))))
    (perdure.folder / "many.yaml").write_text(text)
    run = perdure.here("run", "many.yaml", "--json").json["execution_id"]
    facts = perdure("timeline", run, "--json").json

    assert (facts["run"], facts["status"], facts["language"]) == (run, "succeeded", "playbook")
    assert len(facts["steps"]) == 1 + 80 + 1
    take = next(step for step in facts["steps"] if step["node"] == "each/take")
    assert (take["title"], take["depth"], take["attempts"]) == ("take[0]", 1, 1)
    assert [stretch["kind"] for stretch in take["stretches"]] == ["attempt"]
    plain = perdure.here("timeline", run).out
    assert "take: 28 more" in plain and "\x1b" not in plain
    assert len(perdure.here("timeline", run, "--all").out.splitlines()) == 2 + 82 + 1


@pytest.mark.parametrize("columns", [80, 140])
def test_a_timeline_fits_the_terminal(perdure: CommandLine, columns: int) -> None:
    run = run_flow(perdure, "3")
    _, shown = in_terminal(perdure.folder, "timeline", run, columns=columns)

    assert "\x1b[32m" in shown
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(len(line) for line in lines) <= columns
    small = next(line for line in lines if line.startswith("small"))
    assert re.search(r"done x3 +\d+ ms +▒+░+▒+░+█+$", small), small
    assert [line.split()[0] for line in lines if line.startswith("  inner")] == ["inner[0]", "inner[1]"]
    assert "\x1b" not in in_terminal(perdure.folder, "timeline", run, columns=columns, env={"NO_COLOR": "1"})[1]


def test_a_terminal_without_these_signs_gets_others(perdure: CommandLine) -> None:
    run = perdure.here("run", "many.yaml", "--json").json["execution_id"]
    shown = perdure("timeline", run, PYTHONIOENCODING="ascii", PYTHONUTF8="0").out

    assert "# work" in shown and shown.isascii()


def test_a_name_is_a_file_or_a_run_and_neither_is_said_so(perdure: CommandLine) -> None:
    perdure.here("run", "many.yaml", "--json")

    assert "flow.jsn" in perdure("graph", "flow.jsn", code=None).err
    assert perdure("graph", "nothing.json", code=None).code != 0
    refused = perdure("graph", "flow.json", "--at", "3", "--json", code=2)
    assert "--at is for runs" in refused.error["message"]
    assert strict_json(perdure.here("graph", "story.yaml", "--json").out)["form"] == "mermaid"


def test_languages_without_graphs_have_no_picture(perdure: CommandLine, tmp_path: Path) -> None:
    run = perdure("run", perdure.drill({"return": 1}), "--json").json["id"]

    assert perdure("timeline", run, "--json", code=None).error["code"] == "NO-PICTURE"


def test_what_is_neither_a_file_nor_a_run_is_called_so(perdure: CommandLine) -> None:
    assert "there is no file 'flwo', and no store with runs" in perdure.here("graph", "flwo", code=8).err
    perdure.here("run", perdure.drill({"return": 1}))
    assert "there is neither a file nor a run 'flwo'" in perdure.here("graph", "flwo", code=8).err
