"""The engine's heart: takes inputs, lets runs decide, commits in groups, and only then tells the world.

    offer ─▶ mailbox ─▶ ready ─▶ decide ─▶ pending ─▶ one commit ─▶ settle ─▶ tasks, timers, letters, answers

Deciding ahead happens across runs, never inside one: a run with an unsynced transition takes no input.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perdure.engine.alarms import Alarms
from perdure.engine.clock import Clock
from perdure.engine.dispatch import Dispatcher, Hands
from perdure.engine.outgoing import assignment, transition
from perdure.engine.port import TaskPort
from perdure.engine.settings import Settings
from perdure.engine.slot import Mail, Phase, Slot
from perdure.engine.views import fold_stored
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import EngineStopped, PerdureError
from perdure.kernel.execution import Execution, decide
from perdure.kernel.ids import child_run
from perdure.kernel.outcomes import Code, Failed, Outcome, Status, Succeeded
from perdure.kernel.turn import Turn
from perdure.kernel.values import INLINE_BYTES, Instant, Payload, Ref, RunId, digest
from perdure.kernel.work import Assignment, Port
from perdure.stores.protocol import (
    Committed,
    Delivered,
    Fenced,
    Letter,
    NewRun,
    Store,
    Stored,
    Summary,
    Transition,
    Unknown,
)

_log = logging.getLogger("perdure.engine")

PROGRAMS_KEPT = 256
LOADED_AT_ONCE = 256
WOKEN_AT_ONCE = 2_000
DECIDED_AT_ONCE = 256

Batch = list[tuple[Slot, Transition]]
Ended = tuple[Status, Outcome]
Watcher = Callable[[RunId, list[tuple[Instant, list[e.Event]]]], None]


class Runtime:
    def __init__(
        self, store: Store, dialects: Mapping[str, Dialect], hands: Hands, clock: Clock, settings: Settings
    ) -> None:
        self.store = store
        self.clock = clock
        self.home = 0  # the partition new runs are born in
        self.partitions: list[int] = []
        self._dialects = dialects
        self._settings = settings
        self._slots: dict[RunId, Slot] = {}
        self._ready: deque[Slot] = deque()
        self._to_load: deque[Slot] = deque()
        self._pending: deque[tuple[Slot, Transition]] = deque()
        self._stuck: set[RunId] = set()
        self._in_inbox: set[int] = set()  # positions that are in a mailbox here
        self._programs: OrderedDict[bytes, Any] = OrderedDict()
        self._waiters: dict[RunId, list[asyncio.Future[Ended]]] = {}
        self._watchers: list[Watcher] = []
        self._dispatcher = Dispatcher(
            hands, clock, settings.tasks_in_flight, self._port_for, self._task_done, self._task_lost
        )
        self._alarms = Alarms(clock, self._alarm_rang)
        self._tasks: set[asyncio.Task[None]] = set()
        self._pump_scheduled = False
        self._loading = False
        self._committing = False
        self._unknown_in_a_row = 0
        self._poll_handle: asyncio.TimerHandle | None = None
        self._sweep_handle: asyncio.TimerHandle | None = None
        self.stopped: PerdureError | None = None

    # Opening and closing.

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.home = await self.store.claim()
        self.partitions = [self.home]
        self._poll()
        self._sweep()

    async def adopt(self, families: Sequence[RunId] | None = None) -> None:
        """Take up what has no live owner: all of it, or these runs with their children."""
        if families is None:
            for partition in await self.store.orphaned():
                if await self.store.adopt(partition):
                    self.partitions.append(partition)
        else:
            await self.store.move(families, self.home)
        now = self.clock.now()
        for run in await self.store.with_work(self.partitions):
            self.offer(run, Mail(now, 0, i.Wake()))
        await self._wake_parked()
        await self.read_inbox()

    async def close(self) -> None:
        """Stop as on Ctrl-C: what is decided is committed, the rest is left for the next owner."""
        await self._dispatcher.close()
        while self._tasks and self.stopped is None:
            await asyncio.wait(self._tasks)
        self._stop(EngineStopped("the engine was closed"))
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.store.close()

    async def die(self) -> None:
        """End as a killed process does: nothing more is written, nobody is told, the locks are free."""
        self._stop(EngineStopped("the engine died"))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.store.abandon()
        await self._dispatcher.close()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing moves here before something arrives from outside: a result, a signal, a due time."""
        busy = self._ready or self._to_load or self._pending or self._tasks
        return self.stopped is not None or not (busy or self._pump_scheduled or self._committing)

    @property
    def tasks_in_flight(self) -> int:
        return self._dispatcher.in_flight

    def _stop(self, reason: PerdureError) -> None:
        if self.stopped is not None:
            return
        self.stopped = reason
        self._alarms.close()
        for handle in (self._poll_handle, self._sweep_handle):
            if handle is not None:
                handle.cancel()
        for futures in self._waiters.values():
            for future in futures:
                if not future.done():
                    future.set_exception(reason)
                    future.exception()  # whoever still waits sees it; nobody has to
        self._waiters.clear()
        answer = i.Refused(str(reason))
        for slot in self._slots.values():
            for mail in (*slot.mailbox, *slot.taken):
                if mail.reply is not None:
                    mail.reply(answer)
        self._ready.clear()
        self._to_load.clear()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A fault of ours or of the store's: nothing in memory can be trusted any more.
            if not isinstance(error, PerdureError):
                _log.error("the engine failed", exc_info=error)
            self._stop(error if isinstance(error, PerdureError) else EngineStopped(f"the engine failed: {error!r}"))

    # Inputs.

    def create(
        self, run: RunId, start: i.Start, document: bytes, program: Any, reply: Callable[[i.Answer], None]
    ) -> None:
        """Begin a run that is new as far as we know; the commit finds out."""
        self._must_run()
        now = self.clock.now()
        dialect = self._dialects[start.language]
        slot = self._slots.get(run)
        if slot is not None:  # the same start twice: the second finds the first
            self.offer(run, Mail(now, 0, start, reply=reply))
            return
        slot = Slot(run, self.home)
        slot.programs = ((start.program, start.language, document),)
        values = self._aside(start.input)
        if values:
            start = replace(start, input=Ref(values[0][0], len(values[0][1])))
        self._prepare_creation(slot, start, dialect, program)
        slot.mailbox.append(Mail(now, 0, start, reply=reply, values=values))
        self._slots[run] = slot
        self._make_ready(slot)

    def _prepare_creation(self, slot: Slot, start: i.Start, dialect: Dialect, program: Any) -> None:
        parent = start.parent[0] if start.parent is not None else None
        now = self.clock.now()
        slot.creation = NewRun(start.language, start.name, start.program, parent, start.labels, start.key, now)
        slot.install(Execution(slot.id, dialect, program))

    def create_forked(self, execution: Execution, new: NewRun, lived: Sequence[tuple[int, bytes]], fork: i.Fork) -> Any:
        """Begin a run that has another's past."""
        self._must_run()
        slot = Slot(execution.id, self.home)
        slot.creation = new
        slot.install(execution)
        slot.lived = lived
        answer: asyncio.Future[i.Answer] = self._loop.create_future()
        mail = Mail(self.clock.now(), 0, fork, reply=_settle(answer), borrowed=((fork.source, None),))
        slot.mailbox.append(mail)
        self._slots[slot.id] = slot
        self._make_ready(slot)
        return answer

    def offer(self, run: RunId, mail: Mail) -> None:
        slot = self._slots.get(run)
        if slot is None:
            if run in self._stuck:  # tried again on demand, with everything that was kept for it
                self._stuck.discard(run)
                self._spawn(self.read_inbox())
            slot = self._slots[run] = Slot(run, self.home)
            slot.mailbox.append(mail)
            self._to_load.append(slot)
            self._load_soon()
            return
        slot.mailbox.append(mail)
        if slot.phase is Phase.IDLE:
            self._make_ready(slot)

    async def ask(self, run: RunId, given: i.Input) -> i.Answer:
        """Offer an input and wait until what follows from it is durable."""
        self._must_run()
        answer: asyncio.Future[i.Answer] = self._loop.create_future()
        given, values = self._lighten(given)
        self.offer(run, Mail(self.clock.now(), 0, given, reply=_settle(answer), values=values))
        decided = await answer
        if isinstance(decided, i.Refused):
            self._must_run()  # refused because the engine stopped: that is no answer of the run's
        return decided

    def _must_run(self) -> None:
        if self.stopped is not None:
            raise self.stopped

    def _make_ready(self, slot: Slot) -> None:
        slot.phase = Phase.READY
        self._ready.append(slot)
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)

    # Large values.

    def _aside(self, payload: Payload) -> tuple[tuple[bytes, bytes], ...]:
        if isinstance(payload, bytes) and len(payload) > INLINE_BYTES:
            return ((digest(payload), payload),)
        return ()

    def _lighten(self, given: Any) -> tuple[Any, tuple[tuple[bytes, bytes], ...]]:
        """Put a large value of an input beside it."""
        for field in ("value", "body", "result"):
            payload = getattr(given, field, None)
            if payload is not None and (aside := self._aside(payload)):
                return replace(given, **{field: Ref(aside[0][0], len(payload))}), aside
        return given, ()

    async def text(self, run: RunId, payload: Payload) -> bytes:
        if isinstance(payload, bytes):
            return payload
        found = await self.store.values(run, [payload.digest])
        return found[payload.digest]

    # Loading.

    def _load_soon(self) -> None:
        if not self._loading:
            self._loading = True
            self._spawn(self._load())

    async def _load(self) -> None:
        try:
            while self._to_load and self.stopped is None:
                slots = [self._to_load.popleft() for _ in range(min(len(self._to_load), LOADED_AT_ONCE))]
                found = {stored.row.id: stored for stored in await self.store.load([slot.id for slot in slots])}
                for slot in slots:
                    await self._fill_slot(slot, found.get(slot.id))
                await asyncio.sleep(0)
        finally:
            self._loading = False

    async def _fill_slot(self, slot: Slot, stored: Stored | None) -> None:
        try:
            if stored is None:
                await self._fill_new(slot)
            else:
                await self._fill_known(slot, stored)
        except PerdureError:
            raise
        except Exception as error:
            self._set_stuck(slot, error)

    async def _fill_known(self, slot: Slot, stored: Stored) -> None:
        row = stored.row
        if row.partition not in self.partitions:
            self._not_ours(slot)
            return
        dialect = self._dialects[row.language]
        program = await self._program(row.program, dialect)
        execution = await fold_stored(self.store, stored, dialect, program)
        slot.partition = row.partition
        slot.creation = None
        slot.summary = Summary(row.status, row.has_work, row.due, row.ended_at)
        slot.tail_bytes = sum(len(body) for _, body in stored.rows)
        slot.snapshot_bytes = len(stored.snapshot[1]) if stored.snapshot else 0
        slot.failures = max(slot.failures, 1 if row.stuck else 0)
        slot.install(execution)
        for number, task in execution.state.tasks.items():
            if not task.pool and not self._dispatcher.holds(slot.id, number, task.delivery):
                if task.cancelling:
                    self._task_lost(assignment(execution, number, b"", b""))
                else:
                    self._dispatcher.restore(assignment(execution, number, b"", b""))
        if execution.state.sliced:
            slot.mailbox.append(Mail(self.clock.now(), 0, i.Proceed()))
        self._make_ready(slot)

    def _not_ours(self, slot: Slot) -> None:
        del self._slots[slot.id]
        for mail in slot.mailbox:
            if mail.reply is not None:
                mail.reply(i.Refused("the run belongs to another process"))

    async def _fill_new(self, slot: Slot) -> None:
        """Not in the store: a child about to start, or a letter to a run that is gone."""
        start = next((mail.given for mail in slot.mailbox if isinstance(mail.given, i.Start)), None)
        if start is None:
            for mail in slot.mailbox:
                if mail.reply is not None:
                    mail.reply(i.Refused("there is no such run"))
            del self._slots[slot.id]
            await self._discard(slot.mailbox)
            return
        dialect = self._dialects[start.language]
        brought = next((text for name, _, text in slot.programs if name == start.program), None)
        program = await self._program(start.program, dialect) if brought is None else dialect.load(brought)
        self._prepare_creation(slot, start, dialect, program)
        self._make_ready(slot)

    async def _program(self, name: bytes, dialect: Dialect) -> Any:
        program = self._programs.get(name)
        if program is None:
            pinned = await self.store.program(name)
            if pinned is None:
                raise LookupError(f"document {name.hex()[:12]} is not in the store")
            program = self._programs[name] = dialect.load(pinned[1])
            if len(self._programs) > PROGRAMS_KEPT:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(name)
        return program

    # Deciding.

    def _pump(self) -> None:
        self._pump_scheduled = False
        ready = self._ready
        for _ in range(min(len(ready), DECIDED_AT_ONCE)):
            self._decide(ready.popleft())
        if ready and not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)
        self._flush()

    def _decide(self, slot: Slot) -> None:
        execution = slot.execution
        assert execution is not None
        if slot.unfinished is None:
            slot.take(self.clock.now())
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
                    self._spawn(self._fetch(slot, turn, needs.wanted))
                    return
                slot.unfinished = None
                slot.turns.append(turn)
                slot.decided += 1
            change = transition(slot, self._settings.snapshot_bytes)
        except Exception as error:
            self._decide_failed(slot, error)
            return
        if change is None:
            self._settle(slot, None)
        else:
            slot.phase = Phase.COMMITTING
            self._pending.append((slot, change))

    async def _fetch(self, slot: Slot, turn: Turn, wanted: tuple[bytes, ...]) -> None:
        found = await self.store.values(slot.id, wanted)
        for mail in slot.taken:
            for source, name in mail.borrowed:
                if name in wanted and name not in found:
                    found.update(await self.store.values(source, [name]))
        missing = [name.hex()[:12] for name in wanted if name not in found]
        if missing:
            self._set_stuck(slot, LookupError(f"large values {', '.join(missing)} are not in the store"))
            return
        turn.texts.update(found)
        self._make_ready(slot)

    def _decide_failed(self, slot: Slot, error: Exception) -> None:
        """State was changed half-way, so it is folded anew; a second failure is the run's own."""
        slot.put_back()
        slot.failures += 1
        if slot.failures >= 2 or slot.creation is not None:
            self._set_stuck(slot, error)
        else:
            _log.warning("run %s could not be decided; trying once more", slot.id, exc_info=error)
            self._reload(slot)

    def _reload(self, slot: Slot) -> None:
        slot.execution = None
        slot.phase = Phase.LOADING
        self._to_load.append(slot)
        self._load_soon()

    def _set_stuck(self, slot: Slot, error: Exception) -> None:
        """The run harms no other: its error is shown, its inputs are kept, and it is tried again on demand."""
        _log.error("run %s is stuck: %r", slot.id, error, exc_info=error)
        slot.put_back()
        slot.phase = Phase.STUCK
        self._stuck.add(slot.id)
        kept, slot.mailbox = slot.mailbox, []
        text = f"{type(error).__name__}: {error}"
        if slot.creation is not None:  # it was never stored: the start itself is refused
            del self._slots[slot.id]
            self._spawn(self._cannot_begin(kept, text))
            return
        change = Transition(slot.id, slot.partition, 0, stuck=text)
        for mail in kept:
            if mail.position is None and not isinstance(mail.given, i.Wake | i.Proceed | i.TaskLost):
                change.letters.append(Letter(slot.id, mail.at, i.encode(mail.given)))
                change.values.extend(mail.values)
            elif mail.position is not None:
                self._in_inbox.discard(mail.position)
            if mail.reply is not None:
                mail.reply(i.Refused(f"the run is stuck: {text}"))
        self._pending.append((slot, change))
        self._flush()

    async def _cannot_begin(self, kept: list[Mail], text: str) -> None:
        for mail in kept:
            if mail.reply is not None:
                mail.reply(i.Refused(f"the run cannot begin: {text}"))
            if isinstance(mail.given, i.Start) and mail.given.parent is not None:
                parent, child = mail.given.parent
                failed = i.ChildResult(child, Status.FAILED, Failed(Code.CANNOT_BEGIN, text, retryable=False))
                await self.store.send(Letter(parent, self.clock.now(), i.encode(failed)))
        await self._discard(kept)

    async def _discard(self, mails: list[Mail]) -> None:
        positions = [mail.position for mail in mails if mail.position is not None]
        if positions:
            await self.store.discard(positions)
            self._in_inbox.difference_update(positions)

    # Committing.

    def _flush(self) -> None:
        if not self._pending or self._committing or self.stopped is not None:
            return
        if not self._ready:
            # Nobody else could be decided meanwhile: if the disk is quick, a trip to another thread costs more.
            batch = self._next_batch()
            answer = self.store.commit_at_once([change for _, change in batch])
            if isinstance(answer, Committed):
                self._committed(batch, answer)
                return
            if answer is None:
                self._pending.extendleft(reversed(batch))
            else:
                self._committing = True
                self._spawn(self._not_committed(batch, answer))
                return
        self._committing = True
        self._spawn(self._commit())

    def _next_batch(self) -> Batch:
        pending = self._pending
        return [pending.popleft() for _ in range(min(len(pending), self._settings.batch))]

    async def _commit(self) -> None:
        try:
            while self._pending and self.stopped is None:
                batch = self._next_batch()
                answer = await self.store.commit([change for _, change in batch])
                if isinstance(answer, Committed):
                    self._committed(batch, answer)
                else:
                    await self._not_committed(batch, answer)
        finally:
            self._committing = False

    async def _not_committed(self, batch: Batch, answer: Fenced | Unknown) -> None:
        try:
            if isinstance(answer, Fenced):
                partitions = ", ".join(map(str, answer.partitions))
                raise EngineStopped(f"another process has taken over partition {partitions}")
            await self._commit_unknown(batch, answer.error)
        finally:
            self._committing = False

    async def _commit_unknown(self, batch: Batch, error: Exception) -> None:
        """Nothing is assumed: reopen, fold what is on disk, offer the same inputs again."""
        self._unknown_in_a_row += 1
        if self._unknown_in_a_row >= self._settings.commit_tries:
            raise error
        _log.warning("a commit ended unknown, looking at what is on disk: %s", error)
        await self.store.reopen()
        for slot, _ in batch:
            slot.put_back()
            self._reload(slot)

    def _committed(self, batch: Batch, answer: Committed) -> None:
        self._unknown_in_a_row = 0
        for slot, change in batch:
            if answer.refused and slot.id in answer.refused:
                self._refused(slot)
            elif slot.phase is Phase.STUCK:
                del self._slots[slot.id]
                for mail in slot.mailbox:  # came while the trouble was being written down
                    self.offer(slot.id, mail)
            else:
                self._settle(slot, change)
        for delivered in answer.delivered:
            self._take_letter(delivered)
        self._dispatcher.fill()
        if self._ready and not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)

    def _refused(self, slot: Slot) -> None:
        """The run that was to be created exists already, perhaps in another process: whoever asked looks it up."""
        del self._slots[slot.id]
        for mail in (*slot.taken, *slot.mailbox):
            if mail.position is not None:
                self._in_inbox.discard(mail.position)
            if mail.reply is not None:
                mail.reply(i.Refused("the run exists already", conflict=True))

    def _settle(self, slot: Slot, change: Transition | None) -> None:
        """It is on disk: now the world may hear of it."""
        execution = slot.execution
        assert execution is not None
        turns, taken = slot.turns, slot.taken
        slot.turns, slot.taken = [], []
        slot.phase = Phase.COMMITTING  # what commands bring back at once only waits in the mailbox
        if change is not None:
            slot.creation = None
            slot.failures = 0
            if change.summary is not None:
                slot.summary = change.summary
            for position in change.consumes:
                self._in_inbox.discard(position)
        for turn in turns:
            for event in turn.events:
                command = _COMMANDS.get(type(event))
                if command is not None:
                    command(self, slot, event)
        for mail, turn in zip(taken, turns, strict=True):
            if mail.reply is not None:
                mail.reply(turn.answer)
        if self._watchers and any(turn.events for turn in turns):
            told = [(turn.now, turn.events) for turn in turns if turn.events]
            for watcher in list(self._watchers):
                watcher(slot.id, told)
        slot.phase = Phase.IDLE
        due = slot.next_due()
        if slot.mailbox or (due is not None and due <= self.clock.now()):
            self._make_ready(slot)
        elif not execution.state.has_local_work:
            self._park(slot)
        elif due is not None and (slot.alarm is None or due < slot.alarm):
            slot.alarm = due
            self._alarms.resident(due, slot.id)

    def _park(self, slot: Slot) -> None:
        """A run that only waits costs disk, not memory."""
        del self._slots[slot.id]
        if slot.summary is not None:
            self._alarms.parked(slot.summary.due)

    # Commands: what recorded events ask of this process.

    def _task_wanted(self, slot: Slot, event: e.TaskScheduled | e.TaskRedelivered) -> None:
        assert slot.execution is not None
        task = slot.execution.state.tasks.get(event.task)
        if task is None or task.pool or task.cancelling:
            return
        if isinstance(task.arguments, bytes) and isinstance(task.input, bytes):
            self._dispatcher.add(assignment(slot.execution, event.task, task.arguments, task.input))
        else:
            self._spawn(self._dispatch_large(slot.execution, event.task))

    async def _dispatch_large(self, execution: Execution, number: int) -> None:
        task = execution.state.tasks[number]
        arguments = await self.text(execution.id, task.arguments)
        input = await self.text(execution.id, task.input)
        if number in execution.state.tasks:
            self._dispatcher.add(assignment(execution, number, arguments, input))
            self._dispatcher.fill()

    def _task_unwanted(self, slot: Slot, event: e.TaskCancelRequested) -> None:
        assert slot.execution is not None
        task = slot.execution.state.tasks.get(event.task)
        if task is None or task.pool:
            return
        if self._dispatcher.holds(slot.id, event.task, task.delivery):
            self._dispatcher.cancel(slot.id, event.task, task.grace)
        else:
            lost = i.TaskLost(event.task, task.delivery, "cancelled before it was handed out")
            slot.mailbox.append(Mail(self.clock.now(), 0, lost))

    def _gave_way(self, slot: Slot, event: e.Sliced) -> None:
        assert slot.execution is not None
        if event.more and slot.execution.state.sliced:
            slot.mailbox.append(Mail(self.clock.now(), 0, i.Proceed()))

    def _run_ended(self, slot: Slot, event: e.RunEnded) -> None:
        self._dispatcher.forget(slot.id)
        for future in self._waiters.pop(slot.id, ()):
            if not future.done():
                future.set_result((event.status, event.outcome))

    def _run_forked(self, slot: Slot, event: e.RunForked) -> None:
        assert slot.execution is not None
        state = slot.execution.state
        for number, task in state.tasks.items():
            if not task.pool:
                self._task_wanted(slot, e.TaskRedelivered(number, task.delivery, "forked"))

    def _port_for(self, one: Assignment) -> Port:
        return TaskPort(one, self.ask, self.text)

    def _task_done(self, one: Assignment, outcome: Outcome) -> None:
        values = self._aside(outcome.value) if isinstance(outcome, Succeeded) else ()
        if values:
            outcome = Succeeded(Ref(values[0][0], len(values[0][1])))
        result = i.TaskResult(one.task, one.attempt, one.delivery, outcome)
        self.offer(one.run, Mail(self.clock.now(), 0, result, values=values))

    def _task_lost(self, one: Assignment) -> None:
        lost = i.TaskLost(one.task, one.delivery, "its process ended before it did")
        self.offer(one.run, Mail(self.clock.now(), 0, lost))

    # Letters and alarms.

    def _poll(self) -> None:
        """Messages from other processes; asking whether anything changed costs microseconds."""
        if self.stopped is not None:
            return
        self._poll_handle = self._loop.call_later(self._settings.poll, self._poll)
        if self.store.changed():
            self._spawn(self.read_inbox())

    async def read_inbox(self) -> None:
        limit = len(self._in_inbox) + 1_000
        for delivered in await self.store.inbox(self.partitions, limit):
            self._take_letter(delivered)

    def _take_letter(self, delivered: Delivered) -> None:
        run = delivered.letter.to
        if delivered.position in self._in_inbox or delivered.partition not in self.partitions:
            return
        given = i.decode(delivered.letter.body)
        if run in self._stuck and not isinstance(given, i.Wake):
            return  # kept in the inbox until somebody wants the run tried again
        self._in_inbox.add(delivered.position)
        borrowed = _borrowed(run, given)
        self.offer(run, Mail(delivered.letter.at, 0, given, position=delivered.position, borrowed=borrowed))

    def _alarm_rang(self, runs: list[RunId], look_for_parked: bool) -> None:
        now = self.clock.now()
        for run in runs:
            slot = self._slots.get(run)
            if slot is None:
                continue
            slot.alarm = None
            if slot.phase is Phase.IDLE and (due := slot.next_due()) is not None:
                if due <= now:
                    self._make_ready(slot)
                else:
                    slot.alarm = due
                    self._alarms.resident(due, run)
        if look_for_parked:
            self._spawn(self._wake_parked())

    async def _wake_parked(self) -> None:
        now = self.clock.now()
        due = await self.store.due(self.partitions, now, WOKEN_AT_ONCE)
        for run in due:
            if run not in self._slots:
                self.offer(run, Mail(now, 0, i.Wake()))
        if len(due) == WOKEN_AT_ONCE:  # the rest when these are decided
            self._loop.call_later(0.01, self._wake_more)
        self._alarms.parked(await self.store.next_due(self.partitions, now))

    def _wake_more(self) -> None:
        if self.stopped is None:
            self._spawn(self._wake_parked())

    def _sweep(self) -> None:
        if self.stopped is None:
            self._spawn(self.expire_leases())
            self._sweep_handle = self._loop.call_later(self._settings.lease_sweep, self._sweep)

    async def expire_leases(self) -> None:
        if await self.store.expire(self.clock.now()):
            await self.read_inbox()

    # Watching.

    def ended(self, run: RunId) -> "asyncio.Future[Ended]":
        """How a run of ours ends, once it has."""
        self._must_run()
        future: asyncio.Future[Ended] = self._loop.create_future()
        self._waiters.setdefault(run, []).append(future)
        return future

    def is_resident(self, run: RunId) -> bool:
        """Whether the run is in memory here, and so will end here."""
        return run in self._slots

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def execution(self, run: RunId) -> Execution | None:
        """A resident run, for looking at; None when it is only in the store, or being decided."""
        slot = self._slots.get(run)
        return slot.execution if slot is not None and slot.phase is Phase.IDLE else None

    def waiting_for_provider(self, run: RunId) -> dict[int, str]:
        return self._dispatcher.waiting_for_provider(run)

    def providers_changed(self) -> None:
        self._dispatcher.providers_changed()


_COMMANDS: dict[type[e.Event], Callable[[Runtime, Slot, Any], None]] = {
    e.TaskScheduled: Runtime._task_wanted,
    e.TaskRedelivered: Runtime._task_wanted,
    e.TaskCancelRequested: Runtime._task_unwanted,
    e.Sliced: Runtime._gave_way,
    e.RunEnded: Runtime._run_ended,
    e.RunForked: Runtime._run_forked,
}


def _settle(answer: "asyncio.Future[i.Answer]") -> Callable[[i.Answer], None]:
    def settle(given: i.Answer) -> None:
        if not answer.done():
            answer.set_result(given)

    return settle


def _borrowed(run: RunId, given: i.Input) -> tuple[tuple[RunId, bytes | None], ...]:
    """Large values that a letter names and that lie with its sender; they are copied with the commit that takes it."""
    match given:
        case i.Start(input=Ref(name), parent=(source, _)):
            return ((source, name),)
        case i.ChildResult(child=child, outcome=Succeeded(Ref(name))):
            return ((child_run(run, child), name),)
        case _:
            return ()
