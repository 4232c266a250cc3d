"""Removes runs that their parents have disowned: each once it, and everything below it, has ended.

The message that disowns a run stays in the inbox until the run is erased, and is erased with it in one transaction. A
crash before that leaves the message, and with it the work, to the next owner.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from perdure.engine.context import EngineContext
from perdure.engine.slot import Mail
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.commit_types import Message
from perdure.stores.protocol import RunFilter, RunRow, Store

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler

PRUNED_AT_ONCE = range(100, 1_000)  # runs in one transaction: at first, and at most
PRUNED_WITHIN = 0.25  # seconds that one may last before the next is smaller


class RunRemoval:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._store = context.store
        self._dialects = context.dialects
        self._clock = context.clock
        self._tasks = context.tasks
        self._scheduler = scheduler
        self._held: dict[RunId, list[Mail]] = {}  # runs that have ended, above others that have not
        self._announced: set[RunId] = set()

    def remove(self, run: RunId, mails: Sequence[Mail]) -> None:
        """The run has ended; `mails` are messages to it, which are not answered any more."""
        for mail in mails:
            mail.answer(i.Refused("the run is being removed"))
        self._tasks.spawn(self._remove(run, [mail for mail in mails if mail.position is not None]))

    def look_again(self) -> None:
        waiting, self._held = self._held, {}
        for run, mails in waiting.items():
            self._tasks.spawn(self._remove(run, mails))

    async def _remove(self, run: RunId, mails: list[Mail]) -> None:
        below = await descendants(self._store, run)
        still_open = [row.id for row in below if not row.status.is_final] + await self._store.unstarted_children(run)
        if still_open:
            self._held[run] = [*self._held.get(run, ()), *mails]
            for child in still_open:
                if child not in self._announced:
                    self._announced.add(child)
                    await self._store.send_together([Message(child, self._clock.now(), i.encode(i.Disown()))])
            await self._scheduler.inbox.read()
            return
        removed = await remove_runs(self._store, self._dialects.values(), [*(row.id for row in reversed(below)), run])
        if run not in removed and (row := await self._store.find(run)) is not None:
            await self._wait_for_control_messages(row, mails)
            return
        self._scheduler.inbox.forget(mails)
        self._announced.discard(run)
        self.look_again()

    async def _wait_for_control_messages(self, row: RunRow, mails: list[Mail]) -> None:
        """Somebody has said something to it, or to a run below it: that is decided first, then we come back."""
        if row.has_control_messages:
            self._scheduler.inbox.forget(
                mails
            )  # the message that removes the run is read again, together with the control messages
        else:
            self._held[row.id] = [*self._held.get(row.id, ()), *mails]
        await self._scheduler.inbox.read()


async def descendants(store: Store, run: RunId) -> list[RunRow]:
    """Parents before their children."""
    rows_below: list[RunRow] = []
    waiting = [run]
    while waiting:
        rows = await store.search(RunFilter(parent=waiting.pop()))
        rows_below += rows
        waiting += [row.id for row in rows]
    return rows_below


async def remove_runs(store: Store, dialects: Iterable[Dialect], runs: Sequence[RunId]) -> list[RunId]:
    """Remove these runs, in this order, with all they have in the store and beside it; which were removed."""
    removed = await store.remove(runs)
    await forget_runs(dialects, removed)
    return removed


async def forget_runs(dialects: Iterable[Dialect], runs: Sequence[RunId]) -> None:
    for dialect in dialects if runs else ():
        await asyncio.to_thread(dialect.forget, runs)


async def prune_runs(store: Store, dialects: Collection[Dialect], ended_before: Instant) -> int:
    """Remove runs whose whole tree ended before then; how many.

    In batches, so that others get to write in between; fewer runs at a time where they are long.
    """
    removed, at_once = 0, PRUNED_AT_ONCE.start
    while True:
        began = monotonic()
        pruned = await store.prune(ended_before, at_once)
        if not pruned:
            return removed
        await forget_runs(dialects, pruned)
        removed += len(pruned)
        lasted = monotonic() - began
        if lasted > PRUNED_WITHIN:
            at_once = max(at_once // 2, 1)
        elif lasted < PRUNED_WITHIN / 4:
            at_once = min(at_once * 2, PRUNED_AT_ONCE.stop)
