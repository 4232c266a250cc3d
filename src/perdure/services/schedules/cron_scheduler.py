"""Runs the schedules of a store beside other servers: claims the times that are due, and starts a run for each.

Schedules follow the wall clock, however it is set (invariant 30).
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from itertools import chain
from math import inf
from typing import Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from perdure.engine.client import Client
from perdure.engine.clock import Alarm
from perdure.engine.decision_threads import WORK_OF_TEXT, ShortTurns, done_aside
from perdure.engine.resources.catalog_changes import retry_on_conflict
from perdure.engine.resources.lookup_answers import entries
from perdure.expressions.cron import BadSchedule
from perdure.expressions.timetables import MOST_QUEUED, MOST_WAITING, Overlap, OverlapDecision, decide
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict, PerdureError, RunNotFound
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.services.entry_status import rewritten, status_in
from perdure.services.schedules.firings import (
    FIRING,
    FROM_BACKFILL,
    FROM_SCHEDULE,
    FROM_START_UP,
    Firing,
    NamedSchedule,
    ScheduledEntry,
    ScheduleSource,
    ScheduleState,
    StartedRun,
    counts_after,
    new_firing,
    read_firing,
    read_state,
    utc,
    with_state,
    with_states,
)
from perdure.stores.errors import StoreError
from perdure.stores.protocol import CatalogConflict, ResourceRemoval, ResourceRow, ResourceWrite

CLAIMED_AT_ONCE = 200  # times of one entry: then other work has its turn
STARTED_AT_ONCE, STARTED_OF_ONE = 16, 4  # in all, and of one entry: each start writes it, over what the others wrote

_Group = tuple[ResourceKey, str]
_EntryVersion = tuple[ResourceKey, str, int]


class CronScheduler:
    def __init__(self, client: Client, source: ScheduleSource, say: Callable[[str], None] = lambda line: None) -> None:
        self._client = client
        self._source = source
        self._say = say
        self._scheduled: dict[_EntryVersion, ScheduledEntry | None] = {}  # None: it has none, or none that can be read
        self._alarm: Alarm | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._busy: set[_Group] = set()
        self._passed_over: set[_Group] = set()  # busy when somebody looked: they are looked at again
        self._behind: set[ResourceKey] = set()  # entries that have more times that are due
        self._awaited: set[RunId] = set()
        self._places = asyncio.Semaphore(STARTED_AT_ONCE)
        self._entry_places: WeakValueDictionary[ResourceKey, asyncio.Semaphore] = WeakValueDictionary()
        self._turn = asyncio.Lock()
        self._is_closed = False
        self.has_waiting = False  # whether a firing waits for something other than its time

    @property
    def is_busy(self) -> bool:
        """Whether times are being claimed or started."""
        return bool(self._busy) or self._turn.locked()

    async def refresh(self) -> None:
        """Load the schedules that the catalog has now, claim what is due and begin to start it."""
        async with self._turn:
            await self._refresh()

    async def _refresh(self) -> None:
        if self._is_closed:
            return
        store, turns = self._client.store, ShortTurns()
        outlooks: dict[_EntryVersion, tuple[bool, float]] = {}
        new, versions = set[_EntryVersion](), set[_EntryVersion]()
        async for row in entries(store, self._source.kind):
            version = (row.key, row.uid, row.generation)
            versions.add(version)
            if version not in self._scheduled:
                new.add(version)
                self._scheduled[version] = await self._initialize(row)
            if (scheduled := self._scheduled[version]) is not None:
                outlooks[version] = await self._next_times(scheduled, row, turns)
        for removed in self._scheduled.keys() - versions:
            del self._scheduled[removed]
        firings = await self._firings()
        has_claimed = False
        for version, (is_due, _) in outlooks.items():
            scheduled = self._scheduled[version]
            if scheduled is not None and (is_due or version in new):
                has_claimed |= await self._claim(scheduled, version, firings, is_start=version in new)
        if has_claimed:
            firings = await self._firings()
        self._start_due(firings)
        self._arm([upcoming for _, upcoming in outlooks.values()], firings)
        if self._behind:
            self._spawn(self.refresh())

    async def _firings(self) -> list[Firing]:
        return [read_firing(row) async for row in entries(self._client.store, FIRING)]

    async def _initialize(self, row: ResourceRow) -> ScheduledEntry | None:
        label = f"{self._source.kind.lower()} {row.key.namespace}/{row.key.name}"
        try:
            schedules = await done_aside(WORK_OF_TEXT * len(row.body), lambda: self._read(row))
        except BadSchedule as refusal:
            self._say(f"{label} cannot be scheduled: {refusal}")
            await self._source.report(row.key, str(refusal))
            return None
        if schedules is None:
            return None
        await self._source.report(row.key)
        edition = await self._client.store.edition(row.key, row.generation)
        age = self._client.clock.now() - (edition or row).created_at
        return ScheduledEntry(self._client.clock.wall() - age, schedules)

    def _read(self, row: ResourceRow) -> Sequence[NamedSchedule] | None:
        return self._source.read(row) if self._source.has_schedules(row) else None

    # Claiming the times that are due.

    async def _next_times(self, scheduled: ScheduledEntry, row: ResourceRow, turns: ShortTurns) -> tuple[bool, float]:
        """Whether a time of the entry is due, and when its next one is; infinity: never."""
        status, is_due, upcoming = status_in(row), False, inf
        for schedule in scheduled.schedules:
            await turns.pause()
            state, now = read_state(status, schedule.name), self._client.clock.wall()
            if schedule.is_enabled and not state.is_paused:
                after = counts_after(state, scheduled.begun)
                is_due = is_due or scheduled.next_after(schedule, after) <= now
                upcoming = min(upcoming, scheduled.next_after(schedule, max(now, after)))
        return is_due, upcoming

    async def _claim(
        self, scheduled: ScheduledEntry, version: _EntryVersion, firings: Sequence[Firing], *, is_start: bool
    ) -> bool:
        now, key = self._client.clock.wall(), version[0]
        waiting = Counter(firing.schedule for firing in firings if firing.entry_key == key)

        async def attempt() -> bool | CatalogConflict:
            row = (await self._client.store.resources([key])).get(key)
            if row is None or (row.key, row.uid, row.generation) != version:
                return False  # changed meanwhile: looked at again
            status, claimed, left = status_in(row), list[Firing](), CLAIMED_AT_ONCE
            room, states, turns = MOST_WAITING - waiting.total(), {}, ShortTurns()
            self._behind.discard(key)
            for schedule in scheduled.schedules:
                await turns.pause()
                state = read_state(status, schedule.name)
                if not schedule.is_enabled or state.is_paused:
                    continue
                queued, since = waiting[schedule.name], counts_after(state, scheduled.begun)
                has_room = queued < MOST_QUEUED and room > len(claimed)
                most = left if has_room or schedule.timetable.overlap is Overlap.QUEUE else 0
                due = schedule.timetable.due(since, now, most) if most > 0 else []
                left -= len(due)
                if left <= 0:
                    self._behind.add(key)
                if due:
                    states[schedule.name] = replace(state, last_scheduled=utc(due[-1]))
                    kept = self._within_queue(schedule, due, key, min(MOST_QUEUED - queued, room - len(claimed)))
                    claimed += [new_firing(self._source, row, schedule, instant, FROM_SCHEDULE) for instant in kept]
                if is_start and schedule.runs_on_startup:
                    claimed.append(new_firing(self._source, row, schedule, now // SECOND * SECOND, FROM_START_UP))
            known = await self._client.store.resources([firing.key for firing in claimed])
            new: list[ResourceWrite] = [
                firing.write() for firing in {claim.key: claim for claim in claimed}.values() if firing.key not in known
            ]
            if not claimed and left == CLAIMED_AT_ONCE:
                return False
            changes = [*new, rewritten(row, with_states(status, states))]
            return await self._client.store.write_catalog(changes) or True

        return await retry_on_conflict(attempt, Conflict(f"{key.kind.lower()} {key.name} keeps being changed"))

    def _within_queue(self, schedule: NamedSchedule, due: list[Instant], key: ResourceKey, room: int) -> list[Instant]:
        if schedule.timetable.overlap is not Overlap.QUEUE:
            return due
        kept = due[: max(0, room)]
        if len(kept) < len(due):
            self._say(f"schedule {key.name}/{schedule.name}: {MOST_QUEUED} times wait; {len(due) - len(kept)} left out")
        return kept

    # Starting runs.

    def _start_due(self, firings: Sequence[Firing]) -> None:
        now = self._client.clock.wall()
        self.has_waiting = False
        groups: dict[_Group, list[Firing]] = defaultdict(list)
        for firing in firings:
            if firing.starts_at <= now and firing.entry[0] == self._source.kind:
                groups[firing.entry_key, firing.schedule].append(firing)
        for group, due in groups.items():
            if group in self._busy:
                self._passed_over.add(group)
                continue
            self._busy.add(group)
            self._spawn(self._start_group(group, sorted(due, key=lambda firing: (firing.starts_at, firing.at))))

    async def _start_group(self, group: _Group, due: Sequence[Firing]) -> None:
        """One after the other, so that each sees the run of the one before."""
        places = self._entry_places.setdefault(group[0], asyncio.Semaphore(STARTED_OF_ONE))
        try:
            for firing in due:
                async with places, self._places:
                    is_over = await self._handle(firing)
                if not is_over:
                    self.has_waiting = True
                    if firing.overlap is not Overlap.ALLOW:
                        return
        except StoreError as error:
            self.has_waiting = True
            self._say(f"schedule {group[0].name}/{group[1]}: {error}; tried again")
        finally:
            self._busy.discard(group)
            if group in self._passed_over and not self._is_closed:
                self._passed_over.discard(group)
                self._spawn(self.refresh())

    def _look_again_after(self, run: RunId | None) -> None:
        """At the end of a run that this process owns; the ends of others are noticed from time to time."""
        if run is not None and run not in self._awaited:
            self._awaited.add(run)
            self._spawn(self._await_end(run))

    async def _await_end(self, run: RunId) -> None:
        runtime = self._client.running()
        ended = runtime.ended(run)  # before looking, so that no end is missed
        try:
            row = await self._client.store.find(run)
            if row is None or row.partition not in runtime.partitions:
                return
            if not row.status.is_final:
                await ended
        finally:
            runtime.unwait(run, ended)
            self._awaited.discard(run)
        await self.refresh()

    async def _handle(self, claimed: Firing) -> bool:
        """Whether the firing is over; False: it waits."""

        async def attempt() -> tuple[ResourceRow, Firing] | bool | CatalogConflict:
            return await self._decide(claimed)

        changing = Conflict(f"schedule {claimed.schedule} keeps being changed by others")
        decided: tuple[ResourceRow, Firing] | bool = await retry_on_conflict(attempt, changing)
        if isinstance(decided, bool):
            return decided
        entry, firing = decided
        if firing.cancels is not None and await self._open_run(ScheduleState(run_id=firing.cancels)):
            reason = f"replaced by the next run of schedule {firing.schedule}"
            await self._client.cancel(firing.cancels, reason, "schedule")
        started = await self._start(entry, firing)
        if started.is_pending:
            return False
        await self._finish(firing, started)
        return True

    async def _decide(self, claimed: Firing) -> tuple[ResourceRow, Firing] | bool | CatalogConflict:
        """What is to be started, with its schedule's entry; True: the firing is over; False: it waits."""
        rows = await self._client.store.resources([claimed.key, claimed.entry_key])
        row, entry = rows.get(claimed.key), rows.get(claimed.entry_key)
        if row is None:
            return True  # another server has started it
        firing = read_firing(row)
        schedule = None if entry is None else self._schedule_of(firing, entry)
        if entry is None or schedule is None:
            await self._client.store.write_catalog([ResourceRemoval(row.key, row.version)])
            return True
        state = read_state(status_in(entry), firing.schedule)
        if state.is_paused and firing.origin != FROM_BACKFILL:
            return False
        if firing.overlap is Overlap.ALLOW or firing.is_decided:
            return entry, firing
        previous = await self._open_run(state)
        decision = decide(firing.overlap, is_previous_open=previous is not None)
        if decision is OverlapDecision.WAIT:
            self._look_again_after(previous)
            return False
        if decision is OverlapDecision.SKIP:
            await self._finish(firing, StartedRun("Skipped", message=f"{state.run or previous} had not ended"))
            return True
        cancels = previous if decision is OverlapDecision.REPLACE else None
        decided = replace(firing, is_decided=True, cancels=cancels)
        # Also over the entry's version, which changes with every run that its schedules start.
        changes = [decided.write(row), rewritten(entry, status_in(entry))]
        return await self._client.store.write_catalog(changes) or (entry, decided)

    async def _start(self, entry: ResourceRow, firing: Firing) -> StartedRun:
        try:
            return await self._source.start(entry, firing.schedule, firing.at)
        except StoreError:
            raise
        except PerdureError as error:
            runtime = self._client.runtime
            if runtime is not None and runtime.stopped is not None:
                raise
            return StartedRun("Failed", message=str(error))

    def _schedule_of(self, firing: Firing, entry: ResourceRow) -> NamedSchedule | None:
        if firing.uid != entry.uid:
            return None
        known = self._scheduled.get((entry.key, entry.uid, entry.generation))
        try:
            schedules = self._source.read(entry) if known is None else known.schedules
        except BadSchedule:
            return None
        return next(
            (
                schedule
                for schedule in schedules
                if schedule.name == firing.schedule and (schedule.is_enabled or firing.origin == FROM_BACKFILL)
            ),
            None,
        )

    async def _open_run(self, state: ScheduleState) -> RunId | None:
        """The last run of a schedule, unless it has ended."""
        run = RunId(state.run_id)
        if not run and state.run:  # recorded by an older version: only its name
            try:
                run = await self._client.resolve(state.run)
            except RunNotFound:
                return None
        row = await self._client.store.find(run) if run else None
        return None if row is None or row.status.is_final else run

    async def _finish(self, firing: Firing, started: StartedRun) -> None:
        """Record the result and remove the firing, in one transaction."""

        async def attempt() -> CatalogConflict | bool:
            rows = await self._client.store.resources([firing.key, firing.entry_key])
            row, entry = rows.get(firing.key), rows.get(firing.entry_key)
            if row is None or entry is None:
                return False
            status = status_in(entry)
            state = read_state(status, firing.schedule)
            if firing.origin != FROM_BACKFILL:
                state = replace(state, last_fired=utc(firing.at), result=started.result, message=started.message)
            if started.id is not None:
                state = replace(state, run=started.run, run_id=started.id)
            changes: list[ResourceWrite | ResourceRemoval] = [
                ResourceRemoval(row.key, row.version),
                rewritten(entry, with_state(status, firing.schedule, state)),
            ]
            return await self._client.store.write_catalog(changes) or True

        _, _, name = firing.entry
        if await retry_on_conflict(attempt, Conflict(f"{name} keeps being changed by others")):
            what = started.run or started.message
            label = f"{firing.entry[0].lower()} {firing.entry[1]}/{name}, schedule {firing.schedule}"
            self._say(f"{label}: {started.result} {what}".rstrip())

    # Waiting.

    def _arm(self, upcoming: Sequence[float], firings: Sequence[Firing]) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        now = self._client.clock.wall()
        starts = (firing.starts_at for firing in firings if firing.starts_at > now)
        instant = min(chain(upcoming, starts), default=inf)
        if instant < inf and not self._is_closed:
            self._alarm = self._client.clock.call_at_wall(int(instant), lambda: self._spawn(self.refresh()))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.has_waiting = True
            self._say(f"a schedule failed, will be tried again: {type(error).__name__}: {error}")

    async def close(self) -> None:
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
