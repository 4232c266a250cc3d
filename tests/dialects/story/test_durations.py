"""Go durations, as Stories write them."""

import pytest

from perdure.dialects.story.resources.durations import (
    BadDuration,
    read_duration,
    read_positive,
    write_duration,
    write_rounded,
)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("300ms", 300_000),
        ("1.5s", 1_500_000),
        ("2h45m", 9_900_000_000),
        ("0", 0),
        ("-1s", -1_000_000),
        ("250us", 250),
        ("1ns", 1),
        (" 5s ", 5_000_000),
    ],
)
def test_durations_are_read(text: str, microseconds: int) -> None:
    """STY-083: and never to nothing, when something was written."""
    assert read_duration(text) == microseconds


@pytest.mark.parametrize("text", ["", "5", "s", "1d", "1 s", "soon", "5m5", 5, None, True])
def test_everything_else_is_refused(text: object) -> None:
    with pytest.raises(BadDuration):
        read_duration(text)


@pytest.mark.parametrize("text", ["0", "0s", "-1s"])
def test_some_durations_must_be_positive(text: str) -> None:
    """STY-032, STY-039"""
    with pytest.raises(BadDuration, match="duration must be positive"):
        read_positive(text)


def test_durations_are_written_as_go_does() -> None:
    assert write_duration(63_000_000) == "1m3s"
    assert write_duration(250_000) == "250ms"
    assert write_duration(0) == "0s"


@pytest.mark.parametrize(
    ("span", "text"), [(62_600_000, "1m3s"), (499_999, "0s"), (500_000, "1s"), (3_600_000_000, "1h0m0s")]
)
def test_durations_of_runs_are_whole_seconds(span: int, text: str) -> None:
    assert write_rounded(span) == text
