"""The guide is correct: its files are written, its commands run, and their output is compared."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commandline import CommandLine

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "flow"
PAGES = sorted(GUIDE.glob("*.md"))

_BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    for kind, name, content in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if name:
            (tmp_path / name).write_text(content, encoding="utf-8")
        elif kind == "console":
            for command, printed in _commands(content):
                assert _timeless(line(*command, code=None).out.rstrip("\n")) == _timeless(printed)


def _timeless(text: str) -> str:
    return re.sub(r"\d+\.\d s", "0.0 s", text)


def _commands(content: str) -> Iterator[tuple[list[str], str]]:
    for part in re.split(r"^\$ perdure ", content, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield shlex.split(command), printed.rstrip("\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_the_guide_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
