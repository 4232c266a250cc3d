"""Durations as authors write them: a number of seconds, or a text such as `30s`, `5m`, `2h`, `1d`."""

from typing import Any

from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.lazy_regex import lazy_regex

BOUND_RANK = 1
"""The rank of timers that bound something: at one instant the end of a wait comes first."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_TEXT = lazy_regex(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*")
_LONGEST = 100 * 365 * 86_400.0


def read_seconds(value: Any) -> float | None:
    """None if it is not a duration."""
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        value = None if match is None else float(match[1]) * _UNITS[match[2] or "s"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST:
        return None
    return float(value)


def read_span(value: Any) -> Instant | None:
    seconds = read_seconds(value)
    return None if seconds is None else int(seconds * SECOND)
