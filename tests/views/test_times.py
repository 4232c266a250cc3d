"""Instants and spans as people read and write them."""

import pytest

from perdure.kernel.json_values.values import SECOND
from perdure.views.times import iso, read_instant, read_span, span

MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND


@pytest.mark.parametrize(
    ("text", "length"),
    [("5", 5 * SECOND), ("250ms", SECOND // 4), ("1.5s", 3 * SECOND // 2), ("1h30m", 90 * MINUTE), ("2w", 14 * DAY)],
)
def test_durations_are_read(text: str, length: int) -> None:
    assert read_span(text) == length


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-1s", "1h30"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        read_span(text)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "0.0 s"),
        (-5, "0.0 s"),
        (SECOND * 12, "12 s"),
        (185 * SECOND, "3 m 05 s"),
        (130 * MINUTE, "2 h 10 m"),
        (5 * DAY + 3 * HOUR, "5 d 3 h"),
    ],
)
def test_spans_are_told_in_two_units(length: int, text: str) -> None:
    assert span(length) == text


def test_instants_are_times_or_ages() -> None:
    now = 1_800_000_000 * SECOND

    assert read_instant("2h", now) == now - 2 * HOUR
    assert read_instant("2027-01-15T08:00:00Z", now) == now
    assert read_instant("2027-01-15T09:00+01:00", now) == now
    assert iso(now) == "2027-01-15T08:00:00.000000Z"
    assert iso(None) is None
