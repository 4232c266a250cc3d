"""What is not run at every commit is run within 20 of them, and the session says how to run it again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampling import PERIOD, SEED, Sample
from tests.storing import CHOSEN

REPOSITORY = Path(__file__).parents[1]
SHARES = [(share, inner) for share in range(1, PERIOD + 1) for inner in range(1, PERIOD // share + 1)]


def test_every_case_runs_within_twenty_commits() -> None:
    cases = range(53)
    for share, inner in SHARES:
        for first in range(400, 400 + PERIOD):
            run: set[int] = set()
            for seed in range(first, first + PERIOD):
                sample = Sample(f"test of {share}", share, seed)
                run |= set(sample.take(cases, inner)) if sample.is_in_turn else set()

            assert run == set(cases), (share, inner, first)


def test_a_commit_has_its_share_of_cases() -> None:
    taken = [name for name in range(1_000) if Sample(f"test[{name}]", 5, 417).is_in_turn]

    assert 150 < len(taken) < 250
    assert len(Sample("test", 5, 417).take(range(100))) == 25, "all of them within twenty commits, four times in turn"


def test_a_case_that_would_not_run_within_twenty_commits_is_refused() -> None:
    with pytest.raises(AssertionError, match="would not run within 20 commits"):
        Sample("test", 21, 417)
    with pytest.raises(AssertionError, match="would not run within 20 commits"):
        Sample("test", 5, 417).take(range(9), 5)


def test_without_a_turn_everything_runs() -> None:
    assert Sample("test", 20, None).is_in_turn
    assert Sample("test", 20, None).take(range(9)) == range(9)


def collected(seed: str, path: str) -> tuple[str, set[str]]:
    """The header of a session with this seed, and the tests that it would run."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", path]
    environment = {name: value for name, value in os.environ.items() if name != CHOSEN} | {SEED: seed}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, {line.strip() for line in done.stdout.splitlines() if "<" in line}


def test_the_header_names_the_seed_whose_cases_run() -> None:
    header, everything = collected("all", "tests/engine/test_calendars.py")
    assert f"sampled cases: {SEED}=all\n" in header

    header, some = collected("417", "tests/engine/test_calendars.py")
    assert f"sampled cases: {SEED}=417\n" in header
    assert some < everything
    assert not any("sqlite" in case or "postgres18" in case for case in everything - some)


def targets(name: str) -> list[str]:
    """The words behind a name in the Makefile."""
    (words,) = re.findall(rf"^{name} := ((?:.*\\\n)*.*)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    return str(words).replace("\\\n", " ").split()


def test_quick_tests_are_there_for_every_package() -> None:
    quick = targets("QUICK")
    packages = {path.parent.name for path in (REPOSITORY / "src" / "perdure").glob("*/__init__.py")}

    assert [path for path in quick if not (REPOSITORY / path).exists()] == []
    assert packages - {"testing"} <= {path.split("/")[1] for path in quick}, "perdure.testing is what they test with"


def test_every_lane_is_documented() -> None:
    lanes = re.findall(r"^(quick|test|deep): (?:check|lint)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()

    assert lanes == ["quick", "test", "deep"]
    assert [lane for lane in lanes if f"| `make {lane}` |" not in page] == []
