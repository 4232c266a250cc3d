"""`perdure init`: a first project of each language, whose own commands work."""

import json
import re
import shlex
from pathlib import Path

import jsonschema_rs
import pytest
from tests.cli.commandline import CommandLine

from perdure.documents import read_document

LANGUAGES = ("flow", "playbook", "story")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_commands_of_a_first_project_work(perdure: CommandLine, language: str) -> None:
    done = perdure.here("init", language, "shop")

    project = CommandLine(perdure.folder / "shop")
    way, *printed = done.out.splitlines()
    assert way == "cd shop"
    assert printed == re.findall(r"^\$ (.*)$", (project.folder / "README.md").read_text(), re.MULTILINE)
    commands = [command.removeprefix("perdure ") for command in printed]
    assert [command.split()[0] for command in commands] == ["check", "test", "run", "ps"]
    for command in commands:
        assert project(*shlex.split(command)).code == 0
    assert "succeeded" in project.here("ps").out
    assert (project.folder / ".gitignore").read_text().split() == ["perdure.db*", "*.token"], "stores and access tokens"


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_editor_finds_the_schema_of_the_document(perdure: CommandLine, language: str) -> None:
    perdure.here("init", language, "shop")

    folder = perdure.folder / "shop"
    (document,) = [path for path in folder.glob("workflow.*") if ".test" not in path.name]
    schema = json.loads((folder / "schemas" / f"{language}.schema.json").read_text())
    if document.suffix == ".yaml":
        named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", document.read_text())
        assert named is not None and json.loads((folder / named[1]).read_text()) == schema
    jsonschema_rs.validator_for(schema).validate(read_document(document.read_bytes()).data)


def test_nothing_that_is_there_is_changed(perdure: CommandLine) -> None:
    (perdure.folder / "tasks.py").write_text("mine = 1\n")

    refused = perdure.here("init", "story", code=2)

    assert "already contains tasks.py" in refused.err
    assert sorted(path.name for path in Path(perdure.folder).iterdir()) == ["tasks.py"]
    assert "flow, playbook, story" in perdure.here("init", "cobol", code=2).err


def test_a_link_that_leads_nowhere_is_not_written_through(perdure: CommandLine) -> None:
    """A folder from elsewhere may contain one; so may the name of a new file for `convert`."""
    outside = Path(perdure.folder).parent / "outside"
    for name in ("README.md", "new.yaml"):
        (perdure.folder / name).symlink_to(outside)
    (perdure.folder / "old.yaml").write_text("kind: Playbook\n")

    assert "already contains README.md" in perdure.here("init", "flow", code=2).err
    assert "already exists" in perdure.here("convert", "old.yaml", "-o", "new.yaml", code=2).err
    assert not outside.exists()
