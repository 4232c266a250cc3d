"""Pages name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASES = (ROOT, ROOT / "src" / "perdure", ROOT / "src", ROOT / "tests")
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/security.md", "docs/reliability.md"]
DECISIONS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "decisions").glob("*.md"))

FILE = re.compile(
    r"(?<![\w/.<{*-])((?:[\w-]+/)+[\w-]+\.(?:py|md|txt|json|ya?ml|sql)|(?:tests|src|docs|bench|tools|examples)/[\w/-]+)\b(?![*<{])"
)


def _missing(page: str) -> list[str]:
    names = FILE.findall((ROOT / page).read_text(encoding="utf-8"))
    folder = (ROOT / page).parent
    return [name for name in names if not any((base / name).exists() for base in (*BASES, folder))]


@pytest.mark.parametrize("page", [*PAGES, *DECISIONS])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    assert _missing(page) == []


def test_architecture_names_files() -> None:
    """The walk of an execution is followed by file names: the pattern above finds them."""
    assert len(FILE.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))) > 8
