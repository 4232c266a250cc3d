"""Stories from the command line: what `check` reports, also with files beside it; invalid ones are not run."""

from pathlib import Path

import pytest

from tests.cli.commandline import CommandLine
from tests.dialects.story.document.resource_texts import HEAD, steps

ENGRAM = "apiVersion: bubustack.io/v1alpha1\nkind: Engram\nmetadata: {name: e}\nspec: {templateRef: {name: greeter}}\n"
GREET = "{name: a, ref: e, with: {name: '{{ inputs.who }}'}}"
GOOD = steps(GREET, also="output: {said: '{{ steps.a.output.text }}'}")
CODE = """
import perdure

@perdure.engram("greeter", input_schema={"type": "object", "properties": {"name": {"type": "string"}}})
def greeter(inputs, context):
    return {"text": "Hello, " + inputs["name"]}
"""


@pytest.fixture
def perdure(tmp_path: Path) -> CommandLine:
    files = {
        "good.yaml": GOOD,
        "bad.yaml": steps("{name: a, ref: e, with: {name: 3}}", "{name: b, type: gate, neds: [a]}"),
        "engram.yaml": ENGRAM,
        "code.py": CODE,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return CommandLine(tmp_path)


def test_mistakes_are_told_with_place_path_and_reason(perdure: CommandLine) -> None:
    """STY-003, STY-019, STY-041"""
    done = perdure.here("check", "bad.yaml", code=7)

    message = "unknown field 'neds'; did you mean 'needs'? (spec.steps[1].neds) [ValidationFailed]"
    assert f"bad.yaml:7:27: error: {message}" in done.out


def test_missing_engrams_are_only_warnings(perdure: CommandLine) -> None:
    """STY-041"""
    assert "there is no Engram 'default/e' yet" in perdure.here("check", "good.yaml").out


@pytest.mark.parametrize(
    "around", [("engram.yaml", "--load", "code.py"), ("--apply", "engram.yaml", "--load", "code.py")]
)
def test_what_stands_around_is_looked_at(perdure: CommandLine, around: tuple[str, ...]) -> None:
    """STY-041: a file beside it, or one that is applied; the template comes with the code."""
    assert perdure("check", "good.yaml", *around).out == ""
    assert "the template's input schema does not accept this value" in perdure("check", "bad.yaml", *around, code=7).out


def test_a_bad_story_is_not_run(perdure: CommandLine) -> None:
    """STY-019"""
    perdure.here("run", "bad.yaml", code=7)

    assert not list(perdure.folder.glob("*.db"))


def test_a_story_runs_with_what_its_file_holds(perdure: CommandLine) -> None:
    """STY-009, STY-255"""
    (perdure.folder / "both.yaml").write_text((perdure.folder / "good.yaml").read_text() + "---\n" + ENGRAM)

    done = perdure("run", "both.yaml", "--load", "code.py", "--input", '{"who": "Ada"}', "--json")

    assert done.json["status"]["output"] == {"said": "Hello, Ada"}


def test_a_streaming_story_is_judged_like_any_other(perdure: CommandLine) -> None:
    """STY-036, STY-270"""
    text = HEAD + "  pattern: streaming\n  steps: [{name: a, ref: e, with: {x: '{{ packet.text }}'}}]\n"
    (perdure.folder / "stream.yaml").write_text(text)

    assert (
        "context 'packet' is not allowed for realtime-static templates"
        in perdure.here("check", "stream.yaml", code=7).out
    )
