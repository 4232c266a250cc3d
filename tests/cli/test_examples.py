"""Every example runs as its users would run it."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def perdure_with_examples(perdure: CommandLine) -> CommandLine:
    shutil.copytree(EXAMPLES, perdure.folder / "examples")
    return perdure


def test_hello(perdure_with_examples: CommandLine) -> None:
    answer = perdure_with_examples("run", "examples/hello.json", "--input", '"you"').json

    assert answer["greeting"] == "Hello, you!"
    assert answer["machine"]["exit_code"] == 0


def test_fan_out(perdure_with_examples: CommandLine) -> None:
    answer = perdure_with_examples("run", "examples/fan_out.json").json

    assert [row["place"] for row in answer] == list(range(6))
    assert answer[0]["colour"] == "red"


def test_survive(perdure_with_examples: CommandLine) -> None:
    live = perdure_with_examples.start("run", "examples/survive.json")
    run = live.run
    live.hear("waits for the time set in step 'sleep'")
    live.send(signal.SIGINT)
    live.end()

    assert perdure_with_examples("resume", run).out == "done once\n\n"


def test_embed(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/embedded.db"
    done = subprocess.run([sys.executable, EXAMPLES / "embed.py", store], capture_output=True, text=True, check=True)

    assert done.stdout == "HELLO FROM A DURABLE RUN!\n"


def test_every_document_among_the_examples_is_run_here_or_by_its_language() -> None:
    assert {path.name for path in EXAMPLES.glob("*.json")} == {"fan_out.json", "hello.json", "survive.json"}
