"""Which times of a schedule start a run, when exactly, and what a run that has not ended means for the next one.

    due          the times that passed and are to be started: all within the catch-up window, or the latest one
    starts_at    a time with its jitter, which follows from a seed and is the same in every process
    decide       start, skip, wait in the queue, or cancel the previous run and start

Pure: the time, the seed and the state are passed in.
"""

from collections.abc import Iterator
from datetime import tzinfo
from enum import StrEnum
from hashlib import sha256
from itertools import islice

import msgspec

from perdure.expressions.cron import Cron
from perdure.kernel.json_values.values import SECOND, Instant

STARTING_DEADLINE: Instant = 60 * SECOND
LONGEST_DEADLINE: Instant = 7 * 24 * 3600 * SECOND
LONGEST_CATCH_UP: Instant = 31 * 24 * 3600 * SECOND
MOST_QUEUED = 1_000
MOST_SCHEDULES = 1_000  # of one entry
MOST_WAITING = 2_000  # times of one entry
_SCALE = 1 << 64


class Overlap(StrEnum):
    """What happens at a time when the previous run of the schedule has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_PREVIOUS = "cancelPrevious"


class OverlapDecision(StrEnum):
    START = "start"
    SKIP = "skip"
    WAIT = "wait"
    REPLACE = "replace"


class Timetable(msgspec.Struct, frozen=True):
    cron: Cron
    zone: tzinfo
    jitter: Instant = 0
    overlap: Overlap = Overlap.ALLOW
    deadline: Instant = STARTING_DEADLINE
    catch_up: Instant = 0  # 0: of the times that were missed, only the latest counts

    def times(self, after: Instant, until: Instant) -> Iterator[Instant]:
        """The times within (after, until]."""
        return self.cron.between(after, until, self.zone)

    def next_after(self, after: Instant) -> Instant | None:
        return self.cron.next_after(after, self.zone)

    def due(self, since: Instant, now: Instant, most: int) -> list[Instant]:
        """The first times after `since` that are to be started now; those that are too old are left out.

        There are more than `most` of them where a change of the clocks puts some out of order.
        """
        if self.catch_up:
            begin = max(since, now - self.catch_up - 1)
            first = list(islice(self.times(begin, now), most))
            return sorted(first if len(first) < most else self.times(begin, max(first)))
        latest = self.cron.latest(max(since, now - self.deadline - 1), now, self.zone)
        return [] if latest is None else [latest]

    def starts_at(self, instant: Instant, seed: str) -> Instant:
        return instant + jitter_of(seed, self.jitter)


def jitter_of(seed: str, most: Instant) -> Instant:
    """A delay from 0 to `most`, evenly distributed over seeds."""
    number = int.from_bytes(sha256(seed.encode()).digest()[:8], "big")
    return number * (most + 1) // _SCALE


def decide(overlap: Overlap, *, is_previous_open: bool) -> OverlapDecision:
    """What becomes of a time that is due, given the previous run of its schedule."""
    if not is_previous_open:
        return OverlapDecision.START
    match overlap:
        case Overlap.ALLOW:
            return OverlapDecision.START
        case Overlap.SKIP:
            return OverlapDecision.SKIP
        case Overlap.QUEUE:
            return OverlapDecision.WAIT
        case Overlap.CANCEL_PREVIOUS:
            return OverlapDecision.REPLACE


def overlap_of_backfill(overlap: Overlap) -> Overlap:
    """Times of the past are not skipped, and do not cancel each other: they run one after the other."""
    return Overlap.ALLOW if overlap is Overlap.ALLOW else Overlap.QUEUE
