"""Timestamps and durations: integer nanoseconds, their ranges, their text forms. Nothing here reads a clock.

Civil dates are computed by `datetime` from whole seconds, so nanoseconds stay exact.
"""

from datetime import UTC, datetime, timedelta

from perdure.expressions.cel.values import INT_MAX, INT_MIN, declare_type
from perdure.expressions.errors import EvaluationFault
from perdure.kernel.lazy_regex import lazy_regex

NANOS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800 * NANOS, 253_402_300_800 * NANOS - 1
_LONGEST = 315_576_000_000 * NANOS


class Duration:
    """A duration."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        if not -_LONGEST <= nanos <= _LONGEST:
            raise EvaluationFault("the duration is out of range")
        self.nanos = nanos

    def __repr__(self) -> str:
        return f"duration({format_duration(self)!r})"


class Timestamp:
    """An instant between the years 1 and 9999, counted from 1970 in UTC."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        if not _FIRST <= nanos <= _LAST:
            raise EvaluationFault("the timestamp is not between the years 1 and 9999")
        self.nanos = nanos

    def to_datetime(self) -> datetime:
        """In UTC, whole seconds."""
        return _EPOCH + timedelta(seconds=self.nanos // NANOS)

    def __repr__(self) -> str:
        return f"timestamp({format_timestamp(self)!r})"


declare_type(Duration, "google.protobuf.Duration")
declare_type(Timestamp, "google.protobuf.Timestamp")


def time_between(later: Timestamp, earlier: Timestamp) -> Duration:
    """CEL counts a difference in 64-bit nanoseconds, so its maximum is about 292 years."""
    nanos = later.nanos - earlier.nanos
    if not INT_MIN <= nanos <= INT_MAX:
        raise EvaluationFault("the timestamps are too far apart for a duration")
    return Duration(nanos)


# Text forms ---------------------------------------------------------------------------------------------------------

_LONGEST_TEXT = 1000  # no instant or duration is written with more

_RFC3339 = lazy_regex(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339 with offset or `Z`. Second 60 is read as the next minute's 0; digits beyond nanoseconds are dropped."""
    match = _RFC3339.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise EvaluationFault(f"{text[:60]!r} is not an RFC 3339 timestamp")
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    leap = second == 60
    try:
        civil = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=UTC)
    except ValueError as wrong:
        raise EvaluationFault(f"{text[:60]!r} is not a timestamp: {wrong}") from None
    offset_hours, offset_minutes = int(match[9] or 0), int(match[10] or 0)
    if offset_hours > 23 or offset_minutes > 59:
        raise EvaluationFault(f"{text[:60]!r} has no valid offset")
    offset = (offset_hours * 60 + offset_minutes) * 60
    elapsed = civil - _EPOCH
    seconds = elapsed.days * 86_400 + elapsed.seconds + leap - (-offset if match[8] == "-" else offset)
    return Timestamp(seconds * NANOS + int((match[7] or "")[:9].ljust(9, "0")))


def format_timestamp(instant: Timestamp) -> str:
    civil = instant.to_datetime()
    text = f"{civil.year:04}-{civil.month:02}-{civil.day:02}T{civil.hour:02}:{civil.minute:02}:{civil.second:02}"
    return f"{text}{_fraction(instant.nanos % NANOS)}Z"


_UNITS = {"h": 3600 * NANOS, "m": 60 * NANOS, "s": NANOS, "ms": 1_000_000, "us": 1000, "µs": 1000, "ns": 1}
_PART = lazy_regex(r"([0-9]*)(?:\.([0-9]*))?(h|ms|m|s|us|µs|ns)")


def parse_duration(text: str) -> Duration:
    """CEL's form: an optional sign, then numbers with units, such as `1h30m`, `-1.5s`, `250ms`; or a bare `0`."""
    body = text[1:] if text[:1] in ("+", "-") else text
    nanos, at = 0, 0
    if body != "0":
        body = body if len(body) <= _LONGEST_TEXT else ""
        while at < len(body) and (part := _PART.match(body, at)) and (part[1] or part[2]) and part.end() - at < 60:
            unit = _UNITS[part[3]]
            fraction = part[2] or ""
            nanos += int(part[1] or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
            at = part.end()
        if at < len(body) or not body:
            raise EvaluationFault(f"{text[:60]!r} is not a duration (expected e.g. '1h30m' or '2.5s')")
    return Duration(-nanos if text[:1] == "-" else nanos)


def format_duration(span: Duration) -> str:
    seconds, rest = divmod(abs(span.nanos), NANOS)
    return f"{'-' if span.nanos < 0 else ''}{seconds}{_fraction(rest)}s"


def _fraction(nanos: int) -> str:
    return "." + f"{nanos:09}".rstrip("0") if nanos else ""
