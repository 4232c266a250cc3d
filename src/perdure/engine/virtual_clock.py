"""A clock that stands still until it is moved: for runs in virtual time, and for tests."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from perdure.engine.clock import Alarm
from perdure.kernel.json_values.values import Instant

START: Instant = 1_800_000_000_000_000


class VirtualClock:
    def __init__(self, start: Instant = START) -> None:
        self._now = start
        self._ahead: Instant = 0  # by how much somebody has set the clock on the wall
        self._alarms: list[tuple[Instant, int, VirtualAlarm]] = []
        self._count = 0

    def now(self) -> Instant:
        return self._now

    def wall(self) -> Instant:
        return self._now + self._ahead

    def set_wall(self, by: Instant) -> None:
        """Somebody sets the clock on the wall: forward, or back."""
        self._ahead += by
        self._alarms = [(at - by if alarm.is_on_wall else at, count, alarm) for at, count, alarm in self._alarms]
        heapify(self._alarms)

    def call_at(self, at: Instant, callback: Callable[[], None]) -> Alarm:
        return self._call(at, VirtualAlarm(callback))

    def call_at_wall(self, at: Instant, callback: Callable[[], None]) -> Alarm:
        return self._call(at - self._ahead, VirtualAlarm(callback, is_on_wall=True))

    def _call(self, at: Instant, alarm: "VirtualAlarm") -> Alarm:
        self._count += 1
        heappush(self._alarms, (at, self._count, alarm))
        return alarm

    def next_alarm(self) -> Instant | None:
        """When the next thing is due, if anything is."""
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


class VirtualAlarm:
    def __init__(self, callback: Callable[[], None], *, is_on_wall: bool = False) -> None:
        self.callback: Callable[[], None] | None = callback
        self.is_on_wall = is_on_wall

    def cancel(self) -> None:
        self.callback = None
