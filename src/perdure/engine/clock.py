"""Time, as the engine gets it. Injected everywhere, so that tests can let days pass in no time."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from perdure.kernel.values import SECOND, Instant

LONGEST_NAP: Instant = 60 * SECOND
"""A long wait is taken in pieces: the wall clock may be set meanwhile, and the due instant is on the wall."""


class Alarm(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> Instant:
        """Never goes back."""

    def call_at(self, at: Instant, callback: Callable[[], None]) -> Alarm: ...


class SystemClock:
    def __init__(self) -> None:
        self._latest: Instant = 0
        self.ahead: Instant = 0
        """How far the clock that all servers share is ahead of this machine's."""

    def now(self) -> Instant:
        reading = time.time_ns() // 1_000 + self.ahead
        if reading > self._latest:
            self._latest = reading
        return self._latest

    def call_at(self, at: Instant, callback: Callable[[], None]) -> Alarm:
        return _SystemAlarm(self, at, callback)


class _SystemAlarm:
    def __init__(self, clock: SystemClock, at: Instant, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._at = at
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._nap()

    def _nap(self) -> None:
        left = self._at - self._clock.now()
        self._handle = self._loop.call_later(max(0, min(left, LONGEST_NAP)) / SECOND, self._wake)

    def _wake(self) -> None:
        if self._clock.now() < self._at:
            self._nap()
        else:
            self._callback()

    def cancel(self) -> None:
        self._handle.cancel()
