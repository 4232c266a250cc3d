"""A schedule as JSON: what `perdure schedule` answers."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Protocol

from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.views.errors import BadRequest
from perdure.views.times import iso, read_instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimesOfSchedule(Protocol):
    @property
    def zone(self) -> tzinfo: ...
    @property
    def jitter(self) -> Instant: ...
    @property
    def overlap(self) -> str: ...
    @property
    def deadline(self) -> Instant: ...
    @property
    def catch_up(self) -> Instant: ...


class WrittenSchedule(Protocol):
    """A schedule as it is written in the catalog."""

    @property
    def name(self) -> str: ...
    @property
    def cron(self) -> str: ...
    @property
    def timetable(self) -> TimesOfSchedule: ...
    @property
    def is_enabled(self) -> bool: ...
    @property
    def starts(self) -> str: ...


class RecordedSchedule(Protocol):
    """What is recorded about it; instants are texts."""

    @property
    def last_fired(self) -> str: ...
    @property
    def result(self) -> str: ...
    @property
    def run(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def paused_at(self) -> str: ...
    @property
    def paused_by(self) -> str: ...
    @property
    def pause_reason(self) -> str: ...


class ScheduleFacts(Protocol):
    @property
    def entry(self) -> ResourceKey: ...
    @property
    def name(self) -> str: ...
    @property
    def schedule(self) -> WrittenSchedule: ...
    @property
    def state(self) -> RecordedSchedule: ...
    @property
    def next(self) -> Sequence[tuple[Instant, Instant]]: ...
    @property
    def waiting(self) -> int: ...


def schedule_json(view: ScheduleFacts) -> dict[str, Any]:
    written, state = view.schedule, view.state
    times = written.timetable
    return {
        "name": view.name,
        "impulse": view.entry.name,
        "schedule": written.name,
        "namespace": view.entry.namespace,
        "starts": written.starts,
        "cron": written.cron,
        "timezone": str(times.zone),
        "overlap": times.overlap,
        "jitter_seconds": times.jitter / SECOND,
        "catch_up_seconds": times.catch_up / SECOND,
        "enabled": written.is_enabled,
        "paused": {"at": state.paused_at, "by": state.paused_by, "reason": state.pause_reason}
        if state.paused_at
        else None,
        "last": {"at": state.last_fired, "result": state.result, "run": state.run, "message": state.message}
        if state.last_fired
        else None,
        "waiting": view.waiting,
        "next": [] if state.paused_at or not written.is_enabled else firings_json(view),
    }


def firings_json(view: ScheduleFacts) -> list[dict[str, Any]]:
    """The next times, as if the schedule were neither paused nor disabled."""
    return [
        {"at": iso(at), "local": in_zone(at, view.schedule.timetable.zone), "starts_at": iso(starts_at)}
        for at, starts_at in view.next
    ]


def read_range(begin: str, end: str, zone: tzinfo, now: Instant) -> tuple[Instant, Instant]:
    """The instants of a range; a time without a zone is meant in the zone of the schedule."""
    return _instant(begin, zone, now), _last_instant(end, zone, now)


def _last_instant(text: str, zone: tzinfo, now: Instant) -> Instant:
    """A day belongs to the range with all of its times that have passed."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return _instant(text, zone, now)
    if day == date.max:
        raise BadRequest(f"{text!r} has no day after it")
    end = _instant((day + timedelta(days=1)).isoformat(), zone, now) - 1
    return min(end, max(now, _instant(text, zone, now)))


def _instant(text: str, zone: tzinfo, now: Instant) -> Instant:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return read_instant(text, now)
        except ValueError as error:
            raise BadRequest(str(error)) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def in_zone(instant: Instant, zone: tzinfo) -> str:
    """A time as a clock in the zone shows it, with the difference to UTC."""
    return (_EPOCH + timedelta(microseconds=instant)).astimezone(zone).isoformat(timespec="minutes")
