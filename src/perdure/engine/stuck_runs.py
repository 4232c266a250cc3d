"""Runs that cannot be decided. One harms no other: it is set aside, says why, and is tried again on demand."""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from perdure.engine.context import EngineContext
from perdure.engine.slot import Mail, Phase, Slot
from perdure.kernel import inputs as i
from perdure.kernel.errors import NewerRecord
from perdure.kernel.outcomes import Code, Failed, Status
from perdure.kernel.values import RunId
from perdure.stores.commit_types import Message, Transition, append_to
from perdure.stores.errors import StoreError

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler


# Runs of which a newer program has recorded something that this one does not know: they are left alone.


class IncompatibleRuns:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._context = context
        self._scheduler = scheduler
        self._waiting: dict[RunId, int] = {}  # with their partitions
        self.moving: set[RunId] = set()  # nothing may begin for these: they are another's from one moment to the next

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, run: RunId, partition: int) -> None:
        """The run, or a letter to it, cannot be read here."""
        self._waiting[run] = partition

    def leave(self, partitions: Collection[int]) -> None:
        """These are not ours any more."""
        self._waiting = {run: home for run, home in self._waiting.items() if home not in partitions}

    async def entrust(self, run: RunId, partition: int) -> bool:
        """Whether another server goes on with it; else it is noted."""
        self.note(run, partition)
        await self._entrust([run])
        return run not in self._waiting

    async def look(self) -> None:
        """Somebody who reads more may have come. A run in memory goes when it has come to rest."""
        runs = [run for run in self._waiting if run not in self._context.slots and run not in self.moving]
        if not runs:
            return
        self.moving.update(runs)
        try:
            await self._entrust(runs)
        except StoreError:
            pass  # looked for again soon; what matters is told by whoever needs the store
        finally:
            self.moving.difference_update(runs)
        self._scheduler.inbox.read_soon()

    async def _entrust(self, runs: list[RunId]) -> None:
        for run in await self._context.store.transfer(runs):
            self._waiting.pop(run, None)
            self._context.stuck.pop(run, None)
            self._scheduler.partitions.tell(f"run {run} was handed over to a server that runs a newer version")


_log = logging.getLogger("perdure.engine")

_FOLLOWS = (i.Wake, i.Proceed, i.TaskLost, i.Begin, i.Clear)
"""What comes again from what is recorded, when the run is tried again."""


class StuckRuns:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._context = context
        self._scheduler = scheduler

    def undecided(self, slot: Slot, error: Exception) -> None:
        """State was changed half-way, so it is folded anew; a second failure is the run's own."""
        slot.failures += 1
        if slot.failures >= 2 or slot.creation is not None:
            self.set_stuck(slot, error)
        else:
            _log.warning("run %s could not be decided; trying once more", slot.id, exc_info=error)
            self._scheduler.runs.reload(slot)

    def set_stuck(self, slot: Slot, error: Exception, *, is_born: bool = True) -> None:
        """Its error is shown, its inputs are kept."""
        if isinstance(error, NewerRecord):
            text = f"it waits for a server with a newer Perdure: {error}"
            _log.warning("run %s is left alone: %s", slot.id, text)
        else:
            text = f"{type(error).__name__}: {error}"
            _log.error("run %s is stuck: %r", slot.id, error, exc_info=error)
        slot.put_back()
        kept, slot.mailbox = slot.mailbox, []
        if slot.creation is not None or not is_born:  # it was never stored: the start itself is refused
            self._scheduler.runs.remove(slot)
            slot.phase = Phase.GONE
            self._context.tasks.spawn(self._cannot_begin(kept, text))
            return
        slot.phase = Phase.STUCK
        self._context.stuck[slot.id] = slot.partition
        self._scheduler.inbox.forget(kept)
        change = Transition(slot.id, slot.partition, 0, stuck=text)
        for mail in kept:
            if mail.position is None and not isinstance(mail.given, _FOLLOWS):
                change.messages = append_to(change.messages, [Message(slot.id, mail.at, i.encode(mail.given))])
                change.values = append_to(change.values, mail.values)
            mail.answer(i.Refused(f"the run is stuck: {text}"))
        self._scheduler.commit.add(slot, change)
        self._scheduler.commit.flush(alone=False)

    def set_aside(self, slot: Slot, text: str) -> None:
        """It cannot be created, because its name is another's: whoever wants it is told."""
        kept = [*slot.taken, *slot.mailbox]
        self._scheduler.runs.remove(slot)
        slot.phase = Phase.GONE
        self._context.tasks.spawn(self._cannot_begin(kept, text, Code.NAME_TAKEN))

    async def _cannot_begin(self, kept: list[Mail], text: str, code: Code = Code.CANNOT_BEGIN) -> None:
        for mail in kept:
            mail.answer(i.Refused(f"the run cannot begin: {text}", conflict=code is Code.NAME_TAKEN))
            if isinstance(mail.given, i.Start) and mail.given.parent is not None:
                parent, child = mail.given.parent
                failed = i.ChildResult(child, Status.FAILED, Failed(code, text, retryable=False))
                await self._context.store.send(Message(parent, self._context.clock.now(), i.encode(failed)))
        await self._scheduler.inbox.discard(kept)
        await self._scheduler.inbox.read()
