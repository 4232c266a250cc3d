"""Which partitions are ours, now: a private one, or a fair part of what all who serve share.

What was lost (a commit was fenced, a lease was over) is dropped whole. Then the process joins again and continues with
what it gets.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from math import inf
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from perdure.engine.context import EngineContext
from perdure.engine.ownership.recovery import brought_by_code
from perdure.engine.runs.run_removal import descendants
from perdure.engine.slot import ELSEWHERE, Mail, Slot, SlotPhase
from perdure.kernel import inputs as i
from perdure.kernel.errors import EngineMissing
from perdure.kernel.ids import is_family
from perdure.kernel.json_values.values import RunId
from perdure.stores.errors import StoreError
from perdure.stores.protocol import AdoptedRuns, Share

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler

_log = logging.getLogger("perdure.engine")

T = TypeVar("T")

WOKEN_AT_ONCE = 2_000
AGAIN = 1.0  # seconds before the store is asked again, after trouble


class Partitions:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._context = context
        self._store = context.store
        self._settings = context.settings
        self._partitions = context.partitions
        self._tasks = context.tasks
        self._scheduler = scheduler
        self._handover = scheduler.handover
        self.home = 0  # where runs of a process that does not serve are born
        self.notify: Callable[[str], None] = _log.info
        self.is_guest = not context.settings.drives  # what is started here, a server that drives runs goes on with
        self.is_leaving = False  # nothing more is taken: it would be what we have just given up
        self._is_looking = False
        self._is_coming_back = False
        self._joining = asyncio.Lock()  # `share` and `rejoin` take turns: each answers for the moment it is asked

    def birthplace(self, run: RunId) -> int | None:
        """Where a new run of ours is born; None while we own nothing."""
        if not self._partitions:
            return None
        if self.home in self._partitions:
            return self.home
        return sorted(self._partitions)[crc32(run.encode()) % len(self._partitions)]

    async def join(self) -> None:
        if not self._settings.drives:
            return
        if self._settings.serves:
            await self._take_up(self._gain(await self._store.share()))
        else:
            self.home = await self._store.claim()
            self._partitions.append(self.home)

    def poll(self) -> None:
        """See who came, who left and who was late, if it is time to; called often."""
        if self._store.is_late:
            self.late()
        elif self._settings.serves and self._store.should_share():
            self.look_around()
        if len(self._handover):
            self._tasks.spawn(self._handover.poll())

    def look_around(self) -> None:
        is_busy = self._is_looking or self._is_coming_back or self.is_leaving
        if self._settings.serves and self._settings.drives and not is_busy:
            self._is_looking = True
            self._tasks.spawn(self._share())

    async def _share(self) -> None:
        is_seen = True
        try:
            async with self._joining:
                got = self._gain(await self._store.share())
            await self._take_up(got)
        except StoreError as error:
            _log.warning("cannot read what the other servers own, will retry: %s", error)
            is_seen = False
            await asyncio.sleep(AGAIN)
        finally:
            self._is_looking = False
        if not is_seen:
            self.look_around()

    def _gain(self, got: Share) -> Share:
        """What was free is ours now. What we believed to own all the time may have had another owner in between."""
        self.is_guest = got.is_waiting
        self._handover.lost(got.taken)
        regained = [partition for partition in got.taken if partition in self._partitions]
        for partition in regained:
            self._partitions.remove(partition)
        self.forget(regained)
        self._add(got.taken)
        return got

    def _add(self, partitions: Sequence[int]) -> None:
        """Ours from now on. A run that is being loaded may have been read while another owned it: it is read again."""
        self._partitions.extend(partitions)
        if partitions:
            self._load_anew()

    def _load_anew(self) -> None:
        for slot in [slot for slot in self._context.slots.values() if not slot.partition]:
            self._scheduler.runs.load_anew(slot)

    async def _take_up(self, got: Share) -> None:
        for name in got.ended:
            self.notify(f"taking over the runs of {name}")
        if got.taken:
            if self.is_leaving:  # it was asked for before we knew
                self._handover.begin(got.taken, inf)
                return
            await self.take_up(got.taken)
        elif got.adopted:
            await self.wake(runs_of(got.adopted))
        if got.surplus > len(self._handover):
            chosen = self._handover.choose(got.surplus - len(self._handover))
            self._handover.begin(chosen, self._settings.drain)

    async def find_birthplace(self, run: RunId) -> int | None:
        """Where a new run is born; None: at another server. One that has just come, or was late, waits until it owns
        something.
        """
        while (place := self.birthplace(run)) is None:
            self._scheduler.must_run()
            if self.is_guest:
                if not self._settings.drives or any(server.serves for server in await self._store.servers()):
                    return None
                self.look_around()  # the server that we waited for has ended
            await asyncio.sleep(self._settings.poll)
        return place

    # Runs that come and go with their partitions.

    async def adopt(self, families: Sequence[RunId] | None = None) -> None:
        """Take up what has no live owner: all of it, or these runs with their children."""
        home = await self.find_birthplace(families[0] if families else RunId(""))
        if home is None:
            raise EngineMissing("this server leaves runs to other servers")
        moved = runs_of(await self._store.move(families, home))
        self._load_anew()
        stuck = [
            run for run in self._context.stuck if families is None or any(is_family(run, family) for family in families)
        ]
        await self.wake([*moved, *(run for run in stuck if run not in moved)])  # ours that are stuck are tried again

    async def give_back(self, family: RunId) -> bool:
        """Leave a family to whoever can do it, once nothing of it moves here; its tasks were not begun."""
        slots = [slot for slot in self._context.slots.values() if is_family(slot.id, family)]
        if any(self._scheduler.dispatcher.is_at_work(slot.id) for slot in slots) or self._scheduler.runs.is_moving(
            family
        ):
            return False
        for slot in slots:
            slot.is_leaving = True
            unread = self._scheduler.commands.withdraw_large(slot)
            if unbegun := [*self._scheduler.dispatcher.withdraw(slot.id), *unread]:
                slot.returning.update(unbegun)
                await self._scheduler.ask(slot.id, i.LayDown(unbegun))
        below = [row.id for row in await descendants(self._store, family)]
        if self._scheduler.runs.is_moving(family):  # something has come for it meanwhile
            self._stay_with([slot for slot in slots if not slot.is_gone])
            return False
        self._scheduler.incompatible.moving.update([family, *below])
        try:
            for slot in [slot for slot in self._context.slots.values() if is_family(slot.id, family)]:
                self._scheduler.runs.drop(slot, ELSEWHERE)
                self._scheduler.dispatcher.forget(slot.id)
            await self._store.disown_families([family], self.home)
        finally:
            self._scheduler.incompatible.moving.difference_update([family, *below])
        self._scheduler.waiters.look_again()
        return True

    async def take_up(self, partitions: Sequence[int]) -> None:
        """Drive the runs of these partitions from what is recorded of them."""
        await self.wake(await self._store.runs_with_work(partitions))

    async def wake(self, runs: Sequence[RunId]) -> None:
        """Drive these runs, which have open work, and all others of ours that something has come for."""
        await self._scheduler.inbox.read()  # first: a result that is known is not asked for again
        now = self._context.clock.now()
        for run in runs:
            self._scheduler.offer(run, Mail(now, 0, i.Wake()))
        await self.announce_code(list(self._partitions))
        await self.wake_parked()

    async def announce_code(self, partitions: Sequence[int]) -> None:
        for run, permit in await brought_by_code(self._store, self._context.dialects.values(), partitions):
            self._scheduler.offer_now(run, i.PermitGrant(permit))

    def forget(self, partitions: Collection[int]) -> None:
        """Not ours any more: nothing of them stays in memory, nothing more is written, tasks in hand are stopped."""
        if not partitions:
            return
        for slot in list(self._context.slots.values()):
            if slot.partition in partitions:
                self._scheduler.runs.drop(slot, ELSEWHERE)
                self._give_up_tasks(slot.id)
            elif not slot.partition:
                if self._partitions:
                    self._scheduler.runs.load_anew(slot)
                else:
                    self._scheduler.runs.drop(slot, ELSEWHERE)
        for run in [run for run, home in self._context.stuck.items() if home in partitions]:
            del self._context.stuck[run]
        self._scheduler.incompatible.leave(partitions)
        self._scheduler.inbox.leave(partitions)
        self._scheduler.waiters.look_again()

    def _give_up_tasks(self, run: RunId) -> None:
        at_work = self._scheduler.dispatcher.at_work(run)
        alone = next((assignment for assignment in at_work if self._scheduler.dispatcher.is_alone(assignment)), None)
        self._scheduler.dispatcher.forget(run)
        self._scheduler.recorder.lose(run, at_work, alone)

    def stay_with(self, partitions: list[int]) -> None:
        """They were about to be handed over, and stay after all: what was held back is begun."""
        self._stay_with(
            [slot for slot in self._context.slots.values() if slot.partition in partitions and slot.is_leaving]
        )
        self._tasks.spawn(self.take_up(partitions))

    def _stay_with(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            slot.is_leaving = False
            unbegun, slot.unstarted = slot.unstarted, []
            if slot.execution is None:
                continue  # its tasks are handed out when it is loaded
            for number in unbegun:
                self._scheduler.commands.hand_out(slot, slot.execution, number)
            slot.has_unassigned_tasks = True
            if slot.phase is SlotPhase.IDLE:
                self._scheduler.idle(slot)
        self._scheduler.dispatcher.fill()

    async def wake_parked(self) -> None:
        await self._scheduler.inbox.read()  # what was acknowledged before a timer was due comes before it
        now = self._context.clock.now()
        ahead = self._context.clock.wall() - now
        due = await self._store.due(self._partitions, now, WOKEN_AT_ONCE, ahead)
        for run in due:
            if run not in self._context.slots:
                self._scheduler.offer(run, Mail(now, 0, i.Wake()))
        if len(due) == WOKEN_AT_ONCE:  # the rest a moment later, when these are decided
            self._scheduler.timers.parked(now + 10_000)
        self._scheduler.timers.parked(await self._store.next_due(self._partitions, now, ahead))

    # Losing, and coming back.

    def late(self) -> None:
        """Our lease is over: others may have taken everything over, and nothing in memory is worth anything."""
        if not self._is_coming_back:
            _log.warning("this process was late to renew its lease; it drops what it has in memory and joins again")
        self.lost([*self._partitions, *self._handover.leaving])

    def lost(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            if partition in self._partitions:
                self._partitions.remove(partition)
        self._handover.lost(partitions)
        self.forget(partitions)
        if not self._is_coming_back:
            self._is_coming_back = True
            self._tasks.spawn(self._come_back())

    async def _come_back(self) -> None:
        try:
            await self._rejoin()
        finally:
            self._is_coming_back = False
        self.look_around()

    async def _rejoin(self) -> None:
        async with self._joining:
            owned = await self._patiently(self._store.rejoin)
            before = [*self._partitions, *self._handover.leaving]
            taken_over = [partition for partition in before if partition not in owned]
            if taken_over:
                self.lost(taken_over)
            again = [partition for partition in owned if partition not in before]
            self._add(again)
        if not self._settings.serves and self.home not in owned:
            _log.warning("another process has taken over the runs of this process, which only follows them from now on")
            self.home = await self._patiently(self._store.claim)
            self._partitions.append(self.home)
        await self.take_up(again)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A server outlives trouble with its store; any other process says what the trouble is."""
        while True:
            try:
                return await ask()
            except StoreError as error:
                if not self._settings.serves or self.is_leaving:
                    raise
                _log.warning("cannot join the other servers, trying again: %s", error)
                await asyncio.sleep(AGAIN)


def runs_of(adopted: Sequence[AdoptedRuns]) -> list[RunId]:
    return [run for owner in adopted for run in owner.runs]
