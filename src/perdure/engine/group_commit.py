"""Group commit: all transitions that are ready are written in one transaction, one batch at a time.

A commit is committed, fenced or unknown. After *unknown* nothing is assumed: the store is opened anew and the
batch's runs are folded from what is on disk. A store that stays broken stops the engine. What is fenced was not
written: its runs have another owner now.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from perdure.engine.context import EngineContext
from perdure.engine.slot import GONE, Slot
from perdure.stores.commit_types import CommitAnswer, Committed, CommitUnknown, Fenced, Transition

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler

_log = logging.getLogger("perdure.engine")

Batch = list[tuple[Slot, Transition]]

LONGEST_PAUSE = 2.0  # seconds between two tries of a store that is there, and still does not take it


class GroupCommit:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._store = context.store
        self._tasks = context.tasks
        self._most = context.settings.batch
        self._tries = context.settings.commit_tries
        self._scheduler = scheduler
        self._pending: deque[tuple[Slot, Transition]] = deque()
        self._unknown_in_a_row = 0
        self._is_busy = False
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self._is_busy

    def add(self, slot: Slot, change: Transition) -> None:
        self._pending.append((slot, change))

    def close(self) -> None:
        self._is_closed = True
        self._pending.clear()

    def flush(self, *, alone: bool) -> None:
        """Write what is pending. `alone`: nothing else could be decided meanwhile, so waiting costs nobody anything."""
        if not self._pending or self._is_busy or self._is_closed:
            return
        if alone and (batch := self._next()):
            answer = self._store.commit_at_once([change for _, change in batch])
            if isinstance(answer, Committed):
                self._unknown_in_a_row = 0
                self._scheduler.committed(batch, answer)
                return
            if answer is not None:
                self._is_busy = True
                self._tasks.spawn(self._conclude(batch, answer))
                return
            self._pending.extendleft(reversed(batch))
        self._is_busy = True
        self._tasks.spawn(self._commit())

    def _next(self) -> Batch:
        if len(self._pending) <= self._most:
            batch = list(self._pending)
            self._pending.clear()
        else:
            batch = [self._pending.popleft() for _ in range(self._most)]
        return [(slot, change) for slot, change in batch if slot.phase is not GONE]

    async def _commit(self) -> None:
        while self._pending and not self._is_closed:
            batch = self._next()
            if batch:
                await self._settle(batch, await self._store.commit([change for _, change in batch]))
        self._is_busy = False

    async def _conclude(self, batch: Batch, answer: CommitAnswer | Awaitable[CommitAnswer]) -> None:
        await self._settle(batch, answer if isinstance(answer, Committed | Fenced | CommitUnknown) else await answer)
        await self._commit()

    async def _settle(self, batch: Batch, answer: CommitAnswer) -> None:
        if isinstance(answer, Committed):
            self._unknown_in_a_row = 0
            self._scheduler.committed(batch, answer)
        else:
            await self._not_committed(batch, answer)

    async def _not_committed(self, batch: Batch, answer: Fenced | CommitUnknown) -> None:
        if isinstance(answer, Fenced):
            self._scheduler.fenced(batch, answer.partitions)
            return
        self._unknown_in_a_row += 1
        if self._unknown_in_a_row >= self._tries:
            raise answer.error
        _log.warning("the outcome of a commit is unknown, reading what is on disk: %s", answer.error)
        await self._store.reopen()
        if self._unknown_in_a_row > 2:  # it can be opened, but not written to
            await asyncio.sleep(min(LONGEST_PAUSE, 0.05 * 2**self._unknown_in_a_row))
        self._scheduler.start_over(batch)
