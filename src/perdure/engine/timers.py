"""One alarm for everything that is due: timers of resident runs, and the due times of parked ones."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from perdure.engine.clock import Alarm, Clock
from perdure.kernel.values import Instant, RunId


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
        self._alarm = self._clock.call_at(due, self._ring)

    def _ring(self) -> None:
        self._armed = self._alarm = None
        now = self._clock.now()
        runs = []
        while self._resident and self._resident[0][0] <= now:
            runs.append(heappop(self._resident)[1])
        look = self._parked is not None and self._parked <= now
        if look:
            self._parked = None
        self._wake(runs, look)
        self._arm()

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
