"""Where time comes from: the one place that asks the machine.

A store's clock is a count that no setting of a wall clock moves: the time since the machine was booted, sleep included,
plus an offset that is kept in the store (ARCHITECTURE.md, invariant 30). `sources` is what tests replace.
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from perdure.kernel.json_values.values import SECOND, Instant
from perdure.stores.errors import StoreClockBehind

MOST_BEHIND: Instant = 86_400 * SECOND
_LATEST: Instant = 253_402_300_799 * SECOND  # the last second of the year 9999
_NANOSECONDS = 1_000
_NAMELESS = "nameless "

if hasattr(time, "CLOCK_BOOTTIME"):
    _COUNTS_SLEEP = time.CLOCK_BOOTTIME
elif sys.platform == "darwin":
    _COUNTS_SLEEP = time.CLOCK_MONOTONIC_RAW
else:
    _COUNTS_SLEEP = time.CLOCK_MONOTONIC


_read_clock = time.clock_gettime_ns


def _boot() -> Instant:
    return _read_clock(_COUNTS_SLEEP) // _NANOSECONDS


def _wall() -> Instant:
    return time.time_ns() // _NANOSECONDS


@cache
def _machine() -> str:
    try:
        if sys.platform == "darwin":
            import subprocess  # only there: it takes long to load

            completed = subprocess.run(
                ["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False
            )
            return completed.stdout.strip() or _NAMELESS + token_hex(16)
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return _NAMELESS + token_hex(16)  # a count of this process alone


class ClockSources:
    """`boot` never jumps and goes on while the machine sleeps; `machine` names the boot that it counts from."""

    def __init__(self) -> None:
        self.boot: Callable[[], Instant] = _boot
        self.wall: Callable[[], Instant] = _wall
        self.machine: Callable[[], str] = _machine


sources = ClockSources()


def machine() -> str:
    """This machine and its present boot; empty where the system gives that no name."""
    boot = sources.machine()
    return "" if boot.startswith(_NAMELESS) else f"{boot} {os.uname().nodename}"


class StoreClock(Protocol):
    def now(self) -> Instant:
        """The store's clock."""

    def wall(self) -> Instant:
        """What a clock on the wall shows: that of the machine that has the store."""


def wall_offset() -> Instant:
    """What the wall shows beyond boot time; both are read at one moment, or nearly."""
    before, wall, after = sources.boot(), sources.wall(), sources.boot()
    return wall - (before + after) // 2


class BootClock:
    """Boot time and an offset: at first the one that makes it agree with the wall."""

    def __init__(self) -> None:
        self.offset: Instant = wall_offset()

    def now(self) -> Instant:
        boot = sources.boot  # read here unless a test has replaced it: every step asks, and saves a call
        return (_read_clock(_COUNTS_SLEEP) // _NANOSECONDS if boot is _boot else boot()) + self.offset

    def wall(self) -> Instant:
        return sources.wall()


def refuse_behind(store: str, wall: Instant, last: Instant) -> None:
    """A clock that is far behind what is recorded is wrong: what is due would wait for days."""
    if wall < last - MOST_BEHIND:
        raise StoreClockBehind(
            f"{store}: the clock says {format_instant(wall)},"
            f" but the last record of the store is of {format_instant(last)}"
        )


def format_instant(at: Instant) -> str:
    return f"{datetime.fromtimestamp(min(max(at, 0), _LATEST) // SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"
