"""Instants and spans as people read and write them. Inside Perdure both are microseconds."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from perdure.kernel.json_values.values import SECOND, Instant

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3_600 * SECOND,
    "d": 86_400 * SECOND,
    "w": 7 * 86_400 * SECOND,
}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)")
_SPAN = re.compile(rf"(?:{_PIECE.pattern}\s*)+")
_LONGEST = 1_000 * 52 * _UNITS["w"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)


def read_span(text: str) -> Instant:
    """`250ms`, `5s`, `1h30m`, `7d`; a bare number is seconds."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        length = float(text) * SECOND
    elif not _SPAN.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is not a duration such as 250ms, 5s, 1h30m or 7d")
    else:
        length = sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(text))
    if length > _LONGEST:
        raise ValueError(f"{text[:60]!r} is longer than {_LONGEST // _UNITS['w'] // 52} years")
    return int(length)


EARLIEST = -62_135_596_800 * SECOND  # the first instant that can be written


def read_instant(text: str, now: Instant) -> Instant:
    """`2026-05-01`, `2026-05-01T12:30`, with or without a zone (default: the local one); `2h` is two hours ago."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - read_span(text)
        except ValueError:
            raise ValueError(f"{text!r} is neither a time such as 2026-05-01T12:30 nor an age such as 2h") from None
    return _instant_of(moment)


def _instant_of(moment: datetime) -> Instant:
    """Raises `ValueError` if it is not in the years 1 to 9999 of UTC, whatever its zone says."""
    try:
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    except OverflowError:
        raise ValueError(f"{moment.isoformat()!r} is not in the years 1 to 9999 of UTC") from None


def iso(at: Instant | None) -> str | None:
    """For programs: UTC, to the microsecond."""
    return None if at is None else (_NAIVE_EPOCH + timedelta(microseconds=at)).isoformat(timespec="microseconds") + "Z"


def local(at: Instant, *, fine: bool = False) -> str:
    """For people: their own time."""
    moment = _EPOCH + timedelta(microseconds=at)
    with suppress(OverflowError):  # the last day of the year 9999 is over in the east
        moment = moment.astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{moment.microsecond // 1_000:03}" if fine else "")


def span(length: Instant) -> str:
    """Two units at most: `0.4 s`, `12 s`, `3 m 05 s`, `2 h 10 m`, `5 d 3 h`."""
    seconds = max(0, length) / SECOND
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60:02} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"


def read_time(text: str | None) -> Instant | None:
    """An instant as a parameter of the API; a time without a zone is UTC."""
    if text is None:
        return None
    from perdure.views.errors import BadRequest

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{text[:60]!r} is not a time (expected e.g. 2026-05-01T12:30:00Z)") from None
    try:
        return _instant_of(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    except ValueError as problem:
        raise BadRequest(str(problem)) from None
