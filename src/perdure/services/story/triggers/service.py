"""What a process does that stays, besides driving runs: decides requests, keeps schedules, prunes."""

import asyncio
import random
from collections.abc import Callable
from math import inf
from time import monotonic

from perdure.engine.retention import Sweeper
from perdure.kernel.errors import PerdureError
from perdure.kernel.values import SECOND, Instant
from perdure.services.story.triggers.cron_service import CronScheduler
from perdure.wiring import Engine

LISTEN_EVERY = 0.08  # seconds between questions whether the catalog has changed, which cost nothing
LOOK_EVERY = 0.5  # seconds between looks, at least, while it changes or a request waits
LOOK_ANYWAY = 30.0  # seconds
SWEEP_EVERY: Instant = 60 * SECOND


class TriggerService:
    def __init__(
        self,
        engine: Engine,
        *,
        chance: Callable[[], float] = random.random,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._engine = engine
        self._say = say
        self._sweeper = Sweeper(engine)
        self._swept_at: Instant | None = None
        self._mark = -1
        self._looked_at = -inf
        self._is_open = True  # whether a request waits, or something went wrong
        self.keeper = CronScheduler(engine, chance=chance, say=say)

    async def run(self) -> None:
        """Until it is cancelled, or the engine has stopped."""
        try:
            while self._engine.runtime.stopped is None:
                if self._should_poll():
                    await self.poll()
                await asyncio.sleep(LISTEN_EVERY)
            raise self._engine.runtime.stopped
        finally:
            await self.keeper.close()

    def _should_poll(self) -> bool:
        passed = monotonic() - self._looked_at
        is_news = self._is_open or self._engine.store.catalog_mark() != self._mark
        return passed >= LOOK_ANYWAY or (is_news and passed >= LOOK_EVERY)

    async def poll(self) -> None:
        """One round. What goes wrong for one part is told, and tried again in the next round."""
        self._looked_at = monotonic()
        self._mark = self._engine.store.catalog_mark()
        self._is_open = False
        for part in (self._engine.settle_requests, self.keeper.refresh, self._sweep):
            try:
                if await part():
                    self._is_open = True
            except Exception as error:  # what one resource asks for must not end what is done for all
                if self._engine.runtime.stopped is not None:
                    raise
                self._is_open = True
                kind = "" if isinstance(error, PerdureError) else f"{type(error).__name__}: "
                self._say(f"trouble, tried again soon: {kind}{error}")

    async def _sweep(self) -> None:
        now = self._engine.clock.now()
        if self._swept_at is not None and now - self._swept_at < SWEEP_EVERY:
            return
        self._swept_at = now
        swept = await self._sweeper.sweep()
        if swept.cleaned or swept.removed:
            self._say(f"retention: {swept.cleaned} cleaned, {swept.removed} removed")
