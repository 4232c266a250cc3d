"""Background work of a server besides driving runs: decide requests, run schedules, alert, remove old runs."""

from collections.abc import Callable
from math import inf
from time import monotonic

from perdure.engine.runs.retention import Sweeper
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.services.failure_alerts import FailureAlerts
from perdure.services.schedules.administration import schedule_source
from perdure.services.schedules.cron_scheduler import CronScheduler
from perdure.wiring import Engine, retention_rules

POLL_EVERY = 0.5  # minimum seconds between polls while it changes or a request waits
POLL_AT_LATEST = 30.0  # seconds
POLL_FOR_RUNS = 1.0  # seconds between looks at runs whose end is waited for, and a little more for each of them
POLL_FOR_EACH_RUN = 0.005
SWEEP_EVERY: Instant = 60 * SECOND


class BackgroundService:
    def __init__(self, engine: Engine, *, say: Callable[[str], None] = lambda line: None) -> None:
        self._engine = engine
        self._say = say
        self._sweeper = Sweeper(engine, retention_rules())
        self._alerts = FailureAlerts(engine, say)
        self._swept_at: Instant | None = None
        self._catalog_version = -1
        self._polled_at = -inf
        self._is_open = True  # whether a request waits, or something failed
        self._poll_within = POLL_AT_LATEST
        self.cron = CronScheduler(engine, schedule_source(engine), say)

    async def run(self) -> None:
        """Run until cancelled, or until the engine has stopped."""
        try:
            while self._engine.runtime.stopped is None:
                if self._should_poll():
                    await self.poll()
                await self._engine.runtime.hear()
            raise self._engine.runtime.stopped
        finally:
            await self.cron.close()

    def _should_poll(self) -> bool:
        passed = monotonic() - self._polled_at
        has_changes = self._is_open or self._engine.store.catalog_mark() != self._catalog_version
        # Firings are handled beside this loop: that one waits for a run, perhaps of another server, shows later.
        within = min(self._poll_within, POLL_FOR_RUNS) if self.cron.has_waiting else self._poll_within
        return passed >= within or (has_changes and passed >= POLL_EVERY)

    async def poll(self) -> None:
        """Run one round. The failure of one part is logged, and tried again in the next round."""
        self._polled_at = monotonic()
        self._catalog_version = self._engine.store.catalog_mark()
        self._is_open = False
        self._poll_within = POLL_AT_LATEST
        for part in (self._engine.settle_requests, self._schedule, self._alert, self._sweep):
            try:
                if await part():
                    self._is_open = True
            except Exception as error:  # one bad resource must not stop the work for all others
                if self._engine.runtime.stopped is not None:
                    raise
                self._is_open = True
                kind = "" if isinstance(error, PerdureError) else f"{type(error).__name__}: "
                self._say(f"background task failed, will retry: {kind}{error}")

    async def _schedule(self) -> None:
        await self.cron.refresh()

    async def _alert(self) -> None:
        if watched := await self._alerts.poll():
            self._poll_within = min(self._poll_within, POLL_FOR_RUNS + POLL_FOR_EACH_RUN * watched)

    async def _sweep(self) -> None:
        now = self._engine.clock.now()
        if self._swept_at is not None and now - self._swept_at < SWEEP_EVERY:
            return
        self._swept_at = now
        swept = await self._sweeper.sweep()
        if swept.cleaned or swept.removed:
            self._say(f"retention: {swept.cleaned} cleaned, {swept.removed} removed")
