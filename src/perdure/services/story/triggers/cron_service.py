"""Strikes of the clock for Impulses of the template `cron` (STY-160 to 162).

A strike is named by its scheduled time, so that it counts once, however many processes keep the same schedules. What
an Impulse knows of each schedule stands in its status: the last strike that was dealt with, and its run. Schedules go
by the clock on the wall, however it is set (invariant 30).
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from perdure.dialects.story.resources.resource import Resource, name_of, namespace_of
from perdure.dialects.story.resources.timestamps import moment, timestamp
from perdure.dialects.story.triggers.cron import BadSchedule
from perdure.dialects.story.triggers.decisions import TriggerAnswer, answer_of
from perdure.dialects.story.triggers.delivery import DeliveryPolicy
from perdure.dialects.story.triggers.schedules import (
    Schedule,
    Schedules,
    event_of,
    is_cron,
    read_schedules,
    token_of,
)
from perdure.engine.client import Client
from perdure.engine.clock import Alarm
from perdure.engine.lookup_answers import document
from perdure.engine.random_ids import run_id_for_name
from perdure.kernel.errors import PerdureError
from perdure.kernel.lookups import ResourceKey
from perdure.kernel.values import Instant
from perdure.services.story.triggers.entry_status import change_status, status_in
from perdure.services.story.triggers.impulses import Impulses, pause
from perdure.services.story.triggers.requests import LANGUAGE
from perdure.stores.protocol import ResourceRow


@dataclass
class ScheduledImpulse:
    """An Impulse whose schedules are kept here."""

    impulse: Resource
    schedules: Schedules
    next: dict[str, Instant | None] = field(default_factory=dict)


class CronScheduler:
    def __init__(
        self,
        client: Client,
        *,
        chance: Callable[[], float] = random.random,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._client = client
        self._impulses = Impulses(client, chance)
        self._chance = chance
        self._say = say
        self._kept: dict[tuple[ResourceKey, str, int], ScheduledImpulse | None] = {}
        self._alarm: Alarm | None = None
        self._fires: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def refresh(self) -> None:
        """Keep the schedules that the catalog has now; what was missed lately is made up for once."""
        rows = await self._client.store.list_resources("Impulse")
        found = {(row.key, row.uid, row.generation): row for row in rows if is_cron(document(row))}
        for gone in self._kept.keys() - found.keys():
            del self._kept[gone]
        for key, row in found.items():
            if key not in self._kept:
                self._kept[key] = await self._initialize(row)
        self._arm()

    async def _initialize(self, row: ResourceRow) -> ScheduledImpulse | None:
        impulse = document(row)
        try:
            schedules = read_schedules(impulse)
        except BadSchedule as refusal:
            self._say(f"impulse {row.key.namespace}/{row.key.name} cannot be kept: {refusal}")
            await self._report_phase(row.key, "Failed", "InitializationFailed", str(refusal))
            return None
        await self._report_phase(row.key, "Running", "Initialized", "its schedules are kept")
        kept = ScheduledImpulse(impulse, schedules)
        editions = await self._client.store.editions(row.key)
        age = self._client.clock.now() - (editions[-1].created_at if editions else row.created_at)
        now = self._client.clock.wall()
        since = now - min(schedules.deadline + 1, age)
        for schedule in schedules.entries:
            if not schedule.is_enabled:
                continue
            kept.next[schedule.name] = schedule.cron.next_after(now, schedules.zone)
            missed = schedule.cron.latest(since, now, schedules.zone)
            if missed is not None:
                self._spawn(self._fire(kept, schedule, missed))
            if schedules.runs_on_startup:
                self._spawn(self._fire(kept, schedule, now))
        return kept

    async def _report_phase(self, key: ResourceKey, phase: str, reason: str, message: str) -> None:
        now = self._client.clock.now()

        def told(status: dict[str, Any]) -> dict[str, Any]:
            ready = {"type": "Ready", "status": "True" if phase == "Running" else "False", "reason": reason}
            before = (status.get("conditions") or [{}])[0]
            if {name: before.get(name) for name in ready} == ready and before.get("message") == message:
                return status
            ready |= {"message": message, "lastTransitionTime": timestamp(now)}
            return {**status, "phase": phase, "conditions": [ready]}

        await change_status(self._client, key, told)

    # Striking.

    def _arm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        upcoming = [at for kept in self._kept.values() if kept for at in kept.next.values() if at is not None]
        if upcoming and not self._is_closed:
            self._alarm = self._client.clock.call_at_wall(min(upcoming), self._on_due)

    def _on_due(self) -> None:
        now = self._client.clock.wall()
        for kept in self._kept.values():
            if kept is None:
                continue
            for schedule in kept.schedules.entries:
                due = kept.next.get(schedule.name)
                if due is None or due > now:
                    continue
                # A process that slept, or a clock that was set: of several strikes only the latest counts.
                latest = schedule.cron.latest(max(due - 1, now - kept.schedules.deadline - 1), now, kept.schedules.zone)
                kept.next[schedule.name] = schedule.cron.next_after(now, kept.schedules.zone)
                if latest is not None:
                    self._spawn(self._fire(kept, schedule, latest))
        self._arm()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._fires.add(task)
        task.add_done_callback(self._fires.discard)

    async def _fire(self, kept: ScheduledImpulse, schedule: Schedule, at: Instant) -> None:
        impulse = kept.impulse
        called = f"impulse {namespace_of(impulse)}/{name_of(impulse)}, schedule {schedule.name}"
        try:
            if not await self._may_start(kept, schedule, at):
                return
            await pause(self._client, int(schedule.jitter * self._chance()))
            token = token_of(impulse, schedule.name, at)
            _, template = await self._impulses.find(name_of(impulse), namespace_of(impulse))
            has_key = DeliveryPolicy.read(impulse, template).mode == "key"
            decided = await self._impulses.deliver(
                name_of(impulse),
                event_of(schedule, at, kept.schedules.zone),
                token=None if has_key else token,
                namespace=namespace_of(impulse),
                numbered="_cron",
            )
            status = decided["status"]
            run = status.get("storyRunRef", {}).get("name", "")
            self._say(f"{called}: {status['decision']} {run or status.get('message', '')}")
            if answer_of(decided) is not TriggerAnswer.PENDING:
                await self._note(kept, schedule, at, status["decision"], run)
        except PerdureError as error:
            self._say(f"{called}: {error}")
            await self._note(kept, schedule, at, "Failed", "")

    async def _may_start(self, kept: ScheduledImpulse, schedule: Schedule, at: Instant) -> bool:
        """Whether the strike is new, and what the concurrency policy says of the previous run (STY-161)."""
        key = _key(kept.impulse)
        row = (await self._client.store.resources([key])).get(key)
        if row is None:
            return False
        known = status_in(row).get("schedules", {}).get(schedule.name, {})
        if known.get("lastScheduled", "") >= _utc(at):
            return False
        previous = known.get("run")
        if not previous or kept.schedules.policy == "allow":
            return True
        run = run_id_for_name(LANGUAGE, key.namespace, previous)
        found = await self._client.store.find(run)
        if found is None or found.status.is_final:
            return True
        if kept.schedules.policy == "forbid":
            self._say(f"schedule {schedule.name}: skipped, {previous} has not ended")
            await self._note(kept, schedule, at, "Skipped", previous)
            return False
        await self._client.cancel(run, f"replaced by the next run of schedule {schedule.name}", "cron")
        return True

    async def _note(self, kept: ScheduledImpulse, schedule: Schedule, at: Instant, result: str, run: str) -> None:
        def noted(status: dict[str, Any]) -> dict[str, Any]:
            all_of_them = status.get("schedules", {})
            if all_of_them.get(schedule.name, {}).get("lastScheduled", "") > _utc(at):
                return status
            told = {"lastScheduled": _utc(at), "result": result, "run": run}
            return {**status, "schedules": {**all_of_them, schedule.name: told}}

        await change_status(self._client, _key(kept.impulse), noted)

    async def done(self) -> None:
        """Until every strike that is under way has been dealt with."""
        while self._fires:
            await asyncio.wait(self._fires)

    async def close(self) -> None:
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._fires:
            task.cancel()
        await self.done()


def _key(impulse: Resource) -> ResourceKey:
    return ResourceKey("Impulse", namespace_of(impulse), name_of(impulse))


def _utc(at: Instant) -> str:
    return moment(at).strftime("%Y-%m-%dT%H:%M:%SZ")
