"""The engine's heart: takes inputs, lets runs decide, commits in groups, and only then tells the world.

    offer ─▶ mailbox ─▶ ready ─▶ decide ─▶ one commit ─▶ settle ─▶ tasks, timers, letters, answers

Deciding ahead happens across runs, never inside one: a run with an unsynced transition takes no input.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from perdure.engine.alarms import Alarms
from perdure.engine.answering import answer
from perdure.engine.chores import Chores
from perdure.engine.clock import Clock
from perdure.engine.commands import Commands
from perdure.engine.committing import Batch, Committer
from perdure.engine.dispatch import Dispatcher, Hands
from perdure.engine.handover import Handover
from perdure.engine.inbox import Inbox
from perdure.engine.judging import Fetch
from perdure.engine.large import lighten, lighten_outcome
from perdure.engine.loading import Loader
from perdure.engine.newer import Newer
from perdure.engine.outgoing import assignment, transition
from perdure.engine.port import TaskPort
from perdure.engine.removal import Removal
from perdure.engine.settings import Settings
from perdure.engine.sharing import Sharing
from perdure.engine.slot import ELSEWHERE, Mail, Phase, Slot
from perdure.engine.views import dialect_of
from perdure.engine.waiting import Ended, Waiters
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import EngineStopped, NewerRecord, PerdureError
from perdure.kernel.execution import Execution, decide
from perdure.kernel.outcomes import Code, Failed, Outcome, Status
from perdure.kernel.turn import Needs, Turn
from perdure.kernel.values import Instant, Payload, RunId
from perdure.kernel.work import Assignment, Port
from perdure.stores.protocol import Committed, Letter, NewRun, Store, Stored, Summary, Transition

_log = logging.getLogger("perdure.engine")

WOKEN_AT_ONCE = 2_000
DECIDED_AT_ONCE = 256
LAST_WORDS = 2.0  # seconds to write down what was not begun, when a server leaves

Watcher = Callable[[RunId, list[tuple[Instant, list[e.Event]]]], None]


class Runtime:
    def __init__(
        self, store: Store, dialects: Mapping[str, Dialect], hands: Hands, clock: Clock, settings: Settings
    ) -> None:
        self.store = store
        self.clock = clock
        self.partitions: list[int] = []  # whose runs we drive; those that are being handed over are not among them
        self.stopped: PerdureError | None = None
        self._dialects = dialects
        self._settings = settings
        self._slots: dict[RunId, Slot] = {}
        self.answers: Fetch = lambda asked: answer(store, asked)
        self._ready: deque[Slot] = deque()
        self._stuck: dict[RunId, int] = {}  # with their partitions
        self._waiters = Waiters()
        self._watchers: list[Watcher] = []
        self._chores = Chores(self._failed)
        self._loader = Loader(store, dialects, self._chores, self._loaded)
        self._newer = Newer(store, self._slots, self._stuck, self._read_soon, lambda line: self.sharing.tell(line))
        self._inbox = Inbox(store, self.partitions, self._stuck, self.offer, self._newer.note)
        self._removal = Removal(store, self._inbox, self._chores, clock)
        self._alarms = Alarms(clock, self._alarm_rang, self._slots.__contains__)
        self._committer = Committer(
            store,
            self._chores,
            batch=settings.batch,
            tries=settings.commit_tries,
            committed=self._committed,
            forgotten=self._start_over,
            fenced=self._fenced,
        )
        self._dispatcher = Dispatcher(
            hands,
            clock,
            settings.tasks_in_flight,
            self._port_for,
            self._task_done,
            self._restored,
            lambda: not store.is_late,
        )
        self._handover = Handover(
            store, self.partitions, self._slots, self._dispatcher, self._offer_now, self._forget, self._stay
        )
        self.sharing = Sharing(
            store, settings, self.partitions, self._handover, self._chores, self._take_up, self._forget
        )
        self._commands = Commands(
            self._dispatcher, self._waiters, self._chores, clock, self.text, self._handover.look_at
        )
        self._pump_is_due = False
        self._is_closing = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # Opening and closing.

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.sharing.join()
        self._every("inbox", self._settings.poll, self._look_for_letters)
        self._every("ownership", self._settings.poll, self.sharing.look)
        self._every("servers", self._settings.share_every, self.sharing.look_around)
        self._every("newer", self._settings.share_every, self._look_for_newer)
        self._every("leases", self._settings.lease_sweep, lambda: self._chores.spawn(self.expire_leases()))

    async def adopt(self, families: Sequence[RunId] | None = None) -> None:
        """Take up what has no live owner: all of it, or these runs with their children."""
        if families is None:
            for partition in await self.store.orphaned():
                if await self.store.adopt(partition):
                    self.partitions.append(partition)
        elif families and (home := await self.birthplace(families[0])):
            await self.store.move(families, home)
        await self._take_up(self.partitions)

    async def _take_up(self, partitions: Sequence[int]) -> None:
        """Drive the runs of these partitions from what is recorded of them."""
        now = self.clock.now()
        for run in await self.store.with_work(partitions):
            self.offer(run, Mail(now, 0, i.Wake()))
        await self._wake_parked()
        await self.read_inbox()

    async def leave(self, grace: float | None = None) -> bool:
        """Hand everything over to those who stay: what is in flight gets a grace to end and be recorded.

        False: some did not end in time, and will be delivered again.
        """
        grace = self._settings.grace if grace is None else grace
        self.sharing.is_leaving = True
        is_drained = self.stopped is None and await self._handover.leave(grace)
        await self._come_to_rest()
        self._handover.lay_down()
        await self._come_to_rest()
        return is_drained

    async def _come_to_rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                while not self.is_quiet:
                    await asyncio.sleep(0.002)

    async def close(self) -> None:
        """Stop as on Ctrl-C: what is decided is committed, the rest is left for the next owner."""
        self.store.hurry()
        if self._slots:
            await self.leave(0.0)  # so that tasks which were not begun cost no delivery
        await self._dispatcher.close()
        self._is_closing = True
        if self.stopped is None:
            await self._chores.done()
        self._stop(EngineStopped("the engine was closed"))
        await self._chores.done()
        await self.store.close()

    async def die(self) -> None:
        """End as a killed process does: nothing more is written, nobody is told, the locks are free."""
        self._stop(EngineStopped("the engine died"))
        await self._chores.cancel()
        self.store.abandon()
        await self._dispatcher.close()

    def _every(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        def again() -> None:
            if self.stopped is None:
                self._timers[name] = self._loop.call_later(seconds, again)
                self._guarded(action)

        again()

    def _guarded(self, action: Callable[[], None]) -> None:
        """Callbacks of the event loop have no caller: an error in one stops the engine instead of vanishing."""
        try:
            action()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        """A fault of ours or of the store's: nothing in memory can be trusted any more."""
        if isinstance(error, PerdureError):
            self._stop(error)
        else:
            _log.error("the engine failed", exc_info=error)
            self._stop(EngineStopped(f"the engine failed: {error!r}"))

    def _stop(self, reason: PerdureError) -> None:
        if self.stopped is not None:
            return
        self.stopped = reason
        self._alarms.close()
        self._committer.close()
        self._loader.close()
        self._ready.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._waiters.fail(reason)
        answer = i.Refused(str(reason))
        for slot in self._slots.values():
            for mail in (*slot.mailbox, *slot.taken):
                mail.answer(answer)

    def _must_run(self) -> None:
        if self.stopped is not None:
            raise self.stopped

    @property
    def home(self) -> int:
        """The partition of an engine that does not serve; its runs are born there."""
        return self.sharing.home

    async def birthplace(self, run: RunId) -> int:
        """Where a new run is born. A server that has just come, or was late, waits until it owns something."""
        while (place := self.sharing.birthplace(run)) is None:
            self._must_run()
            await asyncio.sleep(self._settings.poll)
        return place

    @property
    def is_quiet(self) -> bool:
        """Whether nothing moves here before something arrives from outside: a result, a signal, a due time."""
        if self.stopped is not None:
            return True
        idle = self._committer.is_idle and self._loader.is_idle and not self._chores
        return idle and not self._ready and not self._pump_is_due

    @property
    def tasks_in_flight(self) -> int:
        return self._dispatcher.in_flight

    # Inputs.

    def create(
        self, run: RunId, start: i.Start, document: bytes, program: Any, reply: Callable[[i.Answer], None]
    ) -> None:
        """Begin a run that is new as far as we know; the commit finds out."""
        self._must_run()
        place = self.sharing.birthplace(run)
        start, values = lighten(start, "input")
        mail = Mail(self.clock.now(), 0, start, reply=reply, values=values)
        if run in self._slots:  # the same start twice: the second finds the first
            self.offer(run, mail)
        elif place is None:
            reply(ELSEWHERE)
        else:
            slot = self._slots[run] = Slot(run, place)
            slot.programs = ((start.program, start.language, document),)
            self._prepare_creation(slot, start, program)
            slot.mailbox.append(mail)
            self._make_ready(slot)

    def _prepare_creation(self, slot: Slot, start: i.Start, program: Any) -> None:
        parent = start.parent[0] if start.parent is not None else None
        now = self.clock.now()
        slot.creation = NewRun(start.language, start.name, start.program, parent, start.labels, start.key, now)
        slot.install(Execution(slot.id, self._dialects[start.language], program))

    async def create_forked(
        self, execution: Execution, new: NewRun, lived: Sequence[tuple[int, bytes]], fork: i.Fork
    ) -> i.Answer:
        """Begin a run that has another's past."""
        self._must_run()
        place = await self.birthplace(execution.id)
        slot = self._slots[execution.id] = Slot(execution.id, place)
        slot.creation = new
        slot.lived = lived
        slot.install(execution)
        answer: asyncio.Future[i.Answer] = self._loop.create_future()
        everything = ((fork.source, None),)
        slot.mailbox.append(Mail(self.clock.now(), 0, fork, reply=_into(answer), borrowed=everything))
        self._make_ready(slot)
        return await answer

    def offer(self, run: RunId, mail: Mail) -> None:
        slot = self._slots.get(run)
        if slot is None:
            if run in self._newer.moving:  # the store knows in a moment whose it is
                self._inbox.forget([mail])
                mail.answer(ELSEWHERE)
                return
            if run in self._stuck:  # tried again on demand, with everything that was kept for it
                del self._stuck[run]
                self._read_soon()
            slot = self._slots[run] = Slot(run, 0)
            slot.mailbox.append(mail)
            self._loader.want(slot)
            return
        slot.mailbox.append(mail)
        if slot.phase is Phase.IDLE:
            self._make_ready(slot)

    def _offer_now(self, run: RunId, given: i.Input) -> None:
        self.offer(run, Mail(self.clock.now(), 0, given))

    async def ask(self, run: RunId, given: i.Input) -> i.Answer:
        """Offer an input and wait until what follows from it is durable."""
        self._must_run()
        answer: asyncio.Future[i.Answer] = self._loop.create_future()
        given, values = lighten(given, "value", "body", "result")
        self.offer(run, Mail(self.clock.now(), 0, given, reply=_into(answer), values=values))
        decided = await answer
        if isinstance(decided, i.Refused):
            self._must_run()  # refused because the engine stopped: that is no answer of the run's
        return decided

    async def text(self, run: RunId, payload: Payload) -> bytes:
        if isinstance(payload, bytes):
            return payload
        return (await self.store.values(run, [payload.digest]))[payload.digest]

    # Loading.

    async def _loaded(self, slot: Slot, stored: Stored | None) -> None:
        if slot.is_gone:
            return
        try:
            if stored is None:
                await self._fill_new(slot)
            elif stored.row.partition in self.partitions or slot.is_leaving:
                await self._fill_known(slot, stored)
            else:
                self._drop(slot, ELSEWHERE)
        except NewerRecord as error:
            await self._leave_alone(slot, stored, error)
        except PerdureError:
            raise
        except Exception as error:
            if not slot.is_gone:
                slot.partition = _home(slot, stored)
                self._set_stuck(slot, error, is_born=stored is not None)

    async def _leave_alone(self, slot: Slot, stored: Stored | None, error: NewerRecord) -> None:
        """Nothing of the run is touched: a server that can read it goes on, now or when there is one."""
        if slot.is_gone:
            return
        slot.partition = _home(slot, stored)
        is_entrusted = await self._newer.entrust(slot.id, slot.partition)
        if slot.is_gone:
            return
        if is_entrusted:
            self._drop(slot, ELSEWHERE)
        elif stored is not None:
            self._set_stuck(slot, error)
        else:  # its start is a letter, and stays one
            _log.warning("run %s waits for a server with a newer Perdure: %s", slot.id, error)
            self._stuck[slot.id] = slot.partition
            self._drop(slot, i.Refused(str(error)))

    async def _fill_known(self, slot: Slot, stored: Stored) -> None:
        row = stored.row
        execution = await self._loader.fold(stored)
        if slot.is_gone:
            return
        if row.partition not in self.partitions and not slot.is_leaving:  # given up while it was being folded
            self._drop(slot, ELSEWHERE)
            return
        slot.partition = row.partition
        slot.creation = None
        slot.summary = Summary(row.status, row.has_work, row.due, row.ended_at)
        slot.tail_bytes = sum(len(body) for _, body in stored.rows)
        slot.snapshot_bytes = len(stored.snapshot[1]) if stored.snapshot else 0
        if row.stuck and not slot.failures:
            slot.failures = 1
        slot.install(execution)
        self._find_hands(slot, execution)
        if execution.state.sliced:
            slot.mailbox.append(Mail(self.clock.now(), 0, i.Proceed()))
        self._make_ready(slot)

    def _find_hands(self, slot: Slot, execution: Execution) -> None:
        """Open tasks that nobody here has: an earlier process had them, or laid them down before they began."""
        if slot.is_leaving:
            return
        laid_down: list[int] = []
        in_hand = slot.fetching | slot.laying_down
        for number, task in execution.state.tasks.items():
            if task.pool or number in in_hand or self._dispatcher.holds(slot.id, number, task.delivery):
                continue
            orphan = assignment(execution, number, b"", b"")
            if task.cancelling:
                self._task_lost(orphan)
            elif not task.laid_down:
                self._dispatcher.restore(orphan)
            elif not self._dispatcher.puts_aside(orphan):
                laid_down.append(number)
        if laid_down:
            slot.mailbox.append(Mail(self.clock.now(), 0, i.TakeUp(laid_down)))

    async def _fill_new(self, slot: Slot) -> None:
        """Not in the store: a child about to start, or a letter to a run that is gone."""
        mail, start = next(((one, one.given) for one in slot.mailbox if isinstance(one.given, i.Start)), (None, None))
        if mail is None or start is None:
            mails = slot.mailbox
            self._drop(slot, i.Refused("there is no such run"))
            await self._inbox.discard(mails)
            return
        dialect = dialect_of(self._dialects, start.language)
        brought = next((text for name, _, text in slot.programs if name == start.program), None)
        program = await self._loader.program(start.program, dialect) if brought is None else dialect.load(brought)
        if slot.is_gone:
            return
        slot.partition = slot.partition or mail.partition
        if slot.partition not in self.partitions and not slot.is_leaving:
            self._drop(slot, ELSEWHERE)
            return
        self._prepare_creation(slot, start, program)
        self._make_ready(slot)

    def _drop(self, slot: Slot, answer: i.Refused) -> None:
        """Not a run of ours: whoever wrote to it is told, nothing is written."""
        self._remove(slot)
        slot.phase = Phase.GONE
        mails = [*slot.taken, *slot.mailbox]
        self._inbox.forget(mails)
        for mail in mails:
            mail.answer(answer)

    def _remove(self, slot: Slot) -> None:
        del self._slots[slot.id]
        if slot.is_leaving:
            self._handover.gone(slot)

    # Partitions that come and go.

    def _forget(self, partitions: Collection[int]) -> None:
        """Not ours any more: nothing of them stays in memory, nothing more is written, tasks in hand are stopped."""
        if not partitions:
            return
        for slot in list(self._slots.values()):
            if slot.partition in partitions:
                self._drop(slot, ELSEWHERE)
                self._dispatcher.forget(slot.id)
            elif not slot.partition:  # what was read of it may be of another time
                if self.partitions:
                    self._load_anew(slot)
                else:
                    self._drop(slot, ELSEWHERE)
        for run in [run for run, home in self._stuck.items() if home in partitions]:
            del self._stuck[run]
        self._newer.leave(partitions)
        self._inbox.leave(partitions)
        self._waiters.look_again()

    def _load_anew(self, slot: Slot) -> None:
        slot.phase = Phase.GONE
        again = self._slots[slot.id] = Slot(slot.id, 0)
        again.mailbox = slot.mailbox
        again.programs = slot.programs
        self._loader.want(again)

    def _stay(self, partitions: list[int]) -> None:
        """They were about to be handed over, and stay after all: what was held back is begun."""
        for slot in list(self._slots.values()):
            if slot.partition in partitions and slot.is_leaving:
                slot.is_leaving = False
                unbegun, slot.unbegun = slot.unbegun, []
                if slot.execution is None:
                    continue  # its tasks find hands when it is loaded
                for number in unbegun:
                    self._commands.hand_out(slot, slot.execution, number)
                slot.seeks_hands = True
                if slot.phase is Phase.IDLE:
                    self._rest(slot)
        self._dispatcher.fill()
        self._chores.spawn(self._take_up(partitions))

    def _fenced(self, batch: Batch, partitions: Sequence[int]) -> None:
        """Nothing was written, and some of it is not ours any more; the rest is tried again."""
        if all(slot.is_gone for slot, _ in batch):
            return
        self.sharing.lost(partitions)
        self._start_over(batch)

    # Deciding.

    def _make_ready(self, slot: Slot) -> None:
        slot.phase = Phase.READY
        self._ready.append(slot)
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._guarded, self._pump)

    def _pump(self) -> None:
        self._pump_is_due = False
        ready = self._ready
        if self._is_closing:
            ready.clear()
        if self.store.is_late:
            self.sharing.late()
        for _ in range(min(len(ready), DECIDED_AT_ONCE)):
            slot = ready.popleft()
            if slot.phase is Phase.READY:
                self._decide(slot)
        if ready:
            self._pump_soon()
        self._committer.flush(alone=not ready)

    def _decide(self, slot: Slot) -> None:
        execution = slot.execution
        assert execution is not None
        if slot.unfinished is None:
            slot.take(self.clock.now())
            if execution.state.status.is_final and any(isinstance(mail.given, i.Disown) for mail in slot.taken):
                self._remove(slot)
                slot.phase = Phase.GONE
                self._removal.remove(slot.id, slot.taken)
                return
        try:
            while slot.decided < len(slot.taken):
                mail = slot.taken[slot.decided]
                turn = slot.unfinished
                if turn is None:
                    turn = Turn(execution, mail.given, mail.at, self.clock.now())
                    turn.texts.update(mail.values)
                needs = decide(turn, self._settings.limits)
                if needs is not None:
                    slot.unfinished = turn
                    slot.phase = Phase.FETCHING
                    self._chores.spawn(self._fetch(slot, turn, needs))
                    return
                slot.finish(turn)
            change = transition(slot, self._settings.snapshot_bytes)
            if change is not None and change.programs:
                change.programs = self._loader.with_editions(change.programs)
        except Exception as error:
            self._decide_failed(slot, error)
            return
        if change is None:
            self._settle(slot, None)
        else:
            slot.phase = Phase.COMMITTING
            self._committer.add(slot, change)

    async def _fetch(self, slot: Slot, turn: Turn, needs: Needs) -> None:
        if needs.asked:
            turn.answers.update(await self.answers(needs.asked))
        wanted = needs.wanted
        found = {name: slot.unsynced[name] for name in wanted if name in slot.unsynced}
        found.update(await self.store.values(slot.id, [name for name in wanted if name not in found]))
        for mail in slot.taken:
            for source, name in mail.borrowed:
                if name in wanted and name not in found:
                    found.update(await self.store.values(source, [name]))
        if slot.is_gone:
            return
        missing = [name for name in wanted if name not in found]
        if missing and not needs.may_be_absent:
            names = ", ".join(name.hex()[:12] for name in missing)
            self._set_stuck(slot, LookupError(f"large values {names} are not in the store"))
            return
        turn.absent.update(missing)
        turn.texts.update(found)
        self._make_ready(slot)

    def _decide_failed(self, slot: Slot, error: Exception) -> None:
        """State was changed half-way, so it is folded anew; a second failure is the run's own."""
        slot.failures += 1
        if slot.failures >= 2 or slot.creation is not None:
            self._set_stuck(slot, error)
        else:
            _log.warning("run %s could not be decided; trying once more", slot.id, exc_info=error)
            self._reload(slot)

    def _reload(self, slot: Slot) -> None:
        slot.put_back()
        slot.execution = None
        slot.phase = Phase.LOADING
        self._loader.want(slot)

    def _set_stuck(self, slot: Slot, error: Exception, *, is_born: bool = True) -> None:
        """The run harms no other: its error is shown, its inputs are kept, and it is tried again on demand."""
        if isinstance(error, NewerRecord):
            text = f"it waits for a server with a newer Perdure: {error}"
            _log.warning("run %s is left alone: %s", slot.id, text)
        else:
            text = f"{type(error).__name__}: {error}"
            _log.error("run %s is stuck: %r", slot.id, error, exc_info=error)
        slot.put_back()
        kept, slot.mailbox = slot.mailbox, []
        if slot.creation is not None or not is_born:  # it was never stored: the start itself is refused
            self._remove(slot)
            slot.phase = Phase.GONE
            self._chores.spawn(self._cannot_begin(kept, text))
            return
        slot.phase = Phase.STUCK
        self._stuck[slot.id] = slot.partition
        self._inbox.forget(kept)
        change = Transition(slot.id, slot.partition, 0, stuck=text)
        for mail in kept:
            if mail.position is None and not isinstance(mail.given, i.Wake | i.Proceed | i.TaskLost):
                change.letters.append(Letter(slot.id, mail.at, i.encode(mail.given)))
                change.values.extend(mail.values)
            mail.answer(i.Refused(f"the run is stuck: {text}"))
        self._committer.add(slot, change)
        self._committer.flush(alone=False)

    async def _cannot_begin(self, kept: list[Mail], text: str) -> None:
        for mail in kept:
            mail.answer(i.Refused(f"the run cannot begin: {text}"))
            if isinstance(mail.given, i.Start) and mail.given.parent is not None:
                parent, child = mail.given.parent
                failed = i.ChildResult(child, Status.FAILED, Failed(Code.CANNOT_BEGIN, text, retryable=False))
                await self.store.send(Letter(parent, self.clock.now(), i.encode(failed)))
        await self._inbox.discard(kept)

    # After the commit.

    def _committed(self, batch: Batch, answer: Committed) -> None:
        for slot, change in batch:
            if slot.is_gone:
                continue
            if answer.refused and slot.id in answer.refused:
                self._drop(slot, i.Refused("the run exists already"))
            elif slot.phase is Phase.STUCK:
                self._remove(slot)
                for mail in slot.mailbox:  # came while the trouble was being written down
                    self.offer(slot.id, mail)
            else:
                self._settle(slot, change)
        for delivered in answer.delivered:
            self._inbox.take(delivered)
        self._dispatcher.fill()

    def _start_over(self, batch: Batch) -> None:
        """Nobody knows whether this was written: fold what is on disk, offer the same inputs again."""
        for slot, _ in batch:
            if not slot.is_gone:
                self._reload(slot)

    def _settle(self, slot: Slot, change: Transition | None) -> None:
        """It is on disk: now the world may hear of it."""
        turns, taken = slot.turns, slot.taken
        slot.turns, slot.taken, slot.unsynced = [], [], {}
        slot.phase = Phase.COMMITTING  # what commands bring back at once only waits in the mailbox
        if change is not None:
            slot.creation = None
            slot.failures = 0
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
        self._rest(slot)

    def _rest(self, slot: Slot) -> None:
        """Nothing more to do for now: go on with the mail, wait for a timer, or leave memory."""
        assert slot.execution is not None
        slot.phase = Phase.IDLE
        if slot.seeks_hands and not slot.is_leaving:
            slot.seeks_hands = False
            slot.phase = Phase.COMMITTING  # what this brings only waits in the mailbox
            self._find_hands(slot, slot.execution)
            slot.phase = Phase.IDLE
        due = slot.next_due()
        if slot.is_leaving:
            if slot.comes_again:
                self._handover.look_at(slot)
            else:
                self._make_ready(slot)
        elif slot.mailbox or (due is not None and due <= self.clock.now()):
            self._make_ready(slot)
        elif not slot.execution.state.has_local_work:  # a run that only waits costs disk, not memory
            del self._slots[slot.id]
            self._alarms.parked(due)
        elif due is not None and (slot.alarm is None or due < slot.alarm):
            slot.alarm = due
            self._alarms.resident(due, slot.id)

    # Tasks of this process.

    def _port_for(self, one: Assignment) -> Port:
        return TaskPort(one, self.ask, self.text)

    def _task_done(self, one: Assignment, outcome: Outcome) -> None:
        outcome, values = lighten_outcome(outcome)
        result = i.TaskResult(one.task, one.attempt, one.delivery, outcome)
        self.offer(one.run, Mail(self.clock.now(), 0, result, values=values))

    def _restored(self, one: Assignment) -> None:
        """A task that an earlier process had is to be begun here."""
        slot = self._slots.get(one.run)
        task = None if slot is None or slot.execution is None else slot.execution.state.tasks.get(one.task)
        if task is not None and task.laid_down:
            self.offer(one.run, Mail(self.clock.now(), 0, i.TakeUp([one.task])))
        else:
            self._task_lost(one)

    def _task_lost(self, one: Assignment) -> None:
        lost = i.TaskLost(one.task, one.delivery, "its process ended before it did")
        self.offer(one.run, Mail(self.clock.now(), 0, lost))

    # Letters, alarms, leases.

    def _look_for_letters(self) -> None:
        """Asking whether any process has committed anything costs microseconds, so it can be asked often."""
        if self.store.changed():
            self._removal.look_again()
            self._read_soon()

    def _read_soon(self) -> None:
        self._chores.spawn(self._inbox.read())

    def _look_for_newer(self) -> None:
        if self._newer:
            self._chores.spawn(self._newer.look())

    async def read_inbox(self) -> None:
        await self._inbox.read()

    def _alarm_rang(self, runs: list[RunId], look_for_parked: bool) -> None:
        for run in runs:
            slot = self._slots.get(run)
            if slot is not None:
                slot.alarm = None
                if slot.phase is Phase.IDLE:
                    self._rest(slot)
        if look_for_parked:
            self._chores.spawn(self._wake_parked())

    async def _wake_parked(self) -> None:
        now = self.clock.now()
        due = await self.store.due(self.partitions, now, WOKEN_AT_ONCE)
        for run in due:
            if run not in self._slots:
                self.offer(run, Mail(now, 0, i.Wake()))
        if len(due) == WOKEN_AT_ONCE:  # the rest a moment later, when these are decided
            self._alarms.parked(now + 10_000)
        self._alarms.parked(await self.store.next_due(self.partitions, now))

    async def expire_leases(self) -> None:
        if await self.store.expire(self.clock.now()):
            await self._inbox.read()

    # Watching.

    def ended(self, run: RunId) -> "asyncio.Future[Ended | None]":
        """How a run of ours ends, once it does. Whoever does not wait to the end says so with `unwait`.

        None: it may belong to another process now.
        """
        self._must_run()
        return self._waiters.wait(run)

    def unwait(self, run: RunId, future: "asyncio.Future[Ended | None]") -> None:
        self._waiters.leave(run, future)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Hear of every commit; call the answer to stop."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def is_open_here(self, run: RunId) -> bool:
        """Whether the run is in memory and has not ended, as far as decided."""
        slot = self._slots.get(run)
        return slot is not None and slot.execution is not None and slot.execution.state.outcome is None

    def waiting_for_provider(self, run: RunId) -> dict[int, str]:
        return self._dispatcher.waiting_for_provider(run)

    def providers_changed(self) -> None:
        self._dispatcher.providers_changed()


def _home(slot: Slot, stored: Stored | None) -> int:
    """Where a run is, or is to be born."""
    if stored is not None:
        return stored.row.partition
    return slot.partition or next((mail.partition for mail in slot.mailbox if mail.partition), 0)


def _into(answer: "asyncio.Future[i.Answer]") -> Callable[[i.Answer], None]:
    def settle(given: i.Answer) -> None:
        if not answer.done():
            answer.set_result(given)

    return settle
