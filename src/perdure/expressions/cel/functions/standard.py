"""The standard library besides conversions: sizes, string tests, parts of times."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache

from perdure.expressions import bounded_calls
from perdure.expressions.cel.frame import Frame, charge, charge_search
from perdure.expressions.cel.functions.library import LIST, MAP, Function, Library
from perdure.expressions.cel.functions.patterns import search
from perdure.expressions.cel.instants import NANOS, Duration, Timestamp
from perdure.expressions.cel.values import Value
from perdure.expressions.errors import EvaluationFault
from perdure.kernel.lazy_regex import lazy_regex

# A timestamp as civil time in a zone: `Europe/Oslo`, `UTC`, `+02:00`, `-03:30`, `02:00`.

_OFFSET = lazy_regex(r"([+-]?)([0-9]{1,2}):([0-9]{2})")
_NAME = lazy_regex(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")


def civil_time(instant: Timestamp, zone: str) -> datetime:
    try:
        return instant.to_datetime().astimezone(_find_zone(zone))
    except OverflowError:
        raise EvaluationFault(f"in {zone!r} this instant is not between the years 1 and 9999") from None


@lru_cache(maxsize=256)
def _find_zone(zone: str) -> tzinfo:
    if zone in ("UTC", "Z", ""):
        return UTC
    if offset := _OFFSET.fullmatch(zone):
        minutes = int(offset[2]) * 60 + int(offset[3])
        if int(offset[2]) < 24 and int(offset[3]) < 60:
            return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    elif len(zone) < 100 and _NAME.fullmatch(zone):
        try:
            from zoneinfo import ZoneInfo

            return ZoneInfo(zone)
        except (OSError, ValueError):  # unknown name; a folder of the database; a file that is not a zone
            pass
        except KeyError:  # ZoneInfoNotFoundError
            pass
    raise EvaluationFault(f"{zone[:60]!r} is not a time zone")


def _size(_: Frame, value: Value) -> int:
    return len(value)


def _contains(frame: Frame, text: str, part: str) -> bool:
    charge_search(frame, text, part)
    return bounded_calls.find(text, part) >= 0


def _starts_with(frame: Frame, text: str, part: str) -> bool:
    charge(frame, len(part) >> 9)
    return text.startswith(part)


def _ends_with(frame: Frame, text: str, part: str) -> bool:
    charge(frame, len(part) >> 9)
    return text.endswith(part)


def _part_of_timestamp(name: str, get_part: Callable[[datetime], int]) -> Function:
    return Function(
        ((Timestamp,), lambda _, instant: get_part(instant.to_datetime())),
        ((Timestamp, str), lambda frame, instant, zone: get_part(_in_zone(frame, instant, zone))),
        *(_DURATION_PARTS.get(name, ())),
    )


def _in_zone(frame: Frame, instant: Timestamp, zone: str) -> datetime:
    charge(frame, 100)  # the zone may have to be looked up
    return civil_time(instant, zone)


def _milliseconds(frame: Frame, instant: Timestamp, zone: str = "UTC") -> int:
    _in_zone(frame, instant, zone)  # an unknown zone is an error even where it has no effect
    return instant.nanos % NANOS // 1_000_000


def _whole(unit: int) -> Callable[[Frame, Duration], int]:
    def count(_: Frame, span: Duration) -> int:
        return span.nanos // unit if span.nanos >= 0 else -(-span.nanos // unit)

    return count


def _duration_milliseconds(_: Frame, span: Duration) -> int:
    millis = abs(span.nanos) % NANOS // 1_000_000
    return millis if span.nanos >= 0 else -millis


_DURATION_PARTS = {
    "getHours": (((Duration,), _whole(3600 * NANOS)),),
    "getMinutes": (((Duration,), _whole(60 * NANOS)),),
    "getSeconds": (((Duration,), _whole(NANOS)),),
}
_TIMESTAMP_PARTS: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda civil: civil.year,
    "getMonth": lambda civil: civil.month - 1,
    "getDate": lambda civil: civil.day,
    "getDayOfMonth": lambda civil: civil.day - 1,
    "getDayOfWeek": lambda civil: civil.isoweekday() % 7,
    "getDayOfYear": lambda civil: civil.timetuple().tm_yday - 1,
    "getHours": lambda civil: civil.hour,
    "getMinutes": lambda civil: civil.minute,
    "getSeconds": lambda civil: civil.second,
}
_SIZE = Function((((str, bytes, *LIST, *MAP),), _size))
_MATCHES = Function(((str, str), search))

LIBRARY = Library(
    functions={"size": _SIZE, "matches": _MATCHES},
    methods={
        "size": _SIZE,
        "matches": _MATCHES,
        "contains": Function(((str, str), _contains)),
        "startsWith": Function(((str, str), _starts_with)),
        "endsWith": Function(((str, str), _ends_with)),
        "getMilliseconds": Function(
            ((Timestamp,), _milliseconds), ((Timestamp, str), _milliseconds), ((Duration,), _duration_milliseconds)
        ),
        **{name: _part_of_timestamp(name, read) for name, read in _TIMESTAMP_PARTS.items()},
    },
)
