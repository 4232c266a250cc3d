"""Time, as the engine gets it. Injected everywhere, so that tests can let days pass in no time."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from perdure.kernel.values import SECOND, Instant
from perdure.stores.clocks import Count, StoreClock

LONGEST_NAP: Instant = SECOND
"""A long wait is taken in pieces: the event loop does not count while the machine sleeps, and walls may be set."""


class Alarm(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> Instant:
        """The store's clock: never goes back, whatever anybody sets."""

    def wall(self) -> Instant:
        """What a clock on the wall shows; may be set at any time, and then jumps."""

    def call_at(self, at: Instant, callback: Callable[[], None]) -> Alarm: ...

    def call_at_wall(self, at: Instant, callback: Callable[[], None]) -> Alarm:
        """When the wall shows that instant, however its clock is set meanwhile."""


class SystemClock:
    """Real time. It follows the store that is opened with it; before that it counts by itself."""

    def __init__(self) -> None:
        self._latest: Instant = 0
        self._timepiece: StoreClock = Count()

    def follow(self, timepiece: StoreClock) -> None:
        self._timepiece = timepiece
        self._latest = 0

    def now(self) -> Instant:
        reading = self._timepiece.now()
        if reading > self._latest:
            self._latest = reading
        return self._latest

    def wall(self) -> Instant:
        return self._timepiece.wall()

    def call_at(self, at: Instant, callback: Callable[[], None]) -> Alarm:
        return _SystemAlarm(self.now, at, callback)

    def call_at_wall(self, at: Instant, callback: Callable[[], None]) -> Alarm:
        return _SystemAlarm(self.wall, at, callback)


class _SystemAlarm:
    def __init__(self, now: Callable[[], Instant], at: Instant, callback: Callable[[], None]) -> None:
        self._now = now
        self._at = at
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._nap()

    def _nap(self) -> None:
        left = self._at - self._now()
        self._handle = self._loop.call_later(max(0, min(left, LONGEST_NAP)) / SECOND, self._wake)

    def _wake(self) -> None:
        if self._now() < self._at:
            self._nap()
        else:
            self._callback()

    def cancel(self) -> None:
        self._handle.cancel()
