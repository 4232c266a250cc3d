"""Runs that cannot be decided. One harms no other: it is set aside, says why, and is tried again on demand."""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from perdure.engine.context import EngineContext
from perdure.engine.runs.run_views import mask_at_hand
from perdure.engine.slot import Mail, Slot, SlotPhase
from perdure.kernel import inputs as i
from perdure.kernel.errors import NewerRecord
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Code, Failed, Status
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
        """The run, or a message to it, cannot be read here."""
        self._waiting[run] = partition

    def leave(self, partitions: Collection[int]) -> None:
        """These are not ours any more."""
        self._waiting = {run: home for run, home in self._waiting.items() if home not in partitions}

    async def transfer(self, run: RunId, partition: int) -> bool:
        """Whether another server goes on with it; else it is noted."""
        self.note(run, partition)
        await self._transfer([run])
        return run not in self._waiting

    async def hand_over(self) -> None:
        """Somebody who reads more may have come. A run in memory goes when it has come to rest."""
        runs = [run for run in self._waiting if run not in self._context.slots and run not in self.moving]
        if not runs:
            return
        self.moving.update(runs)
        try:
            await self._transfer(runs)
        except StoreError:
            pass  # looked for again soon; what matters is told by whoever needs the store
        finally:
            self.moving.difference_update(runs)
        self._scheduler.inbox.read_soon()

    async def _transfer(self, runs: list[RunId]) -> None:
        for run in await self._context.store.transfer(runs):
            self._waiting.pop(run, None)
            self._context.stuck.pop(run, None)
            self._scheduler.partitions.notify(f"run {run} was handed over to a server that runs a newer version")


_log = logging.getLogger("perdure.engine")

_FOLLOWS = (i.Wake, i.Proceed, i.TaskLost, i.Begin, i.Clear)
"""What comes again from what is recorded, when the run is tried again."""


def _told(slot: Slot, error: Exception) -> tuple[str, Exception | None]:
    """What may be said of an error that a run has met, and the error itself if it may be shown as it is.

    Where secrets came with the run's input an error may quote them: they are hidden, and no traceback is shown.
    """
    name = type(error).__name__
    if slot.execution is None:
        return f"{name}: {error}", error
    try:
        mask = mask_at_hand(slot.execution)
    except Exception:  # what breaks the run may break this as well
        mask = None
    if mask is None:
        return f"{name} (its message may hold secrets that came with the run's input)", None
    return mask.text(f"{name}: {error}"), None if mask.hides else error


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
            text, shown = _told(slot, error)
            _log.warning(
                "run %s could not be decided (%s); trying once more",
                slot.id,
                text,
                exc_info=shown,
                extra={"run": slot.id},
            )
            self._scheduler.runs.reload(slot)

    def set_stuck(self, slot: Slot, error: Exception, *, is_born: bool = True) -> None:
        """Its error is shown, its inputs are kept."""
        if isinstance(error, NewerRecord):
            text = f"it waits for a server with a newer Perdure: {error}"
            _log.warning("run %s is left alone: %s", slot.id, text, extra={"run": slot.id})
        else:
            text, shown = _told(slot, error)
            _log.error("run %s is stuck: %s", slot.id, text, exc_info=shown, extra={"run": slot.id})
        slot.put_back()
        mails, slot.mailbox = slot.mailbox, []
        if slot.creation is not None or not is_born:  # it was never stored: the start itself is refused
            self._scheduler.runs.remove(slot)
            slot.phase = SlotPhase.GONE
            self._context.tasks.spawn(self._cannot_begin(mails, text))
            return
        slot.phase = SlotPhase.STUCK
        self._context.stuck[slot.id] = slot.partition
        self._scheduler.inbox.forget(mails)
        change = Transition(slot.id, slot.partition, 0, stuck=text)
        for mail in mails:
            if mail.position is None and not isinstance(mail.input, _FOLLOWS):
                change.messages = append_to(change.messages, [Message(slot.id, mail.at, i.encode(mail.input))])
                change.values = append_to(change.values, mail.values)
            mail.answer(i.Refused(f"the run is stuck: {text}"))
        self._scheduler.commit.add(slot, change)
        self._scheduler.commit.flush(alone=False)

    def set_aside(self, slot: Slot, text: str) -> None:
        """It cannot be created, because its name is another's: whoever wants it is told."""
        mails = [*slot.taken, *slot.mailbox]
        self._scheduler.runs.remove(slot)
        slot.phase = SlotPhase.GONE
        self._context.tasks.spawn(self._cannot_begin(mails, text, Code.NAME_TAKEN))

    async def _cannot_begin(self, mails: list[Mail], text: str, code: Code = Code.CANNOT_BEGIN) -> None:
        for mail in mails:
            mail.answer(i.Refused(f"the run cannot begin: {text}", conflict=code is Code.NAME_TAKEN))
            if isinstance(mail.input, i.Start) and mail.input.parent is not None:
                parent, child = mail.input.parent
                failed = i.ChildResult(child, Status.FAILED, Failed(code, text, retryable=False))
                await self._context.store.send(Message(parent, self._context.clock.now(), i.encode(failed)))
        await self._scheduler.inbox.discard(mails)
        await self._scheduler.inbox.read()
