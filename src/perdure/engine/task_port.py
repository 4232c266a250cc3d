"""The engine's side of the door through which a task in flight speaks to its run."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.kernel import inputs as i
from perdure.kernel.assignments import Assignment, Claim
from perdure.kernel.errors import Conflict
from perdure.kernel.values import Payload, RunId

_log = logging.getLogger("perdure.task")

Ask = Callable[[RunId, i.Input], Awaitable[i.Answer]]
Text = Callable[[RunId, Payload], Awaitable[bytes]]


class TaskPort:
    __slots__ = ("_ask", "_assignment", "_text")

    def __init__(
        self,
        assignment: Assignment,
        ask: Ask,
        text: Text,
    ) -> None:
        self._assignment = assignment
        self._ask = ask
        self._text = text

    async def _must(self, given: i.Input) -> i.Answer:
        answer = await self._ask(self._assignment.run, given)
        if isinstance(answer, i.Refused):
            raise Conflict(f"{self._assignment.path}: {answer.reason}", run=self._assignment.run)
        return answer

    async def claim_effect(self, key: str) -> Claim:
        one = self._assignment
        answer = await self._must(i.EffectClaim(one.task, one.delivery, key))
        assert isinstance(answer, i.Claimed)
        result = None if answer.result is None else await self._text(one.run, answer.result)
        return Claim(answer.completed, answer.in_doubt, result, answer.unfit)

    async def complete_effect(self, key: str, result: bytes) -> None:
        await self._must(i.EffectDone(self._assignment.task, self._assignment.delivery, key, result))

    async def complete_effect_unfit(self, key: str, reason: str) -> None:
        await self._must(i.EffectUnfit(self._assignment.task, self._assignment.delivery, key, reason))

    async def release_effect(self, key: str) -> None:
        await self._must(i.EffectRelease(self._assignment.task, self._assignment.delivery, key))

    async def emit_signal(self, name: str, value: bytes) -> None:
        await self._must(i.Signal(name, value, by=f"task {self._assignment.path}"))

    async def report(self, body: bytes) -> bytes | None:
        answer = await self._must(i.TaskReport(self._assignment.task, self._assignment.delivery, body))
        return answer.body if isinstance(answer, i.Accepted) else None

    def heartbeat(self, detail: bytes | None) -> None:
        """In the engine's own process there is no lease to keep."""

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        one = self._assignment
        number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
        # The fields stay together: among the record's own attributes a user's `name` would be refused.
        _log.log(number, "%s", message, extra={"run": one.run, "path": one.path, "fields": fields})
