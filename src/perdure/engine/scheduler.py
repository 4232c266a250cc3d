"""The scheduler owns the runs in memory: it takes inputs, lets runs decide, and carries out what was committed.

    offer ─▶ mailbox ─▶ ready ─▶ decide ─▶ one commit for all ─▶ committed ─▶ tasks, timers, messages, answers ─▶ idle
             (engine/slot.py)              (engine/group_commit.py)

Deciding ahead happens across runs, never inside one: a run with an unsynced transition takes no input. Everything else
of the engine is built here, top-down; each part is given what all share, and the scheduler itself.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial

from perdure.engine.background_tasks import BackgroundTasks
from perdure.engine.clock import Clock, Timers
from perdure.engine.commands import Commands
from perdure.engine.context import EngineContext
from perdure.engine.decision_threads import ON_THE_LOOP
from perdure.engine.group_commit import Batch, GroupCommit
from perdure.engine.ownership.handover import Handover
from perdure.engine.ownership.partitions import Partitions
from perdure.engine.ownership.recovery import Recovery
from perdure.engine.resources.lookup_answers import answer
from perdure.engine.runs.inbox import Inbox
from perdure.engine.runs.postponed_turns import PostponedTurns
from perdure.engine.runs.resident_runs import ResidentRuns
from perdure.engine.runs.run_removal import RunRemoval
from perdure.engine.runs.run_waiters import RunWaiters
from perdure.engine.runs.stuck_runs import IncompatibleRuns, StuckRuns
from perdure.engine.settings import Settings
from perdure.engine.slot import COMMITTING, GONE, IDLE, READY, Mail, Slot, SlotPhase, answer_into
from perdure.engine.tasks.dispatch import Dispatcher
from perdure.engine.tasks.executor import BatchExecutor, Executor
from perdure.engine.tasks.task_recorder import TaskRecorder
from perdure.engine.transition_builder import transition
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import Fetch
from perdure.kernel.errors import EngineStopped, PerdureError
from perdure.kernel.execution import decide
from perdure.kernel.json_values.large_values import extract_large_values
from perdure.kernel.json_values.values import Instant, Payload, RunId
from perdure.kernel.turn import MissingValues, Turn
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive, current
from perdure.stores.access import Act
from perdure.stores.commit_types import Committed, TaskAnswer, Transition
from perdure.stores.protocol import Store

_log = logging.getLogger("perdure.engine")

DECIDED_AT_ONCE = 256
LONGEST_AT_ONCE = 0.01  # seconds before the event loop gets its turn; no decision depends on it

Made = tuple[Turn, MissingValues] | Transition | None
"""What a slot has decided: it needs values first, something has to be written, or nothing."""

Watcher = Callable[[RunId, list[tuple[Instant, list[e.Event]]]], None]


class Scheduler:
    def __init__(
        self, store: Store, dialects: Mapping[str, Dialect], executor: Executor, clock: Clock, settings: Settings
    ) -> None:
        self.stopped: PerdureError | None = None
        self.tasks = BackgroundTasks(self.fail)
        context = self.context = EngineContext(store, dialects, executor, clock, settings, self.tasks, [], {}, {})
        self.slots = context.slots
        self.answers: Fetch = partial(answer, store)
        self.waiters = RunWaiters()
        self.incompatible = IncompatibleRuns(context, self)
        self.inbox = Inbox(context, self)
        self.removal = RunRemoval(context, self)
        self.timers = Timers(clock, self._timers_fired, context.slots.__contains__)
        self.commit = GroupCommit(context, self)
        recorder = self.recorder = TaskRecorder(context, self)
        self.dispatcher = Dispatcher(executor, clock, settings.tasks_in_flight, recorder, lambda: not store.is_late)
        self.handover = Handover(context, self)
        self.partitions = Partitions(context, self)
        self.recovery = Recovery(context, self)
        self.commands = Commands(context, self)
        self.stuck = StuckRuns(context, self)
        self.runs = ResidentRuns(context, self)
        self.postponed = PostponedTurns(context, self)
        self._store, self._clock, self._settings = store, clock, settings
        self._budget = TurnBudget(ON_THE_LOOP, counts_compiling=True)  # of the slot that is being decided there
        self._on_the_loop = copy_context()
        self._on_the_loop.run(current.set, self._budget)
        self._ahead: Instant = 0  # of the wall, compared with the store's clock, when this round began
        self._ready: deque[Slot] = deque()
        self._unflushed = 0  # slots decided since the last flush
        self._watchers: list[Watcher] = []
        self._is_due = self.is_closed = False
        if isinstance(executor, BatchExecutor):
            executor.report_through(self.take_together)

    # Stopping.

    def fail(self, error: BaseException) -> None:
        """A fault of ours or of the store's: nothing in memory can be trusted any more."""
        if isinstance(error, PerdureError):
            self.stop(error)
        else:
            _log.error("the engine failed", exc_info=error)
            self.stop(EngineStopped(f"the engine failed: {error!r}"))

    def guard(self, action: Callable[[], None]) -> None:
        """Callbacks of the event loop have no caller: an error in one stops the engine instead of vanishing."""
        try:
            action()
        except Exception as error:
            self.fail(error)

    def stop(self, reason: PerdureError) -> None:
        if self.stopped is not None:
            return
        self.stopped = reason
        self.recorder.close()
        self.timers.close()
        self.commit.close()
        self.runs.loader.close()
        self.decide_no_more()
        self.waiters.fail(reason)
        refused = i.Refused(str(reason))
        for slot in self.slots.values():
            for mail in (*slot.mailbox, *slot.taken):
                mail.answer(refused)

    def decide_no_more(self) -> None:
        self.is_closed = True
        self._ready.clear()

    def must_run(self) -> None:
        if self.stopped is not None:
            raise self.stopped

    @property
    def is_idle(self) -> bool:
        """Whether nothing moves before something arrives from outside: a result, a signal, a due time."""
        decided = not self._ready and not self._is_due
        return decided and self.commit.is_idle and self.runs.loader.is_idle and not self.tasks

    # Inputs.

    def offer(self, run: RunId, mail: Mail) -> None:
        slot = self.slots.get(run)
        if slot is None:
            self.runs.load(run, mail)
            return
        slot.mailbox.append(mail)
        if slot.phase is IDLE:
            self.make_ready(slot)

    def offer_now(self, run: RunId, input: i.Input) -> None:
        self.offer(run, Mail(self._clock.now(), 0, input))

    async def ask(
        self, run: RunId, input: i.Input, answer: TaskAnswer | None = None, act: Act | None = None
    ) -> i.InputAnswer:
        """Offer an input and wait until what follows from it is durable."""
        self.must_run()
        future: asyncio.Future[i.InputAnswer] = asyncio.get_running_loop().create_future()
        input, values = extract_large_values(input, "value", "body", "result", "outcome")
        self.offer(run, Mail(self._clock.now(), 0, input, None, 0, answer_into(future), values, (), answer, act))
        if isinstance(decided := await future, i.Refused):
            self.must_run()  # refused because the engine stopped: that is no answer of the run's
        return decided

    async def text(self, run: RunId, payload: Payload) -> bytes:
        return (
            payload if isinstance(payload, bytes) else (await self._store.values(run, [payload.digest]))[payload.digest]
        )

    # Deciding: runs take up their mail in turns. What they need is fetched meanwhile.

    def make_ready(self, slot: Slot) -> None:
        slot.phase = READY
        self._ready.append(slot)
        if not self._is_due:
            self._decide_soon()

    def take_together(self, offer: Callable[[], None]) -> None:
        """What follows from all that is offered is decided when it is: the event loop needs no round for it."""
        is_planned, self._is_due = self._is_due, True
        try:
            offer()
        finally:
            if not is_planned:
                self.guard(self._decide_ready)

    def _decide_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.guard, self._decide_ready)

    def _decide_ready(self) -> None:
        self._is_due, ready = False, self._ready
        if self.is_closed:
            ready.clear()
        if self._store.is_late:
            self.partitions.late()
        end = time.perf_counter() + LONGEST_AT_ONCE
        now = self._clock.now()  # of all turns of this round: what they decide has arrived by then
        self._ahead = self._clock.wall() - now
        while ready and self._unflushed < DECIDED_AT_ONCE:
            slot = ready.popleft()
            self._unflushed += 1
            if slot.phase is READY:
                self._decide(slot, now)
            if ready and time.perf_counter() > end:
                self._decide_soon()  # the event loop gets its turn; what was decided is committed with what comes next
                return
        self._unflushed = 0
        if ready:
            self._decide_soon()
        self.commit.flush(alone=not ready)

    def _decide(self, slot: Slot, now: Instant) -> None:
        execution = slot.execution
        assert execution is not None
        if slot.unfinished is None:
            slot.ahead = self._ahead
            if slot.calendar:
                slot.look_at_wall(now, self._clock.wall())
            if not slot.take(now, self._known_until):
                self.postponed.listen(slot)
                return
            if execution.state.status.is_final and slot.is_disowned and not slot.puts_control_first():
                self._erase(slot)
                return
        if slot.is_expensive:
            self.postponed.decide_in_thread(slot)
            return
        try:
            self._budget.left = ON_THE_LOOP
            turns = self._on_the_loop.run(self.make_turns, slot, now)
        except TurnTooExpensive:
            self.postponed.begin_anew(slot)
        except Exception as error:
            self.stuck.undecided(slot, error)
        else:
            self.conclude(slot, turns)

    def make_turns(self, slot: Slot, now: Instant | None = None) -> Made:
        """Decide what was taken up. Touches nothing but the slot, so it may be done in a thread.

        `now` stamps all turns, where they take no time; otherwise each of them reads the clock.
        """
        execution, held, taken, settings = slot.execution, slot.held, slot.taken, self._settings
        assert execution is not None
        version, limits = self._store.min_record_version, settings.limits
        for at in range(slot.decided, len(taken)):
            turn = slot.unfinished
            if turn is None:
                mail = taken[at]
                decided_at = self._clock.now() if now is None else now
                has_position = mail.position is not None
                turn = Turn(
                    execution, mail.input, mail.at, decided_at, version, slot.ahead, has_position, settings.routes,
                    slot.rivals,
                )  # fmt: skip
                if mail.values:
                    turn.texts.update(mail.values)
            needs = decide(turn, limits, at in held, at - 1 in held) if held else decide(turn, limits)
            if needs is not None:
                slot.unfinished = turn
                return turn, needs
            slot.finish(turn)
        return transition(slot, settings.snapshot_bytes, settings.recall_grace)

    def conclude(self, slot: Slot, turns: Made) -> None:
        if type(turns) is Transition:  # nearly always
            if turns.programs:
                self.runs.loader.mark_editions(turns)
            slot.phase = COMMITTING
            self.commit.add(slot, turns)
        elif isinstance(turns, tuple):
            self.postponed.fetch(slot, *turns)
        else:
            self._settle(slot, None, self._clock.now())

    def _erase(self, slot: Slot) -> None:
        """It has ended, and nobody has a use for it any more."""
        self.runs.remove(slot)
        slot.phase = GONE
        self.removal.remove(slot.id, slot.taken)

    def _known_until(self, slot: Slot) -> Instant:
        """Messages to a run that is being handed over are for its next owner."""
        return self._clock.now() if slot.is_leaving else self.inbox.known_until(slot.partition)

    # After the commit: only now does anybody hear of what was decided.

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Hear of every commit; call the answer to stop."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def committed(self, batch: Batch, committed: Committed) -> None:
        now = self._clock.now()
        for slot, change in batch:
            if slot.phase is GONE:
                continue
            if committed.refused and slot.id in committed.refused:
                self.runs.refused(slot)
            elif committed.rivals and slot.id in committed.rivals:
                slot.rivals.update(committed.rivals[slot.id])
                self.runs.reload(slot)
            elif slot.phase is SlotPhase.STUCK:
                self.runs.remove(slot)
                for mail in slot.mailbox:  # came while it was being written down that the run is stuck
                    self.offer(slot.id, mail)
            else:
                self._settle(slot, change, now)
        for delivered in committed.delivered:
            self.inbox.take(delivered)
        self.dispatcher.fill()

    def fenced(self, batch: Batch, partitions: Sequence[int]) -> None:
        """Nothing was written, and some of it is not ours any more; the rest is tried again."""
        if all(slot.is_gone for slot, _ in batch):
            return
        self.partitions.lost(partitions)
        self.start_over(batch)

    def start_over(self, batch: Batch) -> None:
        """Nobody knows what was written: the runs are folded from what is on disk, their inputs offered again."""
        for slot, _ in batch:
            if not slot.is_gone:
                self.runs.reload(slot)

    def _settle(self, slot: Slot, change: Transition | None, now: Instant) -> None:
        """It is on disk, or nothing had to be written."""
        turns, mails = slot.turns, slot.taken
        slot.turns, slot.taken = [], []
        if slot.unsynced:
            slot.unsynced = {}
        slot.phase = COMMITTING  # what commands bring back at once only waits in the mailbox
        if change is not None:
            slot.creation = None
            slot.failures = 0
            if slot.rivals:
                slot.rivals = {}
            if change.summary is not None:
                slot.summary = change.summary
            if change.consumes:
                self.inbox.forget(mails)
        for turn in turns:
            self.commands.carry_out(slot, turn.events)
        for at, mail in enumerate(mails):
            if mail.reply is not None:
                mail.reply(turns[at].answer)
        if self._watchers and change is not None:
            recorded = [(turn.now, turn.events) for turn in turns if turn.events]
            for watcher in list(self._watchers):
                watcher(slot.id, recorded)
        self.idle(slot, now)

    def idle(self, slot: Slot, now: Instant | None = None) -> None:
        """Nothing more to do for now: go on with the mail, wait for a timer, or leave memory."""
        assert slot.execution is not None
        state = slot.execution.state
        slot.phase = IDLE
        if slot.has_unassigned_tasks and not slot.is_leaving:
            slot.has_unassigned_tasks = False
            slot.phase = COMMITTING  # what this brings only waits in the mailbox
            self.commands.assign_tasks(slot, slot.execution)
            slot.phase = IDLE
        if slot.calendar:
            slot.look_at_wall(self._clock.now(), self._clock.wall())
        due = slot.next_due() if slot.timers or slot.waits or slot.calendar else None
        if slot.is_leaving:
            if slot.comes_again:
                self.handover.look_at(slot)
            else:
                self.make_ready(slot)
        elif slot.mailbox or (due is not None and due <= (self._clock.now() if now is None else now)):
            self.make_ready(slot)
        elif not (state.local_tasks or state.sliced):  # a run that only waits costs disk, not memory
            self.runs.park(slot)
            self.timers.parked(due)
        elif due is not None and (slot.alarm is None or due < slot.alarm):
            slot.alarm = due
            self.timers.resident(due, slot.id)

    def _timers_fired(self, runs: list[RunId], look_for_parked: bool) -> None:
        for run in runs:
            slot = self.slots.get(run)
            if slot is not None:
                slot.alarm = None
                if slot.phase is IDLE:
                    self.idle(slot)
        if look_for_parked:
            self.tasks.spawn(self.partitions.wake_parked())
