"""What is written is true: every error has its page, every code block of the README runs, every verb is documented."""

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.kernel.errors import PerdureError

ROOT = Path(__file__).parents[2]


def _errors() -> set[type[PerdureError]]:
    for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
        if "__main__" not in module.name and "isolation.child" not in module.name:
            importlib.import_module(module.name)
    found: set[type[PerdureError]] = {PerdureError}
    pending = [PerdureError]
    while pending:
        for kind in pending.pop().__subclasses__():
            found.add(kind)
            pending.append(kind)
    return {kind for kind in found if kind.__module__.startswith("perdure.")}


def test_every_error_has_a_code_a_hint_a_docstring_and_a_page() -> None:
    for kind in _errors():
        assert kind.__doc__, f"{kind.__name__} does not say what it means"
        assert kind.code, f"{kind.__name__} has no code"
        page = ROOT / "docs" / "errors" / f"{kind.code}.md"
        assert page.exists(), f"{kind.__name__}: write docs/errors/{kind.code}.md (what happened, why, what to do)"
        if kind is not PerdureError:
            assert kind.hint, f"{kind.__name__} does not say what to do"


def test_no_page_describes_an_error_that_does_not_exist() -> None:
    codes = {kind.code for kind in _errors()}

    assert {page.stem for page in (ROOT / "docs" / "errors").glob("*.md")} <= codes


def test_codes_are_promises_and_mean_one_thing() -> None:
    codes: dict[str, str] = {}
    for kind in sorted(_errors(), key=lambda kind: kind.__qualname__):
        if "code" in vars(kind):
            assert codes.setdefault(kind.code, kind.__name__) == kind.__name__


BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.strip().splitlines()[-1][:40])
def test_the_python_of_the_readme_runs(block: str, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(block)

    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    if "print(" in block:
        assert done.stdout == "Hello, Ada!\n"


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


@pytest.mark.parametrize("number", [n for n in range(1, 26) if n not in (22,)])
def test_every_invariant_is_named_by_a_test(number: int) -> None:
    """Invariant 22 concerns late owners on PostgreSQL, which does not exist yet."""
    pattern = re.compile(rf"Invariants? [\d, and]*\b{number}\b|Invariants {number} to|Invariants \d+ to {number}\b")
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    texts.append((ROOT / "src" / "perdure" / "testing" / "store_suite.py").read_text(encoding="utf-8"))

    assert any(pattern.search(text) for text in texts), f"no test names invariant {number}"


def test_the_readme_counts_as_many_tests_as_run(request: pytest.FixtureRequest) -> None:
    files = {item.path for item in request.session.items}
    if not files >= set((ROOT / "tests").rglob("test_*.py")):
        pytest.skip("only a part of the tests was asked for")
    (claimed,) = re.findall(r"over ([\d,]+) tests", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert int(claimed.replace(",", "")) < len(request.session.items)
