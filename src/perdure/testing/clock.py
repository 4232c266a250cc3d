"""A clock that stands still until a test moves it."""

from perdure.engine.virtual_clock import START as START
from perdure.engine.virtual_clock import VirtualAlarm as FakeAlarm
from perdure.engine.virtual_clock import VirtualClock

__all__ = ["START", "FakeAlarm", "FakeClock"]


class FakeClock(VirtualClock):
    """Begins at a fixed instant; `move_to` lets time pass, and alarms ring in order."""
