"""Times of schedules: generated schedules in zones whose clocks change, and what follows from missed times."""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.expressions.cron import MINUTE, find_zone, read_cron
from perdure.expressions.timetables import (
    Overlap,
    OverlapDecision,
    Timetable,
    decide,
    jitter_of,
    overlap_of_backfill,
)
from perdure.kernel.json_values.values import SECOND, Instant

CRONS = ["* * * * *", "*/7 * * * *", "30 2 * * *", "*/20 1-3 * * *", "0 0 * * sun", "15 3 1 * *", "5 4 * * mon-fri"]
ZONES = ["UTC", "Europe/Oslo", "America/Santiago", "Australia/Lord_Howe", "Asia/Kathmandu"]
DAY = 24 * 60 * MINUTE


def at(text: str, zone: str = "UTC") -> Instant:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * SECOND


starts = st.builds(
    lambda day, minute, second: at("2027-01-01") + day * DAY + minute * MINUTE + second * SECOND,
    st.one_of(st.integers(0, 364), st.sampled_from([85, 86, 87, 302, 303, 304, 92, 93, 94, 246, 247, 248])),
    st.integers(0, 24 * 60),
    st.integers(0, 59),
)


@pytest.mark.sampled(2)
@settings(deadline=None)
@given(st.sampled_from(CRONS), st.sampled_from(ZONES), starts, st.integers(1, 4 * 24 * 60))
@example("30 2 * * *", "Europe/Oslo", at("2027-03-27"), 3 * 24 * 60)
@example("*/20 1-3 * * *", "Europe/Oslo", at("2027-10-30"), 3 * 24 * 60)
def test_the_times_of_a_range_are_those_minutes_that_match(cron: str, zone: str, after: Instant, minutes: int) -> None:
    """Enumerated by days or asked minute by minute: the same, in order, each once."""
    schedule, place = read_cron(cron), find_zone(zone)
    until = after + minutes * MINUTE
    first = after - after % MINUTE + MINUTE
    expected = [instant for instant in range(first, until + 1, MINUTE) if schedule.matches(instant, place)]

    assert list(schedule.between(after, until, place)) == expected
    upcoming = schedule.next_after(after, place)
    assert upcoming is not None and upcoming > after
    if expected:
        assert upcoming == expected[0] and schedule.latest(after, until, place) == expected[-1]


class CountedZone(tzinfo):
    """UTC, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def utcoffset(self, when: datetime | None) -> timedelta:
        self.asked += 1
        return timedelta(0)

    def dst(self, when: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, when: datetime | None) -> str:
        return "counted"


def test_the_times_of_the_last_minutes_cost_a_look_at_each_minute() -> None:
    """Every schedule is looked at again and again: no whole day is enumerated for it."""
    zone = CountedZone()
    until = at("2027-03-27T12:00")

    assert len(list(read_cron("* * * * *").between(until - 10 * MINUTE, until, zone))) == 10
    assert zone.asked < 50


@pytest.mark.parametrize(
    ("cron", "zone", "begin", "expected"),
    [
        ("30 2 * * *", "Europe/Oslo", "2027-03-28", []),  # from 02:00 to 03:00 there is no time that day
        ("0 3 * * *", "Europe/Oslo", "2027-03-28", ["01:00"]),
        ("30 2 * * *", "Europe/Oslo", "2027-10-31", ["00:30"]),  # 02:30 occurs twice: the first one counts
        ("30 * * * *", "Europe/Oslo", "2027-10-31", [f"{hour:02}:30" for hour in (22, 23, *range(23))]),
        ("45 1 * * *", "Australia/Lord_Howe", "2027-04-04", ["14:45"]),  # clocks go back by half an hour
        ("15 2 * * *", "Australia/Lord_Howe", "2027-10-03", []),
        ("0 0 * * *", "America/Santiago", "2027-09-05", []),  # midnight does not exist that day
    ],
)
def test_days_on_which_clocks_change(cron: str, zone: str, begin: str, expected: list[str]) -> None:
    """Invariant 30, STY-160: a time that is left out does not occur, one that is repeated occurs once."""
    start = at(begin, zone)
    following = (datetime.fromisoformat(begin) + timedelta(days=1)).date().isoformat()
    times = read_cron(cron).between(start - 1, at(following, zone) - 1, find_zone(zone))

    assert [datetime.fromtimestamp(instant // SECOND, UTC).strftime("%H:%M") for instant in times] == expected


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(CRONS),
    starts,
    st.integers(0, 30 * 60),
    st.integers(0, 30 * 60),
    st.lists(st.integers(1, 600), min_size=1, max_size=6),
    st.integers(20, 300),  # fewer at a time take long: each time a day is computed anew
)
def test_catching_up_in_any_number_of_steps_starts_the_same_times(
    cron: str, begin: Instant, minutes: int, window: int, steps: list[int], most: int
) -> None:
    """Whoever looks after each step, having recorded the last time, starts each time once, and misses only old ones.

    So does one who takes some at a time.
    """
    table = Timetable(read_cron(cron), find_zone("Europe/Oslo"), catch_up=(window + 1) * MINUTE)
    now, since, started = begin + minutes * MINUTE, begin, list[Instant]()
    for step in steps:
        while due := table.due(since, now, most):
            assert all(now - table.catch_up <= instant <= now for instant in due)
            started += due
            since = due[-1]
        now += step * MINUTE
    assert started == sorted(set(started))
    all_times = set(table.times(begin, now))
    assert set(started) <= all_times
    if minutes <= window and max(steps) <= window:
        last_look = now - steps[-1] * MINUTE
        assert set(started) == {instant for instant in all_times if instant <= last_look}


@settings(deadline=None)
@given(st.sampled_from(CRONS), starts, st.integers(0, 3 * 24 * 60))
def test_without_a_catch_up_window_at_most_the_latest_time_is_due(cron: str, since: Instant, minutes: int) -> None:
    """STY-162"""
    table = Timetable(read_cron(cron), find_zone("UTC"), deadline=10 * MINUTE)
    now = since + minutes * MINUTE
    times = [instant for instant in table.times(since, now) if now - instant <= 10 * MINUTE]

    assert table.due(since, now, 5) == times[-1:]


@given(st.text(max_size=40), st.integers(0, 10**12))
def test_a_jitter_follows_from_its_seed_and_stays_within_its_bounds(seed: str, most: Instant) -> None:
    """Invariant 10"""
    assert 0 <= jitter_of(seed, most) <= most
    assert jitter_of(seed, most) == jitter_of(seed, most)


def test_jitters_are_spread_over_their_range() -> None:
    delays = [jitter_of(f"cron:x:y:{number}", 1_000) for number in range(2_000)]

    assert len(set(delays)) > 700 and min(delays) < 50 and max(delays) > 950
    assert 450 < sum(delays) / len(delays) < 550


@given(st.sampled_from(Overlap), st.booleans())
def test_what_becomes_of_a_time_that_is_due(overlap: Overlap, is_open: bool) -> None:
    expected = {
        Overlap.ALLOW: OverlapDecision.START,
        Overlap.SKIP: OverlapDecision.SKIP,
        Overlap.QUEUE: OverlapDecision.WAIT,
        Overlap.CANCEL_PREVIOUS: OverlapDecision.REPLACE,
    }[overlap]

    assert decide(overlap, is_previous_open=is_open) is (expected if is_open else OverlapDecision.START)
    assert decide(overlap_of_backfill(overlap), is_previous_open=is_open) in (
        OverlapDecision.START,
        OverlapDecision.WAIT,
    )
