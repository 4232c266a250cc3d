"""How far a worker goes beyond its places when many hostile families of runs stay in them (PBK-197, invariant 33)."""

from collections import Counter
from typing import Any

import pytest

from perdure.workers.concurrency_limits import MOST_LONG, Places


class Task:
    """As much of a task as its place needs to know."""

    is_over = False

    def __init__(self, family: str) -> None:
        self.family = family


@pytest.mark.parametrize("limit", [4, 8])
def test_tasks_that_never_end_take_a_bounded_number_beyond_the_places(limit: int) -> None:
    """PBK-197: as many as there are places, until others have waited for long; then at most four times as many more."""
    places = Places(limit)
    begun: Counter[str] = Counter()

    def begin() -> None:
        while (task := places.take()) is not None:
            begun[task.family] += 1

    for family in range(100):
        for _ in range(limit):
            places.wait(hostile(f"hostile {family}"))
    begin()
    assert sum(begun.values()) == limit

    for _ in range(1000):
        places.make_room(places.placed)
        begin()
    assert sum(begun.values()) == limit + MOST_LONG * limit == 5 * limit
    assert max(begun.values()) <= limit


@pytest.mark.parametrize("limit", [4, 8])
def test_up_to_fifteen_hostile_families_keep_nobody_out(limit: int) -> None:
    places = Places(limit)
    for family in range(15):
        for _ in range(limit):
            places.wait(hostile(f"hostile {family}"))
    honest = hostile("honest")
    places.wait(honest)

    for _ in range(1000):
        while places.take() is not None:
            pass
        if honest in places:
            return
        places.make_room(places.placed)
    pytest.fail("it never had its turn")


def hostile(family: str) -> Any:
    return Task(family)
