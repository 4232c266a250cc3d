"""The documentation is a path: its first page leads to every other page, and the pages on the way can be followed."""

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.cli import main
from tests.cli.commandline import CommandLine

DOCS = Path(__file__).parents[2] / "docs"
FOLLOWED = (
    *("choosing.md", "from-temporal-airflow.md"),
    *("playbook/first-playbook.md", "story/first-story.md"),
    *("playbook/data.md", "playbook/failures.md", "playbook/loops.md", "playbook/branches.md"),
    *("story/data.md", "story/failures.md", "story/waiting.md"),
)
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
            for program, command, printed in _commands(content):
                words = shlex.split(command, comments=True)
                code = int((re.findall(r"# exit code (\d+)$", command) or ["0"])[0])
                out = perdure(*words, code=code).out if program == "perdure" else _python(words, perdure.folder)
                commands += 1
                assert not printed or out.rstrip("\n") == printed
    assert commands > 2


def _python(words: list[str], folder: Path) -> str:
    return subprocess.run([sys.executable, *words], cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout


def _commands(content: str) -> Iterator[tuple[str, str, str]]:
    """Program, its words, what is shown below them."""
    for part in re.split(r"^\$ (?=perdure |python )", content, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        program, _, words = command.partition(" ")
        yield program, words, printed.rstrip("\n")


README = (DOCS.parent / "README.md").read_text(encoding="utf-8")


def test_the_first_thing_to_try_works(perdure: CommandLine) -> None:
    first = next(content for kind, _, content in _BLOCK.findall(README) if kind == "console")
    verbs = []
    for _, command, printed in _commands(first):
        words = shlex.split(command, comments=True)
        done = perdure(*words)
        verbs.append(words[0])
        if words[0] == "init":
            perdure.folder /= words[-1]  # the reader goes there with cd
        assert not printed.startswith("{") or done.out.rstrip("\n") == printed

    assert verbs == ["init", "test", "run", "ps"]


@pytest.mark.parametrize(
    ("workload", "claim"),
    [("short workflows", "ten steps run {} times"), ("one long workflow", "long workflow {} times")],
)
def test_the_readme_repeats_measured_figures(workload: str, claim: str) -> None:
    """The lowest and the highest of the three languages, against the best peer."""
    goals = (DOCS / "performance.md").read_text(encoding="utf-8").partition("### Goals and results")[2]
    row = next(
        line for line in goals.splitlines() if line.startswith(f"| {workload}: speed") and "the best peer" in line
    )
    ratios = [float(cell.split()[0]) for cell in row.split("|")[4:7]]

    assert claim.format(f"{min(ratios):.1f} to {max(ratios):.1f}") in README


def test_the_site_has_every_page_in_the_order_of_the_first_page() -> None:
    """`make docs` makes its navigation of docs/README.md; a page that is named twice is there once."""
    site = runpy.run_path(str(DOCS / "site" / "conf.py"))
    parts = site["navigation"]((DOCS / "README.md").read_text(encoding="utf-8"))
    pages = [page for _, named in parts for page in named]
    linked = {
        str(path.relative_to(DOCS.parent).with_suffix("")) for path in _targets(DOCS / "README.md") if path.suffix
    }

    assert [title for title, _ in parts][:2] == ["Choose a language", "Learn it"]
    assert len(pages) == len(set(pages))
    assert set(pages) == linked


@pytest.mark.deep
def test_the_site_is_made_without_a_warning() -> None:
    subprocess.run(["make", "docs"], cwd=DOCS.parent, check=True, stdout=subprocess.DEVNULL)

    assert "Perdure" in (DOCS.parent / "build" / "docs" / "index.html").read_text(encoding="utf-8")


def _lines_of_commands() -> Iterator[tuple[str, str]]:
    """Page and command of every line `$ perdure …`, without what a shell makes of the rest of it."""
    pages = [*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md")]
    for page in (page for page in pages if page != DOCS / "reference" / "cli.md"):
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for command in re.findall(r"^\$ (?:[A-Z_]+=\S+ )*perdure (.*)$", text, re.MULTILINE):
            yield str(page.relative_to(DOCS.parent)), re.split(r" (?:>|\||&|2>|<)(?: |$|&)", command)[0]


def test_every_command_of_every_page_is_one() -> None:
    """Also of those whose pages are not followed: the verb and its options exist."""
    commands = set(_lines_of_commands())
    for page, command in commands:
        words = main._translate_aliases(main._behind_verb(shlex.split(command, comments=True)))
        try:
            main._parser(words).parse_args(words)
        except SystemExit as end:
            assert end.code == 0, f"{page}: perdure {command}"

    assert len(commands) > 120
