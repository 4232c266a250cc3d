"""The Stories of the guide, run as its reader would (STY-009, STY-102, STY-125, STY-264, STY-271)."""

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine

EXAMPLES = Path(__file__).parents[2] / "examples" / "stories"
LOADED = ("--load", "stories/engrams.py")


@pytest.fixture
def tool(perdure: CommandLine) -> CommandLine:
    shutil.copytree(EXAMPLES, perdure.folder / "stories")
    return perdure


def test_hello(tool: CommandLine) -> None:
    assert tool("run", "stories/hello.yaml", *LOADED).json == {"text": "HELLO, WORLD!"}
    assert tool("run", "stories/hello.yaml", *LOADED, "--input", '{"who": "Ada"}').json == {"text": "HELLO, ADA!"}


def test_a_gate(tool: CommandLine) -> None:
    live = tool.start("run", "stories/release.yaml", "--input", '{"env": "prod"}')
    run = live.run
    live.hear("perdure approve")
    tool("approve", run, "approve", "--by", "Ada")

    assert live.end().json == {"tag": "prod-1", "approved": "Approved"}


def test_a_retry_and_its_history(tool: CommandLine) -> None:
    """STY-264: every attempt is told, in the language's own words."""
    done = tool("run", "stories/retry.yaml", *LOADED, "--json").json
    assert done["status"]["output"] == {"attempts": 3}

    events = tool("history", done["metadata"]["uid"], "--json").json
    names = [event["event_type"] for event in events]
    assert names.count("JobRetryScheduled") == 2
    assert names[0] == "storyrun.created" and names[-1] == "storyrun.phase"
    assert "JobRetryScheduled" in tool("history", done["metadata"]["uid"]).out


def test_a_map_over_commands(tool: CommandLine) -> None:
    answer = tool("run", "stories/map.yaml", "--input", '{"numbers": [1, 2, 3, 4]}').json

    assert answer["squares"] == [{"n": n, "square": n * n} for n in (1, 2, 3, 4)]
    assert answer["reduced"] == {"how-many": 4}


LARGE = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: large}
spec:
  steps: [{name: read, ref: {name: echo}, with: {rows: "{{ inputs.rows }}"}}]
  output: {n: "{{ len steps.read.output.rows }}"}
"""


def test_the_body_behind_a_reference(tool: CommandLine) -> None:
    """STY-219, STY-221: a StepRun shows where a large output is, and the command line gives it."""
    (tool.folder / "large.yaml").write_text(LARGE)
    rows = list(range(20_000))
    (tool.folder / "rows.json").write_text(json.dumps({"rows": rows}))
    done = tool("run", "large.yaml", "--input", "@rows.json", "--json").json
    assert done["status"]["output"] == {"n": 20_000}

    reference = done["stepRuns"]["read"]["status"]["output"]["rows"]["$bubuStorageRef"]
    assert reference == f"default/{done['metadata']['name']}/steps/read/rows.json"
    assert tool("result", "get", reference).json == rows
    assert tool("result", "get", done["metadata"]["uid"]).json == {"n": 20_000}
    assert tool("result", "get", reference.replace("read", "zzz"), code=8).out == ""
