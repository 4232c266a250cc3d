"""Spans of time as Stories write them, Go's way: `300ms`, `1.5s`, `2h45m`. A bare number is none, except `0`."""

from typing import Any

from perdure.expressions.gotemplate.durations import format_duration, parse_duration
from perdure.expressions.gotemplate.instants import BadInstant
from perdure.kernel.values import SECOND, Instant

_NANOSECONDS = 1_000  # in a microsecond, which is what an Instant counts

SHORTEST_POLL: Instant = 10_000
"""No look at a condition comes sooner after the last one, whatever is written (STY-032, STY-099)."""


class BadDuration(ValueError):
    """No span of time; the sentence says why."""


def read_duration(text: Any) -> Instant:
    """Raises `BadDuration`. Less than a microsecond counts as one."""
    if not isinstance(text, str):
        raise BadDuration(f"{text!r} is not a duration (expected e.g. 30s or 1h30m)")
    try:
        nanoseconds = parse_duration(text.strip())
    except BadInstant as error:
        raise BadDuration(str(error)) from None
    return -(-nanoseconds // _NANOSECONDS) if nanoseconds > 0 else nanoseconds // _NANOSECONDS


def read_positive(text: Any) -> Instant:
    """Raises `BadDuration`, also for nothing and less than nothing."""
    found = read_duration(text)
    if found <= 0:
        raise BadDuration("duration must be positive")
    return found


def write_duration(span: Instant) -> str:
    """As Go prints it: `1m30s`, `250ms`."""
    return format_duration(span * _NANOSECONDS)


def write_rounded(span: Instant) -> str:
    """Rounded to whole seconds, half a second up: the `duration` of runs (section 1.7)."""
    return write_duration((span + SECOND // 2) // SECOND * SECOND)
