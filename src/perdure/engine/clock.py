"""Time, as the engine gets it. Injected everywhere, so that tests can let days pass in no time."""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol

from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.stores.clocks import BootClock, StoreClock

LONGEST_NAP: Instant = SECOND
"""A long wait is taken in pieces: the event loop does not count while the machine sleeps, and walls may be set."""


LONGEST_BEAT = 10.0  # seconds


def until_beat(seconds: float) -> float:
    """How long to sleep before what is looked at every so many seconds is looked at again.

    All such looks come at multiples of their interval on the event loop's clock, and so together: a process that has
    nothing to do wakes up once for all of them. Long intervals are not shortened for that.
    """
    return seconds - asyncio.get_running_loop().time() % seconds if seconds <= LONGEST_BEAT else seconds


class Alarm(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> Instant:
        """The store's clock: never goes back, whatever anybody sets."""

    def wall(self) -> Instant:
        """What a clock on the wall shows; may be set at any time, and then jumps."""

    def call_at(self, at: Instant, callback: Callable[[], None]) -> Alarm:
        """When the store's clock shows that instant."""

    def call_at_wall(self, at: Instant, callback: Callable[[], None]) -> Alarm:
        """When the wall shows that instant, however its clock is set meanwhile."""


class SystemClock:
    """Real time. It follows the store that is opened with it; before that it counts by itself."""

    def __init__(self) -> None:
        self._latest: Instant = 0
        self.follow(BootClock())

    def follow(self, timepiece: StoreClock) -> None:
        self._timepiece = timepiece
        self._read = timepiece.now
        self._latest = 0

    def now(self) -> Instant:
        reading = self._read()
        if reading > self._latest:
            self._latest = reading
            return reading
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
        remaining = self._at - self._now()
        self._handle = self._loop.call_later(max(0, min(remaining, LONGEST_NAP)) / SECOND, self._wake)

    def _wake(self) -> None:
        if self._now() < self._at:
            self._nap()
        else:
            self._callback()

    def cancel(self) -> None:
        self._handle.cancel()


# One alarm for everything that is due: timers of resident runs, and the due times of parked ones.


class Timers:
    def __init__(
        self, clock: Clock, wake: Callable[[list[RunId], bool], None], is_resident: Callable[[RunId], bool]
    ) -> None:
        """`wake` gets the resident runs that are due, and whether parked ones must be looked for."""
        self._clock = clock
        self._wake = wake
        self._is_resident = is_resident
        self._trim_at = 1_000
        self._resident: list[tuple[Instant, RunId]] = []
        self._parked: Instant | None = None
        self._armed: Instant | None = None
        self._alarm: Alarm | None = None

    def resident(self, due: Instant, run: RunId) -> None:
        heappush(self._resident, (due, run))
        if len(self._resident) > self._trim_at:  # runs that ended long before their bounds leave entries behind
            self._resident = [entry for entry in self._resident if self._is_resident(entry[1])]
            heapify(self._resident)
            self._trim_at = 1_000 + 2 * len(self._resident)
        self._arm()

    def parked(self, due: Instant | None) -> None:
        """A run was parked that is due then; a lower bound is kept, not the run."""
        if due is not None and (self._parked is None or due < self._parked):
            self._parked = due
            self._arm()

    def _arm(self) -> None:
        due = self._resident[0][0] if self._resident else None
        if self._parked is not None and (due is None or self._parked < due):
            due = self._parked
        if due is None or (self._armed is not None and self._armed <= due):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._armed = due
        self._alarm = self._clock.call_at(due, self._fire)

    def _fire(self) -> None:
        self._armed = self._alarm = None
        now = self._clock.now()
        runs = []
        while self._resident and self._resident[0][0] <= now:
            runs.append(heappop(self._resident)[1])
        has_parked = self._parked is not None and self._parked <= now
        if has_parked:
            self._parked = None
        self._wake(runs, has_parked)
        self._arm()

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
