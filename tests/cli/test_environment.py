"""`env` in a Playbook's workload: only what was allowed, recorded with the start (PBK-012)."""

from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine
from tests.dialects.playbook.world import playbook

from perdure.cli.errors import BadUsage
from perdure.cli.verbs.run import readable

BOOK = playbook("""
workload: {region: "{{ env.REGION | default('nowhere') }}", home: "{{ env.HOME | default('hidden') }}"}
workflow: [{step: a, tool: {kind: noop, result: ["{{ workload.region }}", "{{ workload.home }}"]}}]
""")


@pytest.fixture
def perdure(tmp_path: Path) -> CommandLine:
    (tmp_path / "book.yaml").write_text(BOOK)
    return CommandLine(tmp_path)


def test_a_document_reads_only_what_was_allowed(perdure: CommandLine) -> None:
    """PBK-012."""
    assert perdure("run", "book.yaml", "--json", REGION="north").json["result"] == ["nowhere", "hidden"]
    assert perdure("run", "book.yaml", "--env", "REGION", "--json", REGION="north").json["result"][0] == "north"
    assert perdure("run", "book.yaml", "--json", PERDURE_ENV_REGION="south").json["result"] == ["south", "hidden"]
    assert perdure("run", "book.yaml", "--env", "REGION=west", "--json").json["result"][0] == "west"


def test_what_was_allowed_is_recorded_with_the_start(perdure: CommandLine) -> None:
    """PBK-012: whoever takes the run up reads the same."""
    run = perdure("run", "book.yaml", "--env", "REGION", "--detach", REGION="north").out.strip()
    perdure("resume", run, REGION="elsewhere")

    assert perdure.here("show", run, "--json").json["result"][0] == "north"
    events = perdure.here("history", run, "--raw", "--json").json
    assert events[0]["options"]["env"] == {"REGION": "north"}


def test_a_child_reads_what_its_parent_was_allowed(perdure: CommandLine) -> None:
    """PBK-012."""
    (perdure.folder / "top.yaml").write_text(playbook("workflow: [{step: a, tool: {kind: playbook, path: kid}}]"))
    (perdure.folder / "kid.yaml").write_text(BOOK.replace("tests/test", "kid"))

    shown = perdure.here("run", "top.yaml", "--apply", "kid.yaml", "--env", "REGION=east", "--json").json

    assert shown["result"]["result"][0] == "east"


def test_a_variable_that_nobody_allowed_ends_the_run_with_a_reason(perdure: CommandLine) -> None:
    """PBK-012."""
    (perdure.folder / "book.yaml").write_text(BOOK.replace(" | default('nowhere')", ""))

    shown = perdure.here("run", "book.yaml", "--json", code=3).json

    assert shown["code"] == "WORKLOAD_TEMPLATE"


def test_nothing_is_recorded_that_no_document_mentions() -> None:
    environment = {"PERDURE_ENV_A": "1", "PERDURE_ENV_B": "2", "C": "3", "PATH": "x"}

    assert readable(["C"], environment, ["{{ env.A }} {{ env.C }}"]) == {"A": "1", "C": "3"}
    assert readable(["C"], environment, ["A B C PATH"]) == {}


@pytest.mark.parametrize("word", ["NOWHERE", "not a name=1", "=x"])
def test_wrong_names_are_refused(word: str) -> None:
    with pytest.raises(BadUsage, match="--env"):
        readable([word], {}, [])
