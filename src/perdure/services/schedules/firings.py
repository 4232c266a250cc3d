"""Times of schedules on their way to a run, as rows of the catalog.

    time is due ──one commit──▶ firing, and the schedule's `lastScheduled` ──▶ decided ──▶ run ──one commit──▶ gone

The commit that claims a time moves `lastScheduled` past it, over the version that was read: of several servers one
succeeds. From then on the row exists until its run was requested under a token that names schedule and time, so
whoever continues after a crash starts the same run.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Protocol

import msgspec

from perdure.engine.random_ids import new_uid
from perdure.expressions.timetables import Overlap, Timetable
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.protocol import ResourceRow, ResourceWrite

FIRING = "ScheduleFiring"
FROM_SCHEDULE, FROM_START_UP, FROM_BACKFILL = "schedule", "startup", "backfill"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NamedSchedule(msgspec.Struct, frozen=True):
    """One schedule of an entry of the catalog."""

    name: str
    cron: str
    timetable: Timetable
    is_enabled: bool
    runs_on_startup: bool
    starts: str  # the document, for people


class StartedRun(msgspec.Struct, frozen=True):
    """What became of a request to start a run. `run` is its name for people."""

    result: str
    run: str = ""
    id: RunId | None = None
    message: str = ""
    is_pending: bool = False


class ScheduleSource(Protocol):
    """Entries of the catalog that have schedules, and how they start runs."""

    kind: str

    def has_schedules(self, row: ResourceRow) -> bool: ...

    def read(self, row: ResourceRow) -> Sequence[NamedSchedule]:
        """Raises `BadSchedule`."""

    def token(self, row: ResourceRow, schedule: str, instant: Instant) -> str:
        """What identifies a time of a schedule: the same in every process."""

    async def report(self, key: ResourceKey, problem: str = "") -> None:
        """Record that the schedules of an entry are running, or why not."""

    async def start(self, row: ResourceRow, schedule: str, instant: Instant) -> StartedRun:
        """Request the run for a time; the same time starts the same run."""


class Firing(msgspec.Struct, frozen=True, rename="camel"):
    entry: tuple[str, str, str]  # kind, namespace, name
    uid: str
    schedule: str
    at: Instant
    starts_at: Instant
    overlap: Overlap
    origin: str = FROM_SCHEDULE
    is_decided: bool = False  # it is to be started, whatever the previous run does meanwhile
    cancels: RunId | None = None  # the previous run, which is cancelled before

    @property
    def entry_key(self) -> ResourceKey:
        return ResourceKey(*self.entry)

    @property
    def key(self) -> ResourceKey:
        _, namespace, name = self.entry
        return ResourceKey(FIRING, namespace, f"{name}/{self.schedule}/{utc(self.at)}")

    def write(self, row: ResourceRow | None = None) -> ResourceWrite:
        uid, generation, version = (new_uid(), 1, 0) if row is None else (row.uid, row.generation, row.version)
        return ResourceWrite(self.key, uid, generation, msgspec.json.encode(self), b"", {}, None, version)


def new_firing(
    source: ScheduleSource,
    row: ResourceRow,
    schedule: NamedSchedule,
    instant: Instant,
    origin: str,
    overlap: Overlap | None = None,
) -> Firing:
    """A time of a schedule that is to be started. Its jitter follows from its token, which every process knows."""
    token = source.token(row, schedule.name, instant)
    starts_at = instant if origin == FROM_START_UP else schedule.timetable.starts_at(instant, f"{row.uid}:{token}")
    return Firing(
        (row.key.kind, row.key.namespace, row.key.name),
        row.uid,
        schedule.name,
        instant,
        starts_at,
        overlap or schedule.timetable.overlap,
        origin,
    )


def read_firing(row: ResourceRow) -> Firing:
    return msgspec.json.decode(row.body, type=Firing)


class ScheduledEntry(msgspec.Struct):
    """An entry whose schedules a process runs."""

    begun: Instant  # when this version of it was applied, on the wall
    schedules: Sequence[NamedSchedule]
    upcoming: dict[str, tuple[Instant, Instant | None]] = {}  # by schedule: the first time after an instant

    def next_after(self, schedule: NamedSchedule, after: Instant) -> float:
        """Infinity if there is none."""
        known = self.upcoming.get(schedule.name)
        if known is None or not (known[0] <= after and (known[1] is None or after < known[1])):
            known = self.upcoming[schedule.name] = (after, schedule.timetable.next_after(after))
        return inf if known[1] is None else known[1]


class ScheduleState(msgspec.Struct, frozen=True, rename="camel"):
    """What the status of an entry records about one of its schedules. Instants are texts, in UTC."""

    last_scheduled: str = ""  # the last time that was claimed
    last_fired: str = ""  # the time that result and run are about
    result: str = ""
    run: str = ""
    run_id: str = ""
    message: str = ""
    since: str = ""  # times until then do not count: the schedule was paused
    paused_at: str = ""
    paused_by: str = ""
    pause_reason: str = ""

    @property
    def is_paused(self) -> bool:
        return bool(self.paused_at)


def read_state(status: Mapping[str, Any], schedule: str) -> ScheduleState:
    states = status.get("schedules")
    state = states.get(schedule) if isinstance(states, dict) else None
    return msgspec.convert(state, ScheduleState) if isinstance(state, dict) else ScheduleState()


def with_state(status: Mapping[str, Any], schedule: str, state: ScheduleState) -> dict[str, Any]:
    return with_states(status, {schedule: state})


def with_states(status: Mapping[str, Any], states: Mapping[str, ScheduleState]) -> dict[str, Any]:
    filled = {schedule: _filled(state) for schedule, state in states.items()}
    return {**status, "schedules": {**status.get("schedules", {}), **filled}}


def _filled(state: ScheduleState) -> dict[str, str]:
    members = {
        "lastScheduled": state.last_scheduled,
        "lastFired": state.last_fired,
        "result": state.result,
        "run": state.run,
        "runId": state.run_id,
        "message": state.message,
        "since": state.since,
        "pausedAt": state.paused_at,
        "pausedBy": state.paused_by,
        "pauseReason": state.pause_reason,
    }
    return {name: value for name, value in members.items() if value}


def counts_after(state: ScheduleState, begun: Instant) -> Instant:
    """The times behind this one are the schedule's next; `begun` is when it was applied, on the wall."""
    return max(begun, instant_of(state.last_scheduled), instant_of(state.since))


def utc(instant: Instant) -> str:
    return (_EPOCH + timedelta(microseconds=instant)).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant_of(text: str) -> Instant:
    if not text:
        return 0
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
