"""Files of scenarios and schedules by somebody else: refused with a message, and nothing is read without end."""

import json
from pathlib import Path

import pytest

from perdure.cli import document_files
from perdure.services.scenarios import suite
from tests.cli.commandline import CommandLine

FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "done",
    "steps": {"done": {"action": "Return", "value": 1}},
}


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    (tmp_path / "f.json").write_text(json.dumps(FLOW))
    return CommandLine(tmp_path)


@pytest.mark.parametrize("span", ["9" * 400 + "d", "999999999999d"])
def test_a_span_that_no_clock_has_is_a_mistake(line: CommandLine, span: str) -> None:
    (line.folder / "f.test.yaml").write_text(f"actions: [{{advance: {span}}}]\n")
    assert "f.test.yaml:1:" in line.here("test", "f.test.yaml", code=7).err


def test_the_name_of_a_scenario_forges_no_line(line: CommandLine) -> None:
    (line.folder / "f.test.yaml").write_text('name: "first\\nf.test.yaml:9: second: passed"\nexpect: {result: 2}\n')
    lines = line.here("test", "f.test.yaml", code=3).out.splitlines()
    assert [text for text in lines if text.startswith("f.test.yaml:")] == ["f.test.yaml:1: first"]


def test_a_file_that_a_scenario_names_is_read_up_to_a_limit(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to a device took all memory."""
    monkeypatch.setattr(suite, "LARGEST_FILE", 1 << 20)
    (line.folder / "f.test.yaml").write_text("recorded: /dev/zero\n")
    assert "has more than 1 MiB" in line.here("test", "f.test.yaml", code=3).out
    (line.folder / "f.test.yaml").unlink()
    assert "has more than 1 MiB" in line.here("sim", "f.json", "--trace", "/dev/zero", code=None).err


def test_a_schedule_that_is_nested_too_deep_is_refused(line: CommandLine) -> None:
    (line.folder / "deep.json").write_text("[" * 100_000)
    errors = line.here("sim", "f.json", "--trace", "deep.json", code=2).err
    assert "it is not JSON" in errors and "unexpected" not in errors


def test_a_plan_of_a_move_is_read_up_to_a_limit(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_files, "LARGEST_FILE", 1 << 20)

    assert "has more than 1 MiB" in line.here("migrate", "--plan", "/dev/zero", code=None).err
