"""The Stories of the guide, run as its reader would (STY-009, STY-102, STY-125, STY-264, STY-271)."""

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
    names = [one["event_type"] for one in events]
    assert names.count("JobRetryScheduled") == 2
    assert names[0] == "storyrun.created" and names[-1] == "storyrun.phase"
    assert "JobRetryScheduled" in tool("history", done["metadata"]["uid"]).out


def test_a_map_over_commands(tool: CommandLine) -> None:
    answer = tool("run", "stories/map.yaml", "--input", '{"numbers": [1, 2, 3, 4]}').json

    assert answer["squares"] == [{"n": n, "square": n * n} for n in (1, 2, 3, 4)]
    assert answer["reduced"] == {"how-many": 4}
