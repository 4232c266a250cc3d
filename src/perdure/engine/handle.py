"""A run as callers hold it: its result, its history, and what can be done to it, wherever it lives."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from perdure.engine.decision_threads import JSON_PER_WORK, done_aside
from perdure.engine.runs import effects
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Status, Succeeded
from perdure.kernel.pause import PAUSE, RESUME

if TYPE_CHECKING:
    from perdure.engine.client import Client


class RunFailed(PerdureError):
    """The run ended, but not well."""

    code = "RUN-FAILED"
    hint = "See `perdure show RUN` and `perdure history RUN`."

    def __init__(self, run: RunId, status: Status, outcome: Outcome) -> None:
        self.run = run
        self.status = status
        self.outcome = outcome
        match outcome:
            case Failed(code, message):
                reason_text = f": {code}{f' ({message})' if message else ''}"
            case Cancelled(reason):
                reason_text = f": {reason}" if reason else ""
            case _:
                reason_text = ""
        super().__init__(f"run {run} {status.value.replace('_', ' ')}{reason_text}")


class Handle:
    """A run, wherever it lives."""

    def __init__(self, engine: "Client", id: RunId) -> None:
        self._engine = engine
        self.id = id

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def result(self, timeout: float | None = None) -> Any:
        """The value the run ends with; raises `RunFailed` when it ends otherwise.

        `timeout`: after so many seconds `TimeoutError` is raised; the run goes on.
        """
        try:
            status, outcome = await asyncio.wait_for(self._engine.wait(self.id), timeout)
        except TimeoutError:
            raise TimeoutError(f"run {self.id} has not ended within {timeout} s") from None
        if isinstance(outcome, Succeeded) and status.has_result:
            text = await self._engine.text(self.id, outcome.value)
            return await done_aside(len(text) // JSON_PER_WORK, lambda: jsontext.decode(text))
        raise RunFailed(self.id, status, outcome)

    async def cancel(self, reason: str = "", by: str = "") -> SendResult:
        """Ask it to stop; answers once the request is on disk."""
        return await self._engine.cancel(self.id, reason, by)

    async def pause(self, reason: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        """It makes no move from now on, and none of its tasks is handed out; what is at work goes on to its end."""
        return await self._engine.steer(self.id, PAUSE, {"reason": reason}, key=key, by=by)

    async def unpause(self, reason: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        """Let it go on."""
        return await self._engine.steer(self.id, RESUME, {"reason": reason}, key=key, by=by)

    async def approve(self, step: str, message: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        """Let a Story pass a gate, now or when it reaches it."""
        return await self._decide(step, "Approved", message, key, by)

    async def reject(self, step: str, message: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        """Fail a gate of a Story, now or when it is reached."""
        return await self._decide(step, "Rejected", message, key, by)

    async def _decide(self, step: str, state: str, message: str, key: str | None, by: str) -> SendResult:
        decision = {"step": step, "state": state, "message": message, "by": by}
        return await self._engine.steer(self.id, "gate", decision, key=key, by=by)

    async def patch(
        self, ctx: Mapping[str, Any], *, reason: str = "", key: str | None = None, by: str = ""
    ) -> SendResult:
        """Set members of a Playbook's ctx; a dotted name sets a nested member."""
        return await self._engine.steer(self.id, "patch", {"ctx": dict(ctx), "reason": reason}, key=key, by=by)

    async def redrive(self, step: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        """Reopen a run that has ended: a Flow or a Playbook where it failed, a Story from this step on or as a whole.

        A Story that is still open is stopped first.
        """
        body = {"step": step, "token": key or ""} if step or key else None
        if (await self.status()).is_final:
            return await self._engine.redrive(self.id, body, key=key, by=by)
        return await self._engine.steer(self.id, "redrive", body or {}, key=key, by=by)

    async def signal(self, name: str, value: Any = None, *, key: str | None = None, by: str = "") -> SendResult:
        """Send it a signal; it is kept if the run does not wait for it yet."""
        return await self._engine.signal(self.id, name, value, key=key, by=by)

    async def effects(self) -> list[dict[str, Any]]:
        """What its tasks have done to the outside, each with its `state`; those `in_doubt` may have happened."""
        return await effects.effects(self._engine, self.id)

    async def settle_effect(self, effect: str, result: Any = None, *, done: bool, by: str = "") -> None:
        """Say of an effect in doubt that it was `done`, with this result, or that it was not."""
        await effects.settle(self._engine, self.id, effect, jsontext.encode(result) if done else None, by=by)

    async def show(self, at: int | None = None) -> Any:
        """What it is, as `perdure show --json` prints it; `at`: as it was at an event."""
        return await self._engine.show(self.id, at)

    async def status(self) -> Status:
        """How far it is: one word."""
        return (await self._engine.find(self.id)).status

    async def history(self, *, raw: bool = False) -> list[dict[str, Any]]:
        """Everything recorded so far, in the language's own event names where it has any; `raw`: in the kernel's."""
        return await self._engine.history(self.id, raw=raw)

    async def events(self, *, raw: bool = False) -> AsyncIterator[dict[str, Any]]:
        """The same, from the first event until the run ends."""
        async for event in self._engine.follow(self.id, raw=raw):
            yield event
