"""Durations and timestamps of MWL as the kernel counts them: microseconds (MWL-087, MWL-088, MWL-089)."""

import re
from datetime import UTC, datetime, timedelta

from perdure.expressions.cel import EvaluationFault
from perdure.expressions.mwl import parse_iso_duration
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.lazy_regex import lazy_regex

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)

FIRST: Instant = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICRO
LAST: Instant = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICRO
"""The last instant that can be represented: a wait that would end later never ends."""

_TIMESTAMP = lazy_regex(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)


def clamp(instant: int) -> Instant:
    return min(max(instant, FIRST), LAST)


def parse_duration(text: str) -> Instant:
    """Microseconds of an ISO 8601 duration; `ValueError` outside the grammar. Values out of range are clamped."""
    try:
        return parse_iso_duration(text).nanos // 1000
    except EvaluationFault:
        return -LAST if text.startswith("-") else LAST


def parse_timestamp(text: str) -> Instant:
    """The instant of an RFC 3339 date-time; `ValueError` for anything else, a bare date included."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:60]!r} is not an RFC 3339 timestamp (expected e.g. 2030-01-31T12:00:00Z)")
    year, month, day, hour, minute, second = (int(match[at]) for at in range(1, 7))
    if second > 60 or (match[9] and (int(match[9]) > 23 or int(match[10]) > 59)):
        raise ValueError(f"{text[:60]!r} is not an RFC 3339 timestamp: a part is out of range")
    try:
        # Python knows neither the leap second 60 nor the year 0, and both are valid here.
        at = (datetime(year or 1, month, day, hour, minute, tzinfo=UTC) - _EPOCH) // _MICRO + second * SECOND
    except ValueError as error:
        raise ValueError(f"{text[:60]!r} is not an RFC 3339 timestamp: {error}") from None
    at += int((match[7] or "0")[:6].ljust(6, "0"))
    if match[8]:
        offset = (int(match[9]) * 3600 + int(match[10]) * 60) * SECOND
        at += -offset if match[8] == "+" else offset
    return clamp(at)


def as_datetime(at: Instant) -> datetime:
    return _EPOCH + timedelta(microseconds=clamp(at))


def write_timestamp(at: Instant) -> str:
    """RFC 3339 with every digit of the instant, so that reading it back gives the same one (MWL-162)."""
    return as_datetime(at).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
