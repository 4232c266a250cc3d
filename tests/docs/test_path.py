"""The documentation is a path: its first page leads to every other page, and the pages on the way can be followed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commandline import CommandLine

DOCS = Path(__file__).parents[2] / "docs"
FOLLOWED = ("choosing.md",)
"""Pages of the guide whose files are written and whose commands are run, one after the other."""

_BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _targets(page: Path) -> set[Path]:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / link).resolve() for link in links}


def test_the_first_page_leads_to_every_page() -> None:
    pages = {*DOCS.glob("*.md"), *(DOCS / "guide").rglob("*.md"), *(DOCS / "reference").rglob("*.md")}

    assert len(pages) > 40
    assert pages - {DOCS / "README.md"} <= _targets(DOCS / "README.md")
    assert DOCS / "README.md" in _targets(DOCS.parent / "README.md")


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_commands_of_a_page_print_what_it_shows(perdure: CommandLine, name: str) -> None:
    commands = 0
    for kind, file, content in _BLOCK.findall((DOCS / "guide" / name).read_text(encoding="utf-8")):
        if file:
            (perdure.folder / file).write_text(content, encoding="utf-8")
        elif kind == "console":
            for command, printed in _commands(content):
                done = perdure(*shlex.split(command))
                commands += 1
                if printed:
                    assert done.out.rstrip("\n") == printed
    assert commands > 5


def _commands(content: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ perdure ", content, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed.rstrip("\n")
