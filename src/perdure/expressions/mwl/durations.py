"""ISO 8601 durations as MWL writes them (MWL-088), to and from CEL's durations.

A year is 365 days, a month 30, a week 7 and a day 24 hours (O-05).
"""

from perdure.expressions.cel.instants import NANOS, Duration
from perdure.kernel.lazy_regex import lazy_regex

_DAY = 86_400 * NANOS
_DATE_UNITS = {"Y": 365 * _DAY, "M": 30 * _DAY, "W": 7 * _DAY, "D": _DAY}
_TIME_UNITS = {"H": 3600 * NANOS, "M": 60 * NANOS, "S": NANOS}
_NUMBER = r"[0-9]{1,18}(?:[.,][0-9]{1,30})?"
_SHAPE = lazy_regex(
    rf"(-?)P((?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?)"
    rf"(?:T((?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?))?"
)
_PART = lazy_regex(r"([0-9]+)(?:[.,]([0-9]+))?([YMWDHS])")


def parse_iso_duration(text: str) -> Duration:
    """Raises `ValueError` for text outside the grammar, and `EvaluationFault` beyond CEL's range."""
    shape = _SHAPE.fullmatch(text) if len(text) < 500 else None
    if shape is None or not (shape[2] or shape[3]) or shape[3] == "":
        raise ValueError(f"{text[:60]!r} is not an ISO 8601 duration (expected e.g. PT30S or P1DT12H)")
    parts = [(part, _DATE_UNITS) for part in _PART.finditer(shape[2])]
    parts += [(part, _TIME_UNITS) for part in _PART.finditer(shape[3] or "")]
    if any(part[2] for part, _ in parts[:-1]):
        raise ValueError(f"{text[:60]!r} has a fraction that is not on its smallest unit")
    nanos = 0
    for part, units in parts:
        unit, fraction = units[part[3]], part[2] or ""
        nanos += int(part[1]) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
    return Duration(-nanos if shape[1] else nanos)


def format_iso_duration(span: Duration) -> str:
    """Hours are the largest unit, zero parts are left out (MWL-133)."""
    seconds, nanos = divmod(abs(span.nanos), NANOS)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    text = f"{hours}H" if hours else ""
    text += f"{minutes}M" if minutes else ""
    text += f"{seconds}{fraction}S" if seconds or nanos or not text else ""
    return f"{'-' if span.nanos < 0 else ''}PT{text}"
