"""An instant with nanoseconds and the zone it is shown in: Go's `time.Time`, between the years 1 and 9999.

There is no local zone here: what Go calls Local is UTC. The zone database is the host's (`zoneinfo`).
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from perdure.kernel.lazy_regex import lazy_regex

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000_000
_NAME = lazy_regex(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")


class BadInstant(ValueError):
    """Not an instant, zone or duration; the message says why."""


@dataclass(frozen=True, slots=True)
class GoTime:
    nanoseconds: int  # since the epoch
    zone: tzinfo = field(default=UTC, compare=False)

    @classmethod
    def of(cls, instant: datetime) -> "GoTime":
        """From an aware datetime."""
        since = instant - _EPOCH
        seconds = since.days * 86400 + since.seconds
        return cls(seconds * _SECOND + since.microseconds * 1000, instant.tzinfo or UTC)

    @property
    def seconds(self) -> int:
        return self.nanoseconds // _SECOND

    @property
    def fraction(self) -> int:
        """Nanoseconds into the second."""
        return self.nanoseconds % _SECOND

    def civil(self) -> datetime:
        """Date and time in its zone, to the second."""
        try:
            return (_EPOCH + timedelta(seconds=self.seconds)).astimezone(self.zone)
        except OverflowError:
            raise BadInstant("this instant is not between the years 1 and 9999") from None

    def in_zone(self, zone: tzinfo) -> "GoTime":
        return GoTime(self.nanoseconds, zone)

    def plus(self, nanoseconds: int) -> "GoTime":
        later = GoTime(self.nanoseconds + nanoseconds, self.zone)
        later.civil()  # raises for dates outside the calendar
        return later


ZERO = GoTime.of(datetime(1, 1, 1, tzinfo=UTC))  # what Go shows for the zero time


def zone_abbreviation(civil: datetime) -> str:
    """`CET`, or an offset such as `+02` where the zone has no abbreviation."""
    name = civil.tzname() or "UTC"
    if name.startswith(("UTC+", "UTC-")):
        minutes = int((civil.utcoffset() or timedelta()).total_seconds()) // 60
        sign, minutes = ("-", -minutes) if minutes < 0 else ("+", minutes)
        return f"{sign}{minutes // 60:02}{minutes % 60:02}"
    return name


@lru_cache(maxsize=256)
def find_zone(name: str) -> tzinfo:
    """The zone of that name; `UTC`, `Local` and nothing are UTC."""
    if name in ("UTC", "Local", ""):
        return UTC
    if len(name) < 100 and _NAME.fullmatch(name):
        try:
            from zoneinfo import ZoneInfo

            return ZoneInfo(name)
        except (OSError, ValueError, KeyError):  # a folder of the database; a file that is not a zone; an unknown name
            pass
    raise BadInstant(f"{name[:60]!r} is not a time zone")
