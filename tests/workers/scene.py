"""What the tests of workers and providers stand on: a loop, a worker, and a ledger that plays the run."""

import asyncio
import os
import select
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.tasks.assignments import Assignment, EffectClaimResult
from perdure.providers.registry import Registry, shared
from perdure.workers.concurrency_limits import Limits
from perdure.workers.worker import Worker

P = ParamSpec("P")


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on a fresh event loop; half a minute is a hang."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


class Ledger:
    """The run's side of the port, in memory."""

    def __init__(self) -> None:
        self.completed: dict[str, bytes] = {}
        self.claimed: set[str] = set()
        self.released: list[str] = []
        self.unfit: dict[str, str] = {}
        self.signals: list[tuple[str, bytes]] = []
        self.heartbeats: list[bytes | None] = []
        self.lines: list[tuple[str, str, dict[str, Any]]] = []
        self._waiting: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def claim_effect(self, key: str) -> EffectClaimResult:
        if key in self.completed or key in self.unfit:
            return EffectClaimResult(completed=True, result=self.completed.get(key), unfit=self.unfit.get(key))
        was_claimed = key in self.claimed
        self.claimed.add(key)
        return EffectClaimResult(completed=False, in_doubt=was_claimed)

    async def complete_effect(self, key: str, result: bytes) -> None:
        self.completed[key] = result

    async def complete_effect_unfit(self, key: str, reason: str) -> None:
        self.unfit[key] = reason

    async def release_effect(self, key: str) -> None:
        self.claimed.discard(key)
        self.released.append(key)

    async def emit_signal(self, name: str, value: bytes) -> None:
        self.signals.append((name, value))

    async def report(self, body: bytes) -> bytes | None:
        return body

    def heartbeat(self, detail: bytes | None) -> None:
        self.heartbeats.append(detail)

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        self.lines.append((level, message, fields))
        self._waiting[message].set()

    async def heard(self, message: str) -> None:
        """Wait until the task has logged this."""
        await self._waiting[message].wait()

    @property
    def messages(self) -> list[str]:
        return [message for _, message, _ in self.lines]


def task(provider: str, arguments: Any = None, input: Any = None, **facts: Any) -> Assignment:
    defaults: dict[str, Any] = {
        "run": RunId("r1"),
        "task": 1,
        "path": "main/step",
        "attempt": 1,
        "delivery": 1,
        "idempotency_key": "r1/main/step",
    }
    return Assignment(
        provider=provider,
        arguments=jsontext.encode(arguments if arguments is not None else {}),
        input=jsontext.encode(input),
        **{**defaults, **facts},
    )


@asynccontextmanager
async def at_work(registry: Registry = shared, limits: Limits | None = None, **options: Any) -> AsyncIterator[Worker]:
    worker = Worker(registry, limits=limits, **options)
    try:
        yield worker
    finally:
        await worker.close()


async def outcome_of(provider: str, arguments: Any = None, input: Any = None, **options: Any) -> Outcome:
    """One task, from start to end, in a worker of its own."""
    async with at_work(**options) as worker:
        return await worker.run(task(provider, arguments, input), Ledger())


def value_of(outcome: Outcome) -> Any:
    assert isinstance(outcome, Succeeded), outcome
    assert isinstance(outcome.value, bytes)
    return jsontext.decode(outcome.value)


def failure_of(outcome: Outcome) -> tuple[str, bool | None]:
    assert isinstance(outcome, Failed), outcome
    return str(outcome.code), outcome.retryable


def details_of(outcome: Outcome) -> Any:
    assert isinstance(outcome, Failed), outcome
    assert outcome.details is not None
    return jsontext.decode(outcome.details)


def is_cancelled(outcome: Outcome) -> bool:
    return isinstance(outcome, Cancelled)


def has_ended(pid: int) -> bool:
    """Wait for the end of a process that is not our child; a kill takes effect a moment after it is sent."""
    if hasattr(os, "pidfd_open"):
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        with os.fdopen(watched, "rb"):
            return bool(select.select([watched], [], [], 10)[0])
    for _ in range(1000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False
