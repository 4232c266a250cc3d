"""Which cases run at this commit. What is too much for every run of the suite is taken in turns:

    @pytest.mark.sampled(5)         each case of this test runs at one commit in five
    @pytest.mark.deep               it runs in `make deep` only: the clock decides it, on a quiet machine
    sample.take(cases)              of many cases inside one test: those in turn (a fixture)
    PERDURE_TEST_SEED=417           the cases of another commit; pytest's header names this one's
    PERDURE_TEST_SEED=all           all of them, as in `make deep`

The seed is the number of commits up to this one. What is taken one time in N runs once in N commits in a row, and N is
at most 20. Which of the N is drawn from the name of the test, so that every commit has its share. A test that is named
(`pytest tests/…::test_name`) always runs.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import TypeVar

import pytest

SEED = "PERDURE_TEST_SEED"
ALL = "all"
PERIOD = 20  # commits, within which every case runs
MARKS = ("sampled", "deep")

Case = TypeVar("Case")


@cache
def seed_text() -> str:
    """As the environment says; else how many commits there are up to this one, none outside of a repository."""
    seed = os.environ.get(SEED)
    if seed:
        if seed != ALL and not seed.isdecimal():
            raise pytest.UsageError(f"{SEED}={seed}: a number of commits, or {ALL}")
        return seed
    command = ["git", "-C", str(Path(__file__).parent), "rev-list", "--count", "HEAD"]
    counted = subprocess.run(command, capture_output=True, text=True, check=False)
    return counted.stdout.strip() if counted.returncode == 0 else "0"


def described() -> str:
    return f"{SEED}={seed_text()}"


def seed() -> int | None:
    """None: everything runs."""
    return None if seed_text() == ALL else int(seed_text())


def is_in_turn(item: pytest.Item) -> bool:
    is_sampled = any(mark.name in MARKS for mark in item.iter_markers())  # of most tests there is no sample to make
    return not is_sampled or Sample.of(item).is_in_turn


@dataclass(frozen=True)
class Sample:
    """Of one test: whether it is in turn, and what of its cases is."""

    name: str
    share: int  # it runs at one commit in so many
    seed: int | None
    is_deep: bool = False

    def __post_init__(self) -> None:
        assert 1 <= self.share <= PERIOD, f"{self.name} would not run within {PERIOD} commits"

    @classmethod
    def of(cls, item: pytest.Item) -> "Sample":
        shares = [int(mark.args[0]) for mark in item.iter_markers("sampled")]
        return cls(item.nodeid, prod(shares), seed(), item.get_closest_marker("deep") is not None)

    @property
    def is_in_turn(self) -> bool:
        return self.seed is None or (not self.is_deep and self._turn(self.seed) % self.share == 0)

    def take(self, cases: Sequence[Case], share: int | None = None) -> Sequence[Case]:
        """One in `share` of them: as few as will do for all to run within 20 commits, unless it is said."""
        if self.seed is None:
            return cases
        share = PERIOD // self.share if share is None else share
        assert share * self.share <= PERIOD, f"cases of {self.name} would not run within {PERIOD} commits"
        return cases[self._turn(self.seed) // self.share % share :: share]

    def _turn(self, seed: int) -> int:
        return int.from_bytes(blake2b(self.name.encode(), digest_size=4).digest(), "big") + seed
