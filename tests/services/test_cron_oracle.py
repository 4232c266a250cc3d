"""Generated schedules, read here and by cronsim, which follows Debian's cron (docs/decisions/0018).

The two differ in two rules for the days on which clocks change, and in nothing else: cronsim moves a time that is
left out to the end of the gap, and repeats `*/10 2 * * *` when the hour is repeated. The test takes both out of
cronsim's answer by looking at the written fields.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from perdure.expressions.cron import find_zone, read_cron
from perdure.kernel.json_values.values import SECOND

cronsim = pytest.importorskip("cronsim", reason="cronsim, the oracle, is not installed")

ZONES = ("UTC", "Europe/Oslo", "America/New_York", "America/Santiago", "Asia/Kathmandu", "Africa/Casablanca")
CHANGES = {
    "Europe/Oslo": (datetime(2027, 3, 28, tzinfo=UTC), datetime(2027, 10, 31, tzinfo=UTC)),
    "America/New_York": (datetime(2027, 3, 14, tzinfo=UTC), datetime(2027, 11, 7, tzinfo=UTC)),
    "America/Santiago": (datetime(2027, 4, 4, tzinfo=UTC), datetime(2027, 9, 5, tzinfo=UTC)),
}
COMPARED = 5


def _field(low: int, high: int, *, words: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    spans = st.tuples(number, number).filter(lambda pair: pair[0] < pair[1]).map(lambda pair: f"{pair[0]}-{pair[1]}")
    step = st.integers(2, 12)
    single = st.one_of(number.map(str), spans, st.builds("{}/{}".format, spans, step))
    if words:
        single = st.one_of(single, st.sampled_from(words))
    return st.one_of(
        st.just("*"),
        st.builds("*/{}".format, step),
        st.builds("{}/{}".format, number, step),
        st.lists(single, min_size=1, max_size=3).map(",".join),
    )


SCHEDULES = st.tuples(
    _field(0, 59),
    _field(0, 23),
    st.one_of(st.just("*"), _field(1, 31)),
    st.one_of(st.just("*"), _field(1, 12, words=("jan", "MAR", "oct"))),
    st.one_of(st.just("*"), _field(0, 7, words=("sun", "Mon", "FRI"))),
).map(" ".join)


@st.composite
def _starts(draw: st.DrawFn) -> tuple[str, datetime]:
    zone = draw(st.sampled_from(ZONES))
    near = CHANGES.get(zone)
    base = draw(st.sampled_from(near)) - timedelta(days=1) if near and draw(st.booleans()) else None
    base = base or datetime(2027, 1, 1, tzinfo=UTC) + timedelta(days=draw(st.integers(0, 364)))
    return zone, base + timedelta(minutes=draw(st.integers(0, 2 * 24 * 60)))


def _theirs(schedule: str, zone: str, start: datetime) -> Iterator[datetime]:
    """Strikes of cronsim in UTC, without those that it moves or repeats and we do not."""
    oracle = cronsim.CronSim(schedule, start.astimezone(ZoneInfo(zone)))
    repeats = schedule.split()[1].startswith("*")
    for strike in oracle:
        is_moved = strike.hour not in oracle.hours or strike.minute not in oracle.minutes
        if not is_moved and (repeats or not strike.fold):
            yield strike.astimezone(UTC)


def _ours(schedule: str, zone: str, start: datetime) -> Iterator[datetime]:
    at: int | None = int(start.timestamp()) * SECOND
    while at is not None:
        at = read_cron(schedule).next_after(at, find_zone(zone))
        if at is not None:
            yield datetime.fromtimestamp(at // SECOND, UTC)


@settings(max_examples=80, deadline=None, database=None, derandomize=True)
@given(SCHEDULES, _starts())
@example("30 2 * * *", ("Europe/Oslo", datetime(2027, 3, 27, tzinfo=UTC)))
@example("30 2 * * *", ("Europe/Oslo", datetime(2027, 10, 30, tzinfo=UTC)))
@example("*/10 2 * * *", ("Europe/Oslo", datetime(2027, 10, 30, 12, tzinfo=UTC)))
@example("0 * * * *", ("America/New_York", datetime(2027, 11, 7, tzinfo=UTC)))
@example("0 0 * * *", ("America/Santiago", datetime(2027, 9, 4, tzinfo=UTC)))
@example("0 0 29 2 *", ("UTC", datetime(2027, 1, 1, tzinfo=UTC)))
def test_strikes_agree_with_cronsim(schedule: str, where: tuple[str, datetime]) -> None:
    """STY-160"""
    zone, start = where
    try:
        theirs = list(islice(_theirs(schedule, zone, start), COMPARED))
    except cronsim.CronSimError:  # it refuses days that no month has; here such a schedule never strikes
        assert next(_ours(schedule, zone, start), None) is None
        return
    assume(theirs and theirs[-1] - start < timedelta(days=366 * 9))
    assert list(islice(_ours(schedule, zone, start), COMPARED)) == theirs


def test_rules_for_changed_clocks_differ_from_cronsim() -> None:
    """Why cronsim is no replacement: with it documents that exist would start runs at other times."""
    zone = ZoneInfo("Europe/Oslo")
    spring = next(cronsim.CronSim("30 2 * * *", datetime(2027, 3, 28, tzinfo=zone)))
    assert (spring.day, spring.hour, spring.minute) == (28, 3, 0)  # moved; ours strikes next on the 29th
    autumn = list(islice(cronsim.CronSim("*/30 2 * * *", datetime(2027, 10, 31, tzinfo=zone)), 4))
    assert [strike.fold for strike in autumn] == [0, 0, 1, 1]  # repeated; ours strikes twice
