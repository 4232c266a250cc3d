"""Timestamps and durations: text forms, arithmetic, parts, zones, and the edges of their ranges."""

import pytest
from tests.expressions.cel.evaluation import fault_of, value_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("string(timestamp('2020-02-29T12:00:00.123456789+01:00'))", "2020-02-29T11:00:00.123456789Z"),
        ("string(timestamp('2020-01-01t00:00:00.50z'))", "2020-01-01T00:00:00.5Z"),
        ("string(timestamp('2016-12-31T23:59:60Z'))", "2017-01-01T00:00:00Z"),
        ("int(timestamp('1969-12-31T23:59:59.5Z'))", -1),
        ("string(timestamp(-62135596800))", "0001-01-01T00:00:00Z"),
        ("string(duration('1h30m1.5s'))", "5401.5s"),
        ("string(duration('-1ms'))", "-0.001s"),
        ("string(duration('.5h'))", "1800s"),
        ("string(duration('0'))", "0s"),
        ("string(timestamp(0) + duration('1ns'))", "1970-01-01T00:00:00.000000001Z"),
        ("timestamp(60) - timestamp(0) == duration('1m')", True),
        ("duration('-90m').getHours()", -1),
        ("duration('1.234s').getMilliseconds()", 234),
        ("timestamp('2024-12-31T00:00:00Z').getDayOfYear()", 365),
        ("timestamp('2024-03-10T00:00:00Z').getDayOfWeek()", 0),
        ("timestamp('2024-07-01T12:00:00Z').getHours('Europe/Oslo')", 14),
        ("timestamp('2024-01-01T12:00:00Z').getHours('Europe/Oslo')", 13),
        ("timestamp('2024-01-01T12:00:00Z').getMinutes('-03:30')", 30),
        ("timestamp('2024-01-01T23:30:00Z').getDate('+01:00')", 2),
    ],
)
def test_time_gives(text: str, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timestamp('2020-01-01')", "'2020-01-01' is not an RFC 3339 timestamp"),
        ("timestamp('2020-02-30T00:00:00Z')", "'2020-02-30T00:00:00Z' is not a timestamp"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "the timestamp is not between the years 1 and 9999"),
        ("timestamp(9223372036854775807)", "the timestamp is not between the years 1 and 9999"),
        ("duration('1d')", "'1d' is not a duration (expected e.g. '1h30m' or '2.5s')"),
        ("duration('')", "'' is not a duration (expected e.g. '1h30m' or '2.5s')"),
        ("duration('1h 1m')", "'1h 1m' is not a duration (expected e.g. '1h30m' or '2.5s')"),
        ("duration('400000000000s')", "the duration is out of range"),
        ("timestamp(253402300799) - timestamp(-62135596800)", "the timestamps are too far apart for a duration"),
        ("timestamp(0).getHours('Mars/Base')", "'Mars/Base' is not a time zone"),
        ("timestamp(0).getHours('../../etc/hosts')", "'../../etc/hosts' is not a time zone"),
        ("timestamp(0).getHours('Europe')", "'Europe' is not a time zone"),
        ("timestamp(0).getHours('+99:00')", "'+99:00' is not a time zone"),
        ("timestamp(253402300799).getHours('+14:00')", "in '+14:00' this instant is not between the years 1 and 9999"),
        ("timestamp(0) + timestamp(0)", "no such overload: timestamp + timestamp"),
    ],
)
def test_time_outside_its_bounds_faults(text: str, message: str) -> None:
    assert fault_of(text).message.startswith(message)
