"""Which stores the tests run on: the one place that opens the store under test.

@pytest.mark.every_store          on SQLite, PostgreSQL 15 and PostgreSQL 18
PERDURE_TEST_STORE=postgres15     those tests on that store alone
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

import pytest

SQLITE = "sqlite"
EVERY = (SQLITE,)
CHOSEN = "PERDURE_TEST_STORE"
CRASHES = "PERDURE_TEST_CRASHES"


def chosen() -> tuple[str, ...]:
    named = os.environ.get(CHOSEN)
    if named is None:
        return EVERY
    if named not in EVERY:
        raise pytest.UsageError(f"{CHOSEN}={named}: one of {', '.join(EVERY)}")
    return (named,)


@contextmanager
def worlds_on_store(name: str, request: pytest.FixtureRequest) -> Iterator[None]:
    yield


def crash_points(commits: range, name: str, every: int) -> range:
    """Which of these commits to crash at: one in `every`, always the same ones, spread over tests by name."""
    if os.environ.get(CRASHES) == "all":
        every = 1
    return commits[crc32(name.encode()) % min(every, len(commits)) :: every]
