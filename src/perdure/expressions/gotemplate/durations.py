"""Durations as Go writes them: `1h30m`, `-1.5s`, `250ms`. A duration is a number of nanoseconds."""

from perdure.expressions.gotemplate.instants import BadInstant
from perdure.kernel.lazy_regex import lazy_regex

SECOND = 1_000_000_000
_UNITS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,  # micro sign
    "μs": 1000,  # Greek mu
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART = lazy_regex(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_LONGEST = 2**63 - 1
_ROUGHLY = (("y", 365 * 86400), ("mo", 30 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def parse_duration(text: str) -> int:
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total, at = 0, 0
    while at < len(body) or at == 0:
        part = _PART.match(body, at)
        if part is None or not (part[1] or part[2]) or len(part.group()) > 60:
            raise BadInstant(f"{text[:60]!r} is not a duration (expected e.g. 1h30m or 500ms)")
        unit = _UNITS[part[3]]
        fraction = part[2] or ""
        total += int(part[1] or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        at = part.end()
    if total > _LONGEST:
        raise BadInstant("this duration is longer than 292 years")
    return -total if text[0] == "-" else total


def format_duration(nanoseconds: int) -> str:
    """The shortest form Go prints: `1h0m0s`, `1.5s`, `100ms`, `0s`."""
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if left == 0:
        return "0s"
    if left < SECOND:
        unit = next(name for name in ("ms", "µs", "ns") if left >= _UNITS[name])
        return f"{sign}{_decimal(left, _UNITS[unit])}{unit}"
    minutes, rest = divmod(left, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return sign + (f"{hours}h{text}" if hours else text)


def _decimal(value: int, unit: int) -> str:
    quotient, rest = divmod(value, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{quotient}.{digits}" if digits else str(quotient)


def round_duration(nanoseconds: int) -> str:
    """In the largest unit that is exceeded: `2h`, `3d`, `1y`."""
    left = abs(nanoseconds)
    for name, seconds in _ROUGHLY:
        if left > seconds * SECOND:
            return f"{left // (seconds * SECOND)}{name}"
    return "0s"
