"""The page "Trust your workflow" is true: its files pass its commands, and its CI examples are YAML with them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.commandline import CommandLine

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "trust.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```yaml file=(\S+)\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = re.findall(r"^\$ perdure (.*)$", PAGE, re.MULTILINE)
JOBS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


def test_the_commands_of_the_page_work(perdure: CommandLine) -> None:
    for file, text in FILES.items():
        (perdure.folder / file).write_text(text)
    outputs = {command: perdure.here(*shlex.split(command)).out for command in COMMANDS}

    assert "4 passed, 0 failed" in outputs["test order.yaml --crash=all"]
    assert "8 crashes" in outputs["test order.yaml --crash=all"]
    assert "nothing that must always hold was violated" in outputs["sim order.yaml --runs 200"]
    assert "flowchart TD" in outputs["test . --coverage mermaid"]


def test_the_jobs_run_what_the_page_explains(perdure: CommandLine) -> None:
    """In a folder that has nothing but the files of the page."""
    (perdure.folder / "flows").mkdir()
    for file, text in FILES.items():
        (perdure.folder / "flows" / file).write_text(text)
    github, gitlab = JOBS
    lines = [step["run"] for step in github["jobs"]["trust"]["steps"] if "run" in step]

    assert lines == gitlab["trust"]["script"]
    assert [line.split()[1] for line in lines] == ["install", "check", "test"]
    for line in lines[1:]:
        assert perdure.here(*shlex.split(line)[1:]).code == 0
    assert 'tests="4" failures="0"' in (perdure.folder / "report.xml").read_text()
