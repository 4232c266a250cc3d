"""Alerts: a document that is run once when a watched run has failed, over crashes and servers.

    run starts ──one commit──▶ its watch ··· run fails ──▶ request under the token `alert:RUN` ──▶ no watch

A watch is a row of the catalog. It is written with the decision that started the run, and removed after the alert was
requested; the request has a token, so repeating it after a crash finds the same run. The run of an alert is not
watched: an alert about an alert is never started.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.decision_threads import ShortTurns
from perdure.engine.random_ids import new_uid
from perdure.engine.runs import run_views
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict, InvalidDocument, NewerRecord
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Failed, Status
from perdure.services import ALERT_START
from perdure.stores.protocol import ResourceRemoval, ResourceRow, ResourceWrite, RunRow

WATCH = "RunWatch"
ALERTED = (Status.FAILED, Status.TIMED_OUT)
LONGEST_MESSAGE = 4_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RunWatch(msgspec.Struct, frozen=True):
    run: RunId
    namespace: str
    target: Mapping[str, Any]  # the document to run, as a request names it
    inputs: Mapping[str, Any]  # further members of its input
    cause: Mapping[str, Any]  # what has started the run


StartAlert = Callable[[Client, RunWatch, dict[str, Any], str], Awaitable[str]]
"""Request the alert about a watched run, with this input and token; what became of the request."""


def watch_write(watch: RunWatch) -> ResourceWrite:
    key = ResourceKey(WATCH, watch.namespace, watch.run)
    return ResourceWrite(key, new_uid(), 1, msgspec.json.encode(watch), b"", {}, None, 0)


class FailureAlerts:
    def __init__(self, client: Client, say: Callable[[str], None] = lambda line: None) -> None:
        self._client = client
        self._say = say
        module, _, name = ALERT_START.partition(":")
        self._start: StartAlert = getattr(import_module(module), name)

    async def poll(self) -> int:
        """Start the alerts about runs that have failed; how many runs are still watched."""
        watched = 0
        turns = ShortTurns()
        for key, _ in await self._client.store.list_keys(WATCH):
            await turns.pause()
            run = await self._client.store.find(RunId(key.name))
            if run is not None and not run.status.is_final:
                watched += 1
                continue
            row = (await self._client.store.resources([key])).get(key)
            if row is None:  # another server has
                continue
            watch = msgspec.json.decode(row.body, type=RunWatch)
            if run is not None and run.status in ALERTED:
                try:
                    await self._alert(watch, run)
                except NewerRecord:  # who can read the run looks after it
                    watched += 1
                    continue
            await self._forget(row)
        return watched

    async def _alert(self, watch: RunWatch, run: RunRow) -> None:
        input = {**watch.inputs, "failedRun": await self._describe(watch, run)}
        try:
            answer = await self._start(self._client, watch, input, f"alert:{watch.run}")
        except (Conflict, InvalidDocument) as error:  # reopened since, or no such document: nothing to repeat
            answer = str(error)
        self._say(f"run {watch.run} {run.status.value}; alert: {answer}")

    async def _describe(self, watch: RunWatch, run: RunRow) -> dict[str, Any]:
        """The failed run as the input of its alert."""
        execution = await run_views.load(self._client.store, self._client.languages, run)
        mask = await run_views.mask_of(self._client.store, execution)
        outcome = execution.state.outcome
        error: dict[str, Any] = {"code": "", "message": ""}
        if isinstance(outcome, Failed):
            details = None if outcome.details is None else jsontext.decode(outcome.details)
            error = {"code": outcome.code, "message": outcome.message[:LONGEST_MESSAGE], "details": details}
        described = {
            "id": run.id,
            "language": run.language,
            "name": run.name,
            "status": run.status.value,
            "startedAt": _utc(run.created_at),
            "endedAt": _utc(run.ended_at),
            "error": error,
            **watch.cause,
        }
        masked: dict[str, Any] = mask.data(described)
        return masked

    async def _forget(self, row: ResourceRow) -> None:
        await self._client.store.write_catalog([ResourceRemoval(row.key, row.version)])  # else another server has


def _utc(instant: Instant | None) -> str | None:
    if instant is None:
        return None
    return (_EPOCH + timedelta(microseconds=instant)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
