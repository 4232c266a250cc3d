"""A clock that stands still until it is told to move."""

from collections.abc import Callable
from heapq import heappop, heappush

from perdure.engine.clock import Alarm
from perdure.kernel.values import Instant

START: Instant = 1_800_000_000_000_000


class FakeClock:
    def __init__(self, start: Instant = START) -> None:
        self._now = start
        self.set_forward: Instant = 0  # by how much somebody has set the clock on the wall; negative: back
        self._alarms: list[tuple[Instant, int, FakeAlarm]] = []
        self._count = 0

    def now(self) -> Instant:
        return self._now

    def wall(self) -> Instant:
        return self._now + self.set_forward

    def call_at(self, at: Instant, callback: Callable[[], None]) -> Alarm:
        self._count += 1
        alarm = FakeAlarm(callback)
        heappush(self._alarms, (at, self._count, alarm))
        return alarm

    def next_alarm(self) -> Instant | None:
        while self._alarms and self._alarms[0][2].callback is None:
            heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def move_to(self, instant: Instant) -> None:
        """Let time pass; alarms ring in order, each at its own instant."""
        while (due := self.next_alarm()) is not None and due <= instant:
            self._now = max(self._now, due)
            alarm = heappop(self._alarms)[2]
            callback, alarm.callback = alarm.callback, None
            assert callback is not None
            callback()
        self._now = max(self._now, instant)


class FakeAlarm:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None
