"""What people do with schedules: list them, see their next times, pause them, and start times of the past."""

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import islice

import msgspec
from msgspec.structs import replace

from perdure.engine.client import Client
from perdure.engine.decision_threads import ShortTurns
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.catalog_changes import retry_on_conflict
from perdure.engine.resources.lookup_answers import entries
from perdure.expressions.cron import BadSchedule
from perdure.expressions.timetables import Overlap, overlap_of_backfill
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.problems import guess
from perdure.kernel.errors import Conflict, UnfitInput
from perdure.kernel.json_values.values import Instant
from perdure.services import SCHEDULE_SOURCE
from perdure.services.entry_status import change_status, status_in
from perdure.services.schedules.firings import (
    FIRING,
    FROM_BACKFILL,
    Firing,
    NamedSchedule,
    ScheduleSource,
    ScheduleState,
    counts_after,
    new_firing,
    read_firing,
    read_state,
    utc,
    with_state,
)
from perdure.stores.protocol import CatalogConflict, ResourceRow

MOST_AT_ONCE = 10_000


def schedule_source(client: Client) -> ScheduleSource:
    """What has schedules in the catalog of a store."""
    module, _, name = SCHEDULE_SOURCE.partition(":")
    source: ScheduleSource = getattr(import_module(module), name)(client)
    return source


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule as it stands. `next` are its next times with their starts, which a jitter delays."""

    entry: ResourceKey
    schedule: NamedSchedule
    state: ScheduleState
    next: Sequence[tuple[Instant, Instant]]
    waiting: int  # times that are claimed and not started

    @property
    def name(self) -> str:
        return f"{self.entry.name}/{self.schedule.name}"


class Backfill(msgspec.Struct, frozen=True):
    """Times of the past: those that were recorded to be started, and those that wait already."""

    times: Sequence[Instant]
    waiting: Sequence[Instant]


class ScheduleAdministration:
    def __init__(self, client: Client, source: ScheduleSource) -> None:
        self._client = client
        self._source = source

    async def list(self, namespace: str | None = None, next_count: int = 1) -> list[ScheduleView]:
        """All schedules, in order of namespace and name; `namespace` None: of all."""
        firings = await self._firings(namespace)
        turns = ShortTurns()
        views: list[ScheduleView] = []
        async for row in entries(self._client.store, self._source.kind, namespace):
            for schedule in self._read(row) if self._source.has_schedules(row) else ():
                views.append(self._view(row, schedule, firings, next_count))
                await turns.pause()
        return views

    async def find(self, name: str, namespace: str, next_count: int = 1) -> ScheduleView:
        row, schedule = await self._named(name, namespace)
        firings = await self._firings(namespace)
        return self._view(row, schedule, firings, next_count)

    async def _firings(self, namespace: str | None) -> Sequence[Firing]:
        return [read_firing(row) async for row in entries(self._client.store, FIRING, namespace)]

    async def pause(self, name: str, namespace: str, *, by: str = "", reason: str = "") -> ScheduleView:
        """No time of the schedule is started until it is unpaused. Raises `Conflict` if it is paused."""
        now = utc(self._client.clock.wall())

        def pause(state: ScheduleState) -> ScheduleState:
            if state.is_paused:
                raise Conflict(
                    f"schedule {name} is paused already, since {state.paused_at}",
                    hint=f"Let it go on with `perdure schedule unpause {name}`.",
                )
            return replace(state, paused_at=now, paused_by=by, pause_reason=reason)

        return await self._change(name, namespace, pause)

    async def unpause(self, name: str, namespace: str) -> ScheduleView:
        """Times that passed meanwhile do not count; `backfill` starts them."""
        now = utc(self._client.clock.wall())

        def unpause(state: ScheduleState) -> ScheduleState:
            if not state.is_paused:
                raise Conflict(
                    f"schedule {name} is not paused", hint=f"See its next time: `perdure schedule next {name}`."
                )
            return replace(state, since=now, paused_at="", paused_by="", pause_reason="")

        return await self._change(name, namespace, unpause)

    async def backfill(
        self,
        name: str,
        namespace: str,
        begin: Instant,
        end: Instant,
        *,
        overlap: str | None = None,
        is_dry_run: bool = False,
    ) -> Backfill:
        """Record the times from `begin` to `end`, both included, to be started: all of them, or none."""
        if end < begin:
            raise UnfitInput("the range of a backfill ends before it begins", hint="Exchange --from and --to.")
        if end > self._client.clock.wall():
            raise UnfitInput(
                f"the range of a backfill ends in the future, at {utc(end)}", hint="A server starts future times."
            )

        async def attempt() -> Backfill | CatalogConflict:
            row, schedule = await self._named(name, namespace)
            times = list(islice(schedule.timetable.times(begin - 1, end), MOST_AT_ONCE + 1))
            if len(times) > MOST_AT_ONCE:
                raise UnfitInput(
                    f"the range has more than {MOST_AT_ONCE:,} times", hint="Backfill it in several parts."
                )
            policy = Overlap(overlap) if overlap else overlap_of_backfill(schedule.timetable.overlap)
            firings = {
                firing.key: firing
                for instant in times
                for firing in [new_firing(self._source, row, schedule, instant, FROM_BACKFILL, policy)]
            }
            known = await self._client.store.resources(list(firings))
            new = [firing for key, firing in firings.items() if key not in known]
            answer = Backfill([firing.at for firing in new], [firings[key].at for key in known])
            if is_dry_run or not new:
                return answer
            return await self._client.store.write_catalog([firing.write() for firing in new]) or answer

        return await retry_on_conflict(attempt, Conflict(f"schedule {name} keeps being changed", hint="Try again."))

    # Finding.

    async def _named(self, name: str, namespace: str) -> tuple[ResourceRow, NamedSchedule]:
        """`IMPULSE/SCHEDULE`, or the name of an entry that has one schedule, or of a schedule where that is unique."""
        rows = [row async for row in entries(self._client.store, self._source.kind, namespace)]
        all_schedules = [
            (row, schedule) for row in rows if self._source.has_schedules(row) for schedule in self._read(row)
        ]
        for candidates in (
            [pair for pair in all_schedules if f"{pair[0].key.name}/{pair[1].name}" == name],
            [pair for pair in all_schedules if pair[0].key.name == name],
            [pair for pair in all_schedules if pair[1].name == name],
        ):
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                names = ", ".join(f"{row.key.name}/{schedule.name}" for row, schedule in candidates)
                raise ResourceNotFound(f"{name!r} is the name of several schedules: {names}", hint="Name one of them.")
        names_known = [f"{row.key.name}/{schedule.name}" for row, schedule in all_schedules]
        raise ResourceNotFound(
            f"there is no schedule {name!r} in namespace {namespace!r}{guess(name, names_known)}",
            hint="`perdure schedule list -A` lists the schedules; an Impulse of the template cron has some.",
        )

    def _read(self, row: ResourceRow) -> Sequence[NamedSchedule]:
        try:
            return self._source.read(row)
        except BadSchedule:
            return ()

    def _view(
        self, row: ResourceRow, schedule: NamedSchedule, firings: Sequence[Firing], next_count: int
    ) -> ScheduleView:
        state = read_state(status_in(row), schedule.name)
        after = max(self._client.clock.wall(), counts_after(state, 0))
        times = islice(schedule.timetable.cron.between(after, None, schedule.timetable.zone), next_count)
        upcoming = [(time, new_firing(self._source, row, schedule, time, FROM_BACKFILL).starts_at) for time in times]
        waiting = sum(1 for firing in firings if (firing.entry_key, firing.schedule) == (row.key, schedule.name))
        return ScheduleView(row.key, schedule, state, upcoming, waiting)

    async def _change(
        self, name: str, namespace: str, change: Callable[[ScheduleState], ScheduleState]
    ) -> ScheduleView:
        row, schedule = await self._named(name, namespace)
        await change_status(
            self._client,
            row.key,
            lambda status: with_state(status, schedule.name, change(read_state(status, schedule.name))),
        )
        return await self.find(name, namespace)
