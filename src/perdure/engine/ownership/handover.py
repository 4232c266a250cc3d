"""Handing partitions over while work continues, so that nothing is started twice.

    begin ─▶ no messages, no new tasks ─▶ tasks in flight are recorded ─▶ runs leave memory ─▶ given up
                                       └─ takes too long: cancelled ─▶ continues here

A task that did not start is returned unstarted in its run's log: it costs no delivery. One that is running when a
process stops in order is named there too: it is not charged with the loss (invariant 27).
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from perdure.engine.context import EngineContext
from perdure.engine.slot import Slot, SlotPhase
from perdure.kernel import inputs as i
from perdure.stores.errors import StoreError

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler

_log = logging.getLogger("perdure.engine")

LOOK_EVERY = 0.05  # seconds between looks whether a partition could be given up; all else is told at once
SHY_OF_TRYING = 30.0  # seconds before a partition that took too long is tried again


class Handover:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._store = context.store
        self._partitions = context.partitions
        self._slots = context.slots
        self._scheduler = scheduler
        self._dispatcher = scheduler.dispatcher
        self._open: dict[int, set[Slot]] = {}  # by partition that is leaving: the runs that are not quiet yet
        self._until: dict[int, float] = {}
        self._took_long: dict[int, float] = {}
        self._is_giving = False

    def __contains__(self, partition: int) -> bool:
        return partition in self._open

    def __len__(self) -> int:
        return len(self._open)

    @property
    def leaving(self) -> list[int]:
        return list(self._open)

    def choose(self, count: int) -> list[int]:
        """The partitions that are given up most easily: empty ones, then idle ones, then those with little to end."""
        now = asyncio.get_running_loop().time()
        running = self._dispatcher.running()
        weight: dict[int, tuple[int, int]] = {}
        for slot in self._slots.values():
            tasks, runs = weight.get(slot.partition, (0, 0))
            weight[slot.partition] = (tasks + running[slot.id], runs + 1)
        willing = [
            partition for partition in self._partitions if self._took_long.get(partition, -inf) + SHY_OF_TRYING < now
        ]
        return sorted(willing, key=lambda partition: (weight.get(partition, (0, 0)), partition))[:count]

    def begin(self, partitions: Iterable[int], timeout: float) -> None:
        until = asyncio.get_running_loop().time() + timeout
        for partition in list(partitions):
            self._partitions.remove(partition)
            self._open[partition] = set()
            self._until[partition] = until
        for slot in list(self._slots.values()):
            if slot.partition in self._open and not slot.is_leaving:
                slot.is_leaving = True
                slot.unstarted = [*self._dispatcher.withdraw(slot.id), *self._scheduler.commands.withdraw_large(slot)]
                self._open[slot.partition].add(slot)
                if slot.phase is SlotPhase.READY and slot.comes_again:
                    slot.phase = SlotPhase.IDLE  # the next owner decides it
                self.look_at(slot)

    def look_at(self, slot: Slot) -> None:
        """The run has come to rest: perhaps it can go."""
        waiting = self._open.get(slot.partition)
        if waiting is None or not self._is_quiet(slot):
            return
        if slot.unstarted:
            self._return_unstarted(slot)
        else:
            waiting.discard(slot)

    def gone(self, slot: Slot) -> None:
        """The run has left memory for a reason of its own."""
        self._open.get(slot.partition, set()).discard(slot)

    def _is_quiet(self, slot: Slot) -> bool:
        return (
            slot.phase is SlotPhase.IDLE
            and not slot.fetching
            and slot.comes_again
            and not self._dispatcher.is_at_work(slot.id)
        )

    async def poll(self) -> None:
        """Give up what is drained, call off what takes too long. Called often while anything is leaving."""
        if self._is_giving or not self._open:
            return
        self._is_giving = True
        try:
            await self._give_up([partition for partition, waiting in self._open.items() if not waiting])
        except StoreError as error:
            _log.warning("partitions could not be given up, will retry: %s", error)
        finally:
            self._is_giving = False
        now = asyncio.get_running_loop().time()
        self._call_off([partition for partition, until in self._until.items() if until < now], now)

    async def _give_up(self, drained: list[int]) -> None:
        busy = {slot.partition for slot in self._slots.values() if slot.is_leaving and not self._is_quiet(slot)}
        drained = [partition for partition in drained if partition not in busy]
        if not drained:
            return
        self._scheduler.partitions.forget(
            drained
        )  # before: from the next moment on another process may decide its runs
        await self._store.give_up(drained)
        self.lost(drained)

    def lost(self, partitions: Collection[int]) -> None:
        """These are not ours any more, given up or not."""
        for partition in partitions:
            self._open.pop(partition, None)
            self._until.pop(partition, None)

    def _call_off(self, partitions: list[int], now: float) -> None:
        staying = [partition for partition in partitions if self._open.get(partition)]
        for partition in staying:
            self._took_long[partition] = now
        self.lost(staying)
        if staying:
            self._partitions.extend(staying)
            self._scheduler.partitions.stay_with(staying)

    async def leave(self, grace: float) -> bool:
        """Give everything up, within a grace; what is not drained then is left as by a process that ends."""
        self._until = dict.fromkeys(self._until, inf)
        self.begin(list(self._partitions), inf)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self._open:
                    await self.poll()
                    await asyncio.sleep(LOOK_EVERY)
        return not self._open

    def return_unstarted(self) -> None:
        """Nothing more is waited for: what was not begun is written down, and what is at work and will not end here."""
        for slot in list(self._slots.values()):
            started = [assignment.task for assignment in self._dispatcher.at_work(slot.id)]
            if slot.is_leaving and (slot.unstarted or started):
                self._return_unstarted(slot, started)

    def _return_unstarted(self, slot: Slot, started: Sequence[int] = ()) -> None:
        unbegun, slot.unstarted = slot.unstarted, []
        slot.returning.update(unbegun)
        self._scheduler.offer_now(slot.id, i.LayDown(unbegun, list(started)))
