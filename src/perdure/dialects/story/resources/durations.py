"""Durations in Stories, in Go's notation: `300ms`, `1.5s`, `2h45m`. A number without a unit is invalid, except `0`."""

from typing import Any

from perdure.expressions.gotemplate.durations import format_duration, parse_duration
from perdure.expressions.gotemplate.instants import BadInstant
from perdure.kernel.json_values.values import SECOND, Instant

_NANOSECONDS = 1_000  # in a microsecond, which is what an Instant counts

SHORTEST_POLL: Instant = 10_000
"""The shortest time between two checks of a condition, whatever the Story says (STY-032, STY-099)."""


class BadDuration(ValueError):
    """Not a duration; the message says why."""


def read_duration(text: Any) -> Instant:
    """Read a duration, rounded up to a microsecond. Raises `BadDuration`."""
    if not isinstance(text, str):
        raise BadDuration(f"{text!r} is not a duration (expected e.g. 30s or 1h30m)")
    try:
        nanoseconds = parse_duration(text.strip())
    except BadInstant as error:
        raise BadDuration(str(error)) from None
    return -(-nanoseconds // _NANOSECONDS) if nanoseconds > 0 else nanoseconds // _NANOSECONDS


def read_positive(text: Any) -> Instant:
    """Read a duration above zero. Raises `BadDuration`."""
    duration = read_duration(text)
    if duration <= 0:
        raise BadDuration("duration must be positive")
    return duration


def write_duration(duration: Instant) -> str:
    """Format a duration as Go does: `1m30s`, `250ms`."""
    return format_duration(duration * _NANOSECONDS)


def write_rounded(duration: Instant) -> str:
    """Format a duration rounded to whole seconds, half a second up: the `duration` of runs (section 1.7)."""
    return write_duration((duration + SECOND // 2) // SECOND * SECOND)
