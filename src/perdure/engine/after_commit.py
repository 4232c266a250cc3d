"""After the commit: only now does the world hear of what was decided. Then the run goes on, waits, or leaves memory."""

from collections.abc import Callable

from perdure.engine.clock import Clock
from perdure.engine.commands import Commands
from perdure.engine.decisions import Decider
from perdure.engine.dispatch import Dispatcher
from perdure.engine.group_commit import Batch
from perdure.engine.handover import Handover
from perdure.engine.inbox import Inbox
from perdure.engine.resident_runs import ResidentRuns
from perdure.engine.slot import COMMITTING, GONE, IDLE, STUCK, Slot
from perdure.engine.timers import Timers
from perdure.kernel import events as e
from perdure.kernel.values import Instant, RunId
from perdure.stores.protocol import Committed, Transition

Watcher = Callable[[RunId, list[tuple[Instant, list[e.Event]]]], None]


class AfterCommit:
    def __init__(
        self,
        clock: Clock,
        residents: ResidentRuns,
        decider: Decider,
        commands: Commands,
        dispatcher: Dispatcher,
        inbox: Inbox,
        alarms: Timers,
        handover: Handover,
    ) -> None:
        self._clock = clock
        self._residents = residents
        self._decider = decider
        self._commands = commands
        self._dispatcher = dispatcher
        self._inbox = inbox
        self._alarms = alarms
        self._handover = handover
        self._watchers: list[Watcher] = []

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def committed(self, batch: Batch, answer: Committed) -> None:
        for slot, change in batch:
            if slot.phase is GONE:
                continue
            if answer.refused and slot.id in answer.refused:
                self._residents.refused(slot)
            elif answer.rivals and slot.id in answer.rivals:
                slot.rivals.update(answer.rivals[slot.id])
                self._residents.reload(slot)
            elif slot.phase is STUCK:
                self._residents.remove(slot)
                for mail in slot.mailbox:  # came while the trouble was being written down
                    self._residents.offer(slot.id, mail)
            else:
                self.settle(slot, change)
        for delivered in answer.delivered:
            self._inbox.take(delivered)
        self._dispatcher.fill()

    def settle(self, slot: Slot, change: Transition | None) -> None:
        """It is on disk, or nothing had to be written."""
        turns, taken = slot.turns, slot.taken
        slot.turns, slot.taken, slot.unsynced = [], [], {}
        slot.phase = COMMITTING  # what commands bring back at once only waits in the mailbox
        if change is not None:
            slot.creation = None
            slot.failures = 0
            if slot.rivals:
                slot.rivals = {}
            if change.summary is not None:
                slot.summary = change.summary
            if change.consumes:
                self._inbox.forget(taken)
        for turn in turns:
            self._commands.carry_out(slot, turn.events)
        for mail, turn in zip(taken, turns, strict=True):
            if mail.reply is not None:
                mail.reply(turn.answer)
        if self._watchers and change is not None:
            told = [(turn.now, turn.events) for turn in turns if turn.events]
            for watcher in list(self._watchers):
                watcher(slot.id, told)
        self.rest(slot)

    def rest(self, slot: Slot) -> None:
        """Nothing more to do for now: go on with the mail, wait for a timer, or leave memory."""
        assert slot.execution is not None
        slot.phase = IDLE
        if slot.seeks_hands and not slot.is_leaving:
            slot.seeks_hands = False
            slot.phase = COMMITTING  # what this brings only waits in the mailbox
            self._commands.assign_tasks(slot, slot.execution)
            slot.phase = IDLE
        if slot.calendar:
            slot.look_at_wall(self._clock.now(), self._clock.wall())
        due = slot.next_due()
        if slot.is_leaving:
            if slot.comes_again:
                self._handover.look_at(slot)
            else:
                self._decider.make_ready(slot)
        elif slot.mailbox or (due is not None and due <= self._clock.now()):
            self._decider.make_ready(slot)
        elif not slot.execution.state.has_local_work:  # a run that only waits costs disk, not memory
            del self._residents.slots[slot.id]
            self._alarms.parked(due)
        elif due is not None and (slot.alarm is None or due < slot.alarm):
            slot.alarm = due
            self._alarms.resident(due, slot.id)
