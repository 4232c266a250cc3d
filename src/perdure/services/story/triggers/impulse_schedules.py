"""Impulses of the template `cron` as a source of schedules (STY-160 to 162)."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from perdure.dialects.story.resources import labels
from perdure.dialects.story.resources.resource import Resource, name_of, namespace_of, spec_of
from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.triggers.decisions import TriggerAnswer, TriggerReason, answer_of
from perdure.dialects.story.triggers.delivery import DeliveryPolicy
from perdure.dialects.story.triggers.requests import target_name, target_of
from perdure.dialects.story.triggers.schedules import event_of, is_cron, read_schedules, token_of
from perdure.engine.client import Client
from perdure.engine.resources.lookup_answers import document
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict, InvalidDocument
from perdure.kernel.json_values.values import Instant
from perdure.services.entry_status import change_status
from perdure.services.schedules.firings import NamedSchedule, StartedRun, utc
from perdure.services.story.triggers.impulses import Impulses
from perdure.services.story.triggers.requests import Requests, failure_hook, run_of_status
from perdure.stores.protocol import ResourceRow

_CONFLICTS = (TriggerReason.RUN_CONFLICT, TriggerReason.DOCUMENT_RUN_CONFLICT)  # the time has a run


class ImpulseSchedules:
    kind = "Impulse"

    def __init__(self, client: Client, chance: Callable[[], float] = random.random) -> None:
        self._client = client
        self._impulses = Impulses(client, chance)

    def has_schedules(self, row: ResourceRow) -> bool:
        return is_cron(document(row))

    def read(self, row: ResourceRow) -> Sequence[NamedSchedule]:
        impulse = document(row)
        schedules = read_schedules(impulse)
        starts, _ = target_name(target_of(spec_of(impulse)), namespace_of(impulse))
        return [
            NamedSchedule(entry.name, entry.text, entry.timetable, entry.is_enabled, schedules.runs_on_startup, starts)
            for entry in schedules.entries
        ]

    def token(self, row: ResourceRow, schedule: str, instant: Instant) -> str:
        return token_of(row.key.name, schedule, instant)

    async def report(self, key: ResourceKey, problem: str = "") -> None:
        now = self._client.clock.now()
        ready = {"type": "Ready", "status": "False", "reason": "InitializationFailed", "message": problem}
        if not problem:
            ready |= {"status": "True", "reason": "Initialized", "message": "its schedules are running"}

        def with_phase(status: dict[str, Any]) -> dict[str, Any]:
            before = (status.get("conditions") or [{}])[0]
            if {name: before.get(name) for name in ready} == ready:
                return status
            phase = "Failed" if problem else "Running"
            return {**status, "phase": phase, "conditions": [{**ready, "lastTransitionTime": timestamp(now)}]}

        await change_status(self._client, key, with_phase)

    async def start(self, row: ResourceRow, schedule: str, instant: Instant) -> StartedRun:
        """Deliver the event of a time (STY-161, STY-162)."""
        impulse = document(row)
        (entry,) = read_schedules(impulse, schedule).entries
        _, template = await self._impulses.find(name_of(impulse), namespace_of(impulse))
        has_key = DeliveryPolicy.read(impulse, template).mode == "key"
        try:
            decided = await self._impulses.deliver(
                name_of(impulse),
                event_of(entry, instant),
                token=None if has_key else token_of(name_of(impulse), schedule, instant),
                namespace=namespace_of(impulse),
                numbered="_cron",
                annotations={labels.SCHEDULE: schedule, labels.SCHEDULED_AT: utc(instant)},
            )
        except InvalidDocument as error:
            await self._alert(impulse, schedule, instant, error.code, str(error))
            raise
        status = decided["status"]
        if answer_of(decided) is TriggerAnswer.REJECTED and status["reason"] not in _CONFLICTS:
            await self._alert(impulse, schedule, instant, status["reason"], status["message"])
        run = run_of_status(status)
        name = status.get("storyRunRef", {}).get("name") or run or ""
        is_pending = answer_of(decided) is TriggerAnswer.PENDING
        message = "" if run else status.get("message", "")
        return StartedRun(status["decision"], name, run, message, is_pending)

    async def _alert(self, impulse: Resource, schedule: str, instant: Instant, code: str, message: str) -> None:
        """Start the alert about a time whose run could not be started; it has the same input, without a run."""
        cause = {"impulse": name_of(impulse), "schedule": schedule, "scheduledAt": utc(instant)}
        hook = failure_hook(impulse, {"metadata": {"annotations": {labels.SCHEDULE: schedule}}})
        if hook is None:
            return
        target, token = target_of(hook), token_of(name_of(impulse), schedule, instant)
        name, _ = target_name(target_of(spec_of(impulse)), namespace_of(impulse))
        failed = {"id": None, "name": name, "status": "rejected", "error": {"code": code, "message": message}, **cause}
        with suppress(InvalidDocument, Conflict):  # the alert itself cannot be started; the schedule shows the error
            await Requests(self._client).trigger(
                target.get("storyRef"),
                {**(hook.get("inputs") or {}), "failedRun": failed},
                token=f"alert:{token}",
                namespace=namespace_of(impulse),
                document=target.get("documentRef"),
            )
