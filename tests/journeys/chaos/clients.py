"""Clients that start runs and send them control messages during the faults; each request is repeated until answered."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from perdure.engine.clock import SystemClock
from perdure.engine.settings import Settings
from perdure.engine.tasks.executor import NullExecutor
from perdure.kernel.errors import Conflict, PerdureError
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.stores.protocol import RunFilter
from perdure.wiring import Engine, Observer, open_store
from tests.journeys.chaos.workload import Order, Word

T = TypeVar("T")

STARTED_AT_ONCE = 12
PATIENCE = 60.0  # seconds that one wish may take
OPEN = [status for status in Status if not status.is_final]


@dataclass
class Clients:
    """`runs` are the starts that were acknowledged, by order; `words` what was said to runs and acknowledged."""

    url: str
    observer: Observer  # through which runs are spoken to and looked at
    chance: Random
    routes: Mapping[str, str] = field(
        default_factory=dict
    )  # as the servers have them: the first task is scheduled here
    runs: dict[Order, RunId] = field(default_factory=dict)
    words: list[tuple[RunId, Word]] = field(default_factory=list)
    asked_again: int = 0

    async def serve(self, orders: Sequence[Order], seconds: float) -> None:
        """Start all of it, evenly over so many seconds, and steer what wants to be steered."""
        steering: list[asyncio.Task[None]] = []
        groups = [orders[n : n + STARTED_AT_ONCE] for n in range(0, len(orders), STARTED_AT_ONCE)]
        begun = time.monotonic()
        for number, group in enumerate(groups):
            await asyncio.sleep(max(0.0, begun + seconds * number / len(groups) - time.monotonic()))
            await self._until_done(lambda group=group: self._start(group))  # type: ignore[misc]
            for order in group:
                steering += [asyncio.create_task(self._steer(order, word)) for word in order.words]
        for task in steering:
            await task

    async def _start(self, group: Sequence[Order]) -> None:
        """With an engine that does no work and soon leaves: others take its runs up."""
        from tests.journeys.chaos import tasks  # noqa: F401  (known from now on, as to whoever loads it)

        clock = SystemClock()
        store, settings = open_store(self.url, clock), Settings(routes=self.routes)
        async with Engine(store, clock=clock, hands=NullExecutor(), settings=settings) as engine:
            for order in group:
                self.runs[order] = await order.start(engine)

    async def _steer(self, order: Order, word: Word) -> None:
        await asyncio.sleep(self.chance.uniform(0, 4))
        await self._until_done(lambda: self._say(self.runs[order], word))

    async def _say(self, run: RunId, word: Word) -> None:
        try:
            await word.say(self.observer, run)
        except Conflict:
            return  # refused: it came too late, or was said before and the answer was lost
        self.words.append((run, word))

    async def _until_done(self, wish: Callable[[], Awaitable[T]]) -> T:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return await wish()
            except PerdureError:
                if time.monotonic() > end:
                    raise
                self.asked_again += 1
                await asyncio.sleep(0.2)

    async def all_ended(self, timeout: float) -> list[str]:
        """Wait until no run is open; those that still are when the timeout has ended."""
        end = time.monotonic() + timeout
        while True:
            still = await self._until_done(self._open)
            if not still or time.monotonic() > end:
                return still
            await asyncio.sleep(0.25)

    async def _open(self) -> list[str]:
        return [f"{row.id} {row.status.value}" for row in await self.observer.search(RunFilter(statuses=OPEN))]
