"""Removes runs that their parents have disowned: each once it, and everything below it, has ended.

The message that disowns a run stays in the inbox until the run is erased, and is erased with it in one transaction. A
crash before that leaves the message, and with it the work, to the next owner.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from perdure.engine.context import EngineContext
from perdure.engine.slot import Mail
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.commit_types import Message
from perdure.stores.errors import StoreFull
from perdure.stores.protocol import RunFilter, RunRow, Store
from perdure.stores.run_removal import LastView

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler

PRUNED_AT_ONCE = range(100, 1_000)  # runs in one transaction: at first, and at most
LOOKS = 3  # at runs that change while they are removed
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
        removed = await remove_runs(self._store, self._dialects, [*(row.id for row in reversed(below)), run])
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


async def remove_runs(
    store: Store, dialects: Mapping[str, Dialect], runs: Sequence[RunId], ended_before: Instant | None = None
) -> list[RunId]:
    """Remove these runs, in this order, with all they have in the store and beside it; which were removed.

    Whoever watches is told what they showed last: a run that changes meanwhile is looked at again.
    """
    removed: list[RunId] = []
    views: dict[RunId, LastView] = {}
    for look in range(LOOKS):
        left = [run for run in runs if run not in removed]
        views_before, views = views, await _last_views(store, dialects, left)
        if look and views == views_before:
            break
        try:
            removed += await store.remove(left, views, ended_before)
        except StoreFull:  # to make room is more important
            removed += await store.remove(left, {}, ended_before)
        if not views or len(removed) == len(runs):
            break
    await forget_runs(dialects.values(), removed)
    return removed


async def _last_views(store: Store, dialects: Mapping[str, Dialect], runs: Sequence[RunId]) -> dict[RunId, LastView]:
    """What runs show as resources, if their languages show them so and somebody may watch."""
    from perdure.engine.decision_threads import ShortTurns  # most engines remove nothing that anybody watches
    from perdure.engine.resources.resource_views import last_view

    views: dict[RunId, LastView] = {}
    turns = ShortTurns()
    if not runs or not await _may_be_watched(store, dialects):
        return views
    for run in runs:
        for stored in await store.load([run]):
            dialect = dialects.get(stored.row.language)
            if dialect is not None and dialect.shows_resources:
                with suppress(PerdureError):  # it cannot be read here: it goes all the same
                    views[run] = await last_view(store, dialect, stored)
        await turns.pause()
    return views


async def _may_be_watched(store: Store, dialects: Mapping[str, Dialect]) -> bool:
    return any(dialect.shows_resources for dialect in dialects.values()) and await store.is_feed_open()


async def forget_runs(dialects: Iterable[Dialect], runs: Sequence[RunId]) -> None:
    for dialect in dialects if runs else ():
        await asyncio.to_thread(dialect.forget, runs)


async def prune_runs(store: Store, dialects: Mapping[str, Dialect], ended_before: Instant) -> int:
    """Remove runs whose whole tree ended before then; how many.

    In batches, so that others get to write in between; fewer runs at a time where they are long.
    """
    removed, at_once = 0, PRUNED_AT_ONCE.start
    while True:
        began = monotonic()
        pruned = await _prune(store, dialects, ended_before, at_once)
        if not pruned:
            return removed
        removed += len(pruned)
        lasted = monotonic() - began
        if lasted > PRUNED_WITHIN:
            at_once = max(at_once // 2, 1)
        elif lasted < PRUNED_WITHIN / 4:
            at_once = min(at_once * 2, PRUNED_AT_ONCE.stop)


async def _prune(store: Store, dialects: Mapping[str, Dialect], ended_before: Instant, at_once: int) -> list[RunId]:
    if await _may_be_watched(store, dialects):
        with suppress(StoreFull):
            runs = await store.prunable(ended_before, at_once)
            if pruned := await remove_runs(store, dialects, runs, ended_before):
                return pruned
    pruned = await store.prune(ended_before, at_once)
    await forget_runs(dialects.values(), pruned)
    return pruned
