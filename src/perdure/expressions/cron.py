"""Cron schedules with five fields: minute, hour, day of month, month, day of week (STY-160).

    */15 9-17 * * mon-fri      @hourly @daily @midnight @weekly @monthly @yearly @annually

If both day fields are restricted, either is enough, as in every cron. Times are local times of a zone: a time that
a clock change skips does not occur; one that it repeats occurs once, the first time, unless the hour is `*`: then
every hour counts.
"""

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo

import msgspec

from perdure.kernel.json_values.values import SECOND, Instant

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
_STEPPED: Instant = 120 * MINUTE  # minute by minute, before whole days are enumerated: most schedules fire within it
_ONE_DAY = timedelta(days=1)
_DAY: Instant = 24 * 60 * MINUTE
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")


class BadSchedule(ValueError):
    """Not a schedule or not a time zone; the message says why."""


def find_zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    try:
        if _ZONE.fullmatch(name):
            from zoneinfo import ZoneInfo

            return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # unknown; a folder of the database; not a zone file
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
                raise BadSchedule(f"{self.name}: {part!r} has an invalid step (expected e.g. /5)")
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

    def matches(self, instant: Instant, zone: tzinfo) -> bool:
        """Whether the schedule fires at this instant, which must be a whole minute."""
        if instant % MINUTE:
            return False
        local = (_EPOCH + timedelta(microseconds=instant)).astimezone(zone)
        if local.fold and not self.any_hour:
            return False
        return local.second == 0 and local.minute in self.minutes and local.hour in self.hours and self._on(local)

    def next_after(self, after: Instant, zone: tzinfo) -> Instant | None:
        """The first time after `after` when the schedule fires; None if there is none, as for February 30."""
        return next(self.between(after, None, zone), None)

    def between(self, after: Instant, until: Instant | None, zone: tzinfo) -> Iterator[Instant]:
        """The times within (after, until] when the schedule fires, in order; without `until` as far as can be seen."""
        nearby = after - after % MINUTE + _STEPPED
        if self._on(_day_of(after, zone)) or self._on(_day_of(nearby, zone)):
            for instant in range(after - after % MINUTE + MINUTE, min(nearby, until or nearby) + 1, MINUTE):
                if self.matches(instant, zone):
                    yield instant
        if until is not None and until <= nearby:
            return
        for day in self._days_from(_day_of(nearby, zone) - _ONE_DAY):
            if until is not None and _midnight(day, zone) - _DAY > until:
                return
            yield from (
                instant
                for instant in self._times_on(day, zone)
                if instant > nearby and (until is None or instant <= until)
            )

    def latest(self, after: Instant, until: Instant, zone: tzinfo) -> Instant | None:
        """The last time within (after, until] when the schedule fires."""
        day, first = _day_of(until, zone) + _ONE_DAY, _day_of(after, zone) - _ONE_DAY
        latest: Instant | None = None
        while day >= first and (latest is None or _midnight(day, zone) + 2 * _DAY > latest):
            if self._on(day):
                within = [instant for instant in self._times_on(day, zone) if after < instant <= until]
                latest = max([*within, *([] if latest is None else [latest])], default=None)
            day -= _ONE_DAY
        return latest

    def _days_from(self, start: date) -> Iterator[date]:
        """The days on which the schedule fires; months and days that it never names are passed over."""
        last = start + _DAYS_AHEAD * _ONE_DAY
        any_weekday = self.any_weekday or self.any_day  # then both have to fit, and the day of the month is enough
        numbers = sorted(self.days) if any_weekday else range(1, 32)
        for month in range(start.year * 12 + start.month - 1, last.year * 12 + last.month):
            if month % 12 + 1 not in self.months:
                continue
            length = monthrange(month // 12, month % 12 + 1)[1]
            for number in numbers:
                day = date(month // 12, month % 12 + 1, min(number, length))
                if number <= length and start <= day < last and self._on(day):
                    yield day

    def _on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        on_day, on_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return on_day and on_weekday
        return on_day or on_weekday

    def _times_on(self, day: date, zone: tzinfo) -> Iterable[Instant]:
        """In order."""
        midnight = _midnight(day, zone)
        if _is_plain(day, zone):
            hours, minutes = sorted(self.hours), sorted(self.minutes)
            return (midnight + (60 * hour + minute) * MINUTE for hour in hours for minute in minutes)
        return sorted(set(self._times_around_a_change(day, zone)))

    def _times_around_a_change(self, day: date, zone: tzinfo) -> Iterator[Instant]:
        for hour in self.hours:
            for minute in self.minutes:
                civil = datetime(day.year, day.month, day.day, hour, minute)
                for fold in (0, 1):
                    utc = civil.replace(tzinfo=zone, fold=fold).astimezone(UTC)
                    instant = (utc - _EPOCH) // timedelta(microseconds=1)
                    if utc.astimezone(zone).replace(tzinfo=None) == civil and self.matches(instant, zone):
                        yield instant


def _day_of(instant: Instant, zone: tzinfo) -> date:
    return (_EPOCH + timedelta(microseconds=instant)).astimezone(zone).date()


def _is_plain(day: date, zone: tzinfo) -> bool:
    """Whether the clocks of the zone are not changed on this day."""
    if zone is UTC:
        return True
    begin, end = (datetime(at.year, at.month, at.day, tzinfo=zone) for at in (day, day + _ONE_DAY))
    offsets = {moment.replace(fold=fold).utcoffset() for moment in (begin, end) for fold in (0, 1)}
    offset = offsets.pop()
    return not offsets and offset is not None and offset % timedelta(minutes=1) == timedelta()


def _midnight(day: date, zone: tzinfo) -> Instant:
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * SECOND


def read_cron(text: str) -> Cron:
    """Read a schedule. Raises `BadSchedule`."""
    parts = MACROS.get(text.strip().lower(), text).split()
    if text.strip().startswith("@") and text.strip().lower() not in MACROS:
        raise BadSchedule(f"unknown macro {text.strip()!r} (expected one of {', '.join(MACROS)})")
    if len(parts) != len(FIELDS):
        raise BadSchedule(f"{text!r} has {len(parts)} fields; a schedule has 5: minute hour day month weekday")
    minutes, hours, days, months, weekdays = (field.read(part) for field, part in zip(FIELDS, parts, strict=True))
    return Cron(
        minutes,
        hours,
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        any_hour=parts[1].startswith("*"),
        any_day=parts[2][0] in "*?",
        any_weekday=parts[4][0] in "*?",
    )
