"""Schedules in five fields: minute, hour, day of month, month, day of week (STY-160).

    */15 9-17 * * mon-fri      @hourly @daily @midnight @weekly @monthly @yearly @annually

Where both days are restricted either one is enough, as cron has always had it. Times are civil times of a zone: one
that a change of clocks leaves out does not happen; one that happens twice happens once, at the first, unless the hour
is `*`: then every hour that passes counts.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo

import msgspec

from perdure.kernel.values import SECOND, Instant

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MINUTE: Instant = 60 * SECOND
_DAYS_AHEAD = 366 * 9  # February 29 comes at least every eight years
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")


class BadSchedule(ValueError):
    """No schedule, or no zone; the sentence says why."""


def find_zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    try:
        if _ZONE.fullmatch(name):
            from zoneinfo import ZoneInfo

            return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # unknown; a folder of the database; a file that is no zone
        pass
    raise BadSchedule(f"{name[:60]!r} is not a time zone (expected e.g. Europe/Oslo or UTC)")


class CronField(msgspec.Struct, frozen=True):
    name: str
    first: int
    last: int
    words: tuple[str, ...] = ()

    def read(self, text: str) -> frozenset[int]:
        return frozenset(value for part in text.split(",") for value in self._part(part))

    def _part(self, part: str) -> range:
        span, slash, step_text = part.partition("/")
        step = 1
        if slash:
            if not step_text.isascii() or not step_text.isdecimal() or int(step_text) < 1:
                raise BadSchedule(f"{self.name}: {part!r} has no step such as /5")
            step = int(step_text)
        if span in ("*", "?"):
            return range(self.first, self.last + 1, step)
        low, dash, high = span.partition("-")
        begin = self._value(low, part)
        end = self._value(high, part) if dash else self.last if slash else begin
        if end < begin:
            raise BadSchedule(f"{self.name}: {part!r} ends before it begins")
        return range(begin, end + 1, step)

    def _value(self, text: str, part: str) -> int:
        if text.lower() in self.words:
            return self.words.index(text.lower()) + self.first
        if not text.isascii() or not text.isdecimal() or not self.first <= int(text) <= self.last:
            raise BadSchedule(f"{self.name}: {part!r} is not within {self.first}-{self.last}")
        return int(text)


FIELDS = (
    CronField("minute", 0, 59),
    CronField("hour", 0, 23),
    CronField("day of month", 1, 31),
    CronField("month", 1, 12, _MONTHS),
    CronField("day of week", 0, 7, _WEEKDAYS),
)


class Cron(msgspec.Struct, frozen=True):
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # Sunday is 0
    any_hour: bool
    any_day: bool
    any_weekday: bool

    def matches(self, at: Instant, zone: tzinfo) -> bool:
        """Whether it strikes at this instant, which is a whole minute."""
        if at % MINUTE:
            return False
        local = (_EPOCH + timedelta(microseconds=at)).astimezone(zone)
        if local.fold and not self.any_hour:
            return False
        return local.second == 0 and local.minute in self.minutes and local.hour in self.hours and self._on(local)

    def next_after(self, at: Instant, zone: tzinfo) -> Instant | None:
        """The next strike later than `at`; None when there is none, as on February 30."""
        start = (_EPOCH + timedelta(microseconds=at)).astimezone(zone).date() - timedelta(days=1)
        for day in (start + timedelta(days=n) for n in range(_DAYS_AHEAD)):
            if self._on(day):
                later = [one for one in self._strikes(day, zone) if one > at]
                if later:
                    return min(later)
        return None

    def latest(self, after: Instant, until: Instant, zone: tzinfo) -> Instant | None:
        """The latest strike within (after, until]."""
        at = until - until % MINUTE
        while at > after:
            if self.matches(at, zone):
                return at
            at -= MINUTE
        return None

    def _on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        on_day, on_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return on_day and on_weekday
        return on_day or on_weekday

    def _strikes(self, day: date, zone: tzinfo) -> Iterator[Instant]:
        for hour in self.hours:
            for minute in self.minutes:
                civil = datetime(day.year, day.month, day.day, hour, minute)
                for fold in (0, 1):
                    utc = civil.replace(tzinfo=zone, fold=fold).astimezone(UTC)
                    at = (utc - _EPOCH) // timedelta(microseconds=1)
                    if utc.astimezone(zone).replace(tzinfo=None) == civil and self.matches(at, zone):
                        yield at


def read_cron(text: str) -> Cron:
    """Raises `BadSchedule`."""
    words = MACROS.get(text.strip().lower(), text).split()
    if text.strip().startswith("@") and text.strip().lower() not in MACROS:
        raise BadSchedule(f"there is no {text.strip()!r}; there are {', '.join(MACROS)}")
    if len(words) != len(FIELDS):
        raise BadSchedule(f"{text!r} has {len(words)} fields; a schedule has 5: minute hour day month weekday")
    minutes, hours, days, months, weekdays = (field.read(word) for field, word in zip(FIELDS, words, strict=True))
    return Cron(
        minutes,
        hours,
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        any_hour=words[1].startswith("*"),
        any_day=words[2][0] in "*?",
        any_weekday=words[4][0] in "*?",
    )
