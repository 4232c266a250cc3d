"""Tests that wait begin first, in half of the workers."""

from itertools import chain, repeat
from pathlib import Path

import pytest

from tests import ordering

REPOSITORY = Path(__file__).parents[1]
FILES = [
    *repeat("tests/a.py", 50),
    *repeat("tests/long.py", 3),
    *repeat("tests/b.py", 40),
    *repeat("tests/longer.py", 5),
    *repeat("tests/short.py", 2),
]


@pytest.fixture(autouse=True)
def _waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "WAITING", {"tests/short.py": 1, "tests/longer.py": 9, "tests/long.py": 5})


def pieces(workers: int) -> list[list[str]]:
    """The files of the tests of each worker, as `--dist worksteal` cuts them."""
    left = [FILES[number] for number in ordering.order(FILES, workers)]
    result = []
    for worker in range(workers):
        size = len(left) // (workers - worker)
        result.append(left[:size])
        left = left[size:]
    return result


def test_half_of_the_workers_begin_with_what_waits() -> None:
    first, second, third, fourth = pieces(4)

    assert first[:5] == ["tests/longer.py"] * 5
    assert second[:5] == ["tests/long.py"] * 3 + ["tests/short.py"] * 2
    assert set(third) | set(fourth) == {"tests/a.py", "tests/b.py"}


@pytest.mark.parametrize("workers", range(1, 9))
def test_every_test_has_one_worker(workers: int) -> None:
    assert sorted(ordering.order(FILES, workers)) == list(range(len(FILES)))
    assert sorted(chain(*pieces(workers))) == sorted(FILES)


def test_more_waiting_tests_than_a_worker_takes() -> None:
    assert sorted(ordering.order(["tests/long.py"] * 9, 8)) == list(range(9))


def test_the_files_that_wait_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    assert [file for file in ordering.WAITING if not (REPOSITORY / file).exists()] == []
    assert len(ordering.WAITING) > 5
