"""Failed tests run once more, alone; what fails twice fails the run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ONCE = """
from pathlib import Path

def test_fails_the_first_time():
    seen = Path(__file__).with_name("seen")
    is_first = not seen.exists()
    seen.touch()
    assert not is_first

def test_passes():
    assert True
"""

ALWAYS = """
import pytest

@pytest.mark.parametrize("number", range(COUNT))
def test_fails(number):
    assert number < 0
"""


def gate(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """As in the Makefile: the whole run, then what failed in it."""
    (folder / "test_sample.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    script = f"{sys.executable} -m pytest --cache-clear || {sys.executable} {Path(__file__).with_name('unstable.py')}"
    return subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.sampled(4)
def test_a_test_that_passes_alone_is_named_and_the_run_counts(tmp_path: Path) -> None:
    run = gate(tmp_path, ONCE)

    assert run.returncode == 0
    assert run.stdout.splitlines()[-2:] == [
        "UNSTABLE, failed in the full run and passed alone:",
        "  test_sample.py::test_fails_the_first_time",
    ]


@pytest.mark.parametrize(("count", "says"), [(1, "trying 1 failed tests again"), (4, "4 tests failed; only up to 3")])
@pytest.mark.sampled(4)
def test_what_is_broken_fails_the_run(tmp_path: Path, count: int, says: str) -> None:
    run = gate(tmp_path, ALWAYS.replace("COUNT", str(count)))

    assert run.returncode != 0
    assert says in run.stdout + run.stderr


def test_a_module_that_cannot_be_imported_is_not_tried_again(tmp_path: Path) -> None:
    run = gate(tmp_path, "import nothing_of_that_name")

    assert run.returncode != 0
    assert json.loads((tmp_path / ".pytest_cache/v/cache/lastfailed").read_text())
    assert "the run itself was broken" in run.stderr
