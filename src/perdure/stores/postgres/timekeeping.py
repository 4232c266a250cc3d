"""How far the database's clock is ahead of this machine's: it is the clock of all who share the database."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perdure.kernel.values import Instant


def wall_clock() -> Instant:
    return time.time_ns() // 1_000


class Ahead:
    def __init__(self, told: Callable[[Instant], None]) -> None:
        """`told` hears of every change."""
        self._told = told
        self._known: Instant = 0

    @contextmanager
    def measuring(self) -> Iterator[Callable[[Instant], None]]:
        """Around a question for the time; the answer goes to what this gives."""
        sent = wall_clock()
        read: list[Instant] = []
        yield read.append
        received = wall_clock()
        if read:
            self._take(read[-1] - (sent + received) // 2, (received - sent) // 2)

    def _take(self, ahead: Instant, doubt: Instant) -> None:
        """What does not contradict the last measurement does not replace it: a slow answer is no change of clocks."""
        if abs(ahead - self._known) > doubt:
            self._known = ahead
            self._told(ahead)
