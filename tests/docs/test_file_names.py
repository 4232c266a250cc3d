"""Every file, module and class that a page names exists."""

import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASES = (ROOT, ROOT / "src" / "perdure", ROOT / "src", ROOT / "tests")
PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

FILE = re.compile(
    r"(?<![\w/.<{*-])((?:[\w-]+/)+[\w-]+\.(?:py|md|txt|json|ya?ml|sql|mjs|sh|svg|css)|(?:tests|src|docs|bench|tools|examples)/[\w/-]+)\b(?![*<{])"
)
PLACEHOLDER = re.compile(r"[A-Z]+(/|$)")
MEASURED = re.compile(r"<!-- figures: begin -->.*<!-- figures: end -->", re.DOTALL)
BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
DOTTED = re.compile(
    r"`(?:perdure\.)?((?:kernel|engine|stores|workers|views|wiring|testing|cli|tests)(?:\.\w+)+)(?:\(\))?`"
)


@cache
def _words() -> frozenset[str]:
    """Every word of the code and every name of a module."""
    words: set[str] = set()
    for folder in ("src", "tests", "bench"):
        for path in (ROOT / folder).rglob("*.py"):
            words.update(
                re.findall(r"\w+", path.read_text(encoding="utf-8")), path.relative_to(ROOT).with_suffix("").parts
            )
    return frozenset(words)


def _prose(page: str) -> str:
    """The page without recorded measurements, and without the code blocks of guides, which name files of their own."""
    text = MEASURED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return BLOCK.sub("", text) if page.startswith("docs/") else text


def _missing(page: str) -> list[str]:
    bases = (*BASES, (ROOT / page).parent)
    names = [name for name in FILE.findall(_prose(page)) if not PLACEHOLDER.match(name)]
    return [name for name in names if not any((base / name).exists() for base in bases)]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    assert _missing(page) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_part_of_a_dotted_name_exists(page: str) -> None:
    """`stores.protocol`, `kernel.errors.PerdureError`: a renamed module or class is renamed in the pages too."""
    names = DOTTED.findall(_prose(page))

    assert [name for name in names if not set(name.split(".")) <= _words()] == []


def test_architecture_names_files() -> None:
    """The walk of an execution is followed by file names: the pattern above finds them."""
    assert len(FILE.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))) > 8


IMPORT = re.compile(r"^from (perdure[\w.]*) import ([\w, ]+)$", re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if IMPORT.search((ROOT / page).read_text(encoding="utf-8"))])
def test_every_import_of_a_page_works(page: str) -> None:
    for module, names in IMPORT.findall((ROOT / page).read_text(encoding="utf-8")):
        for name in names.split(","):
            assert hasattr(importlib.import_module(module), name.strip()), f"{module} has no {name}"
