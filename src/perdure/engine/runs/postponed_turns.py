"""Turns that cannot be made at once: messages are read first, a decision needs values, or it is too expensive here."""

from typing import TYPE_CHECKING

from perdure.engine.context import EngineContext
from perdure.engine.decision_threads import TakesTooLong, threads
from perdure.engine.resources.lookup_answers import fetch_values
from perdure.engine.slot import Slot, SlotPhase
from perdure.kernel.codec import decode_turns, fold
from perdure.kernel.execution import Execution
from perdure.kernel.inputs import Fork
from perdure.kernel.turn import MissingValues, Turn
from perdure.kernel.turn_budget import TurnTooExpensive

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler


class PostponedTurns:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._store = context.store
        self._tasks = context.tasks
        self._scheduler = scheduler
        self._listening: list[Slot] = []

    def listen(self, slot: Slot) -> None:
        """A timer is due. What was acknowledged before it comes first, and may still lie in the store."""
        slot.phase = SlotPhase.FETCHING
        self._listening.append(slot)
        if len(self._listening) == 1:
            self._tasks.spawn(self._listen())

    async def _listen(self) -> None:
        listening, self._listening = self._listening, []  # who comes later needs a later look
        await self._scheduler.inbox.read()
        for slot in listening:
            if slot.phase is SlotPhase.FETCHING:
                self._scheduler.make_ready(slot)

    def fetch(self, slot: Slot, turn: Turn, needs: MissingValues) -> None:
        slot.phase = SlotPhase.FETCHING
        self._tasks.spawn(self._fetch(slot, turn, needs))

    async def _fetch(self, slot: Slot, turn: Turn, needs: MissingValues) -> None:
        """What a decision asks for: answers, and large values."""
        if needs.lookups:
            turn.answers.update(await self._scheduler.answers(needs.lookups))
        texts = await fetch_values(self._store, slot, needs.digests)
        if slot.is_gone:
            return
        missing = [name for name in needs.digests if name not in texts]
        if missing and not needs.may_be_absent:
            names = ", ".join(name.hex()[:12] for name in missing)
            self._scheduler.stuck.set_stuck(slot, LookupError(f"large values {names} are not in the store"))
            return
        turn.absent.update(missing)
        turn.texts.update(texts)
        self._scheduler.make_ready(slot)

    # Too expensive for the event loop.

    def decide_in_thread(self, slot: Slot) -> None:
        slot.phase = SlotPhase.FETCHING
        self._tasks.spawn(self._decide_in_thread(slot))

    async def _decide_in_thread(self, slot: Slot) -> None:
        scheduler = self._scheduler
        try:
            turns = await threads.decide(slot, scheduler.make_turns)
        except TurnTooExpensive:
            if not slot.is_gone:
                error = TakesTooLong("a decision lasts too long; what it computes is too much")
                scheduler.stuck.set_stuck(slot, error)
            return
        except Exception as error:
            if not slot.is_gone:
                scheduler.stuck.undecided(slot, error)
            return
        if not slot.is_gone and not scheduler.is_closed:
            scheduler.conclude(slot, turns)
            scheduler.commit.flush(alone=False)  # what was expensive may be large, and the disk slow

    def begin_anew(self, slot: Slot) -> None:
        """The turn was dropped half-way: what is recorded is folded, and it is decided in a thread."""
        slot.is_expensive = True
        slot.cheap = 0
        execution = slot.execution
        if slot.creation is None or execution is None:
            self._scheduler.runs.reload(slot)
            return
        slot.put_back()
        if not slot.lived:
            slot.install(Execution(slot.id, execution.dialect, execution.program))
            self._scheduler.make_ready(slot)
        else:  # a fork that is not stored yet
            slot.phase = SlotPhase.FETCHING
            self._tasks.spawn(self._fold_again(slot, execution))

    async def _fold_again(self, slot: Slot, dropped: Execution) -> None:
        from perdure.engine.runs.run_documents import begin_folding, moves_in, read_former

        turns = [turn for _, row in slot.lived for turn in decode_turns(dropped.dialect, row)]
        source = next(mail.input.source for mail in slot.mailbox if isinstance(mail.input, Fork))
        former = await read_former(self._store, source, moves_in(turns))
        fresh = begin_folding(slot.id, dropped.dialect, former, dropped.program)
        await threads.do(lambda: fold(fresh, slot.lived))
        if not slot.is_gone:
            slot.install(fresh)
            self._scheduler.make_ready(slot)
