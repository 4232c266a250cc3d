"""The engine's heart: takes inputs, lets runs decide, commits in groups, and only then tells the world.

    offer ─▶ mailbox ─▶ ready ─▶ decide ─▶ one commit ─▶ settle ─▶ tasks, timers, letters, answers

Deciding ahead happens across runs, never inside one: a run with an unsynced transition takes no input.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from perdure.engine.after_commit import AfterCommit, Watcher
from perdure.engine.background_tasks import BackgroundTasks
from perdure.engine.clock import Clock
from perdure.engine.commands import Commands
from perdure.engine.decisions import Decider
from perdure.engine.dispatch import Dispatcher, Executor
from perdure.engine.document_validation import Fetch
from perdure.engine.group_commit import Batch, GroupCommit
from perdure.engine.handover import Handover
from perdure.engine.inbox import Inbox
from perdure.engine.incompatible_runs import IncompatibleRuns
from perdure.engine.large_values import lighten
from perdure.engine.lookup_answers import answer
from perdure.engine.partitions import Partitions, runs_of
from perdure.engine.recovery import Recovery, brought_by_code
from perdure.engine.resident_runs import ResidentRuns
from perdure.engine.run_removal import RunRemoval, descendants
from perdure.engine.run_waiters import Ended, RunWaiters
from perdure.engine.settings import Settings
from perdure.engine.slot import ELSEWHERE, Mail, Phase, Slot
from perdure.engine.stuck_runs import StuckRuns
from perdure.engine.task_recorder import TaskRecorder
from perdure.engine.timers import Timers
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import EngineStopped, PerdureError
from perdure.kernel.execution import Execution
from perdure.kernel.ids import is_family
from perdure.kernel.values import SECOND, Instant, Payload, RunId
from perdure.stores.protocol import NewRun, Store

_log = logging.getLogger("perdure.engine")

WOKEN_AT_ONCE = 2_000
WALL_EVERY = 60.0  # seconds between looks at the wall, for waits until an instant that it shows
HELD_EVERY = 1.0  # seconds between looks at what waits for other servers
LAST_WORDS = 2.0  # seconds to write down what was not begun, when a server leaves


class Runtime:
    def __init__(
        self, store: Store, dialects: Mapping[str, Dialect], hands: Executor, clock: Clock, settings: Settings
    ) -> None:
        self.store = store
        self.clock = clock
        self.partitions: list[int] = []  # whose runs we drive; those that are being handed over are not among them
        self.stopped: PerdureError | None = None
        self._dialects = dialects
        self._settings = settings
        self._slots: dict[RunId, Slot] = {}
        self._stuck: dict[RunId, int] = {}  # with their partitions
        self._waiters = RunWaiters()
        self._chores = BackgroundTasks(self._failed)
        self._newer = IncompatibleRuns(
            store, self._slots, self._stuck, self._read_soon, lambda line: self.sharing.tell(line)
        )
        self._inbox = Inbox(store, clock, self.partitions, self._stuck, self.offer, self._newer.note)
        self._removal = RunRemoval(store, self._inbox, self._chores, clock)
        self._alarms = Timers(clock, self._alarm_rang, self._slots.__contains__)
        self._committer = GroupCommit(
            store,
            self._chores,
            batch=settings.batch,
            tries=settings.commit_tries,
            committed=lambda batch, answer: self._settler.committed(batch, answer),
            forgotten=self._start_over,
            fenced=self._fenced,
        )
        self._recorder = TaskRecorder(store, clock, self._chores, self._slots, self.offer, self.ask, self.text)
        self._dispatcher = Dispatcher(hands, clock, settings.tasks_in_flight, self._recorder, lambda: not store.is_late)
        self._handover = Handover(
            store, self.partitions, self._slots, self._dispatcher, self._offer_now, self._forget, self._stay
        )
        self.sharing = Partitions(
            store, settings, self.partitions, self._handover, self._chores, self._take_up, self._wake, self._forget
        )
        self._recovery = Recovery(
            store,
            dialects,
            self.partitions,
            hands.can_perform,
            self._dispatcher.runs_without_provider,
            self.adopt,
            self._give_back,
        )
        self._commands = Commands(
            self._dispatcher,
            self._waiters,
            self._chores,
            clock,
            self.text,
            self._handover.look_at,
            store.loss_of,
            store.loss_on,
            self._recorder.let_go,
        )
        self._trouble = StuckRuns(
            store,
            clock,
            self._chores,
            self._committer,
            self._inbox,
            self._stuck,
            remove=lambda slot: self._residents.remove(slot),
            reload=lambda slot: self._residents.reload(slot),
        )
        self._decider = Decider(
            store,
            clock,
            settings,
            self._chores,
            self._committer,
            self._inbox,
            self._trouble,
            answers=lambda asked: answer(store, asked),
            look=self._look_if_late,
            pin=lambda change: self._residents.loader.mark_editions(change),
            erase=self._erase,
            settle=lambda slot: self._settler.settle(slot, None),
            failed=self._failed,
        )
        self._residents: ResidentRuns = ResidentRuns(
            store,
            dialects,
            self.partitions,
            self._slots,
            self._stuck,
            clock,
            self._chores,
            self._inbox,
            self._newer,
            self._commands,
            self._handover,
            self._trouble,
            make_ready=self._decider.make_ready,
        )
        self._settler: AfterCommit = AfterCommit(
            clock,
            self._residents,
            self._decider,
            self._commands,
            self._dispatcher,
            self._inbox,
            self._alarms,
            self._handover,
        )
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ahead: Instant = 0  # of the wall, compared with the store's clock

    # Opening and closing.

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ahead = self.clock.wall() - self.clock.now()
        await self.sharing.join()
        self._every("inbox", self._settings.poll, self._read_messages)
        self._every("ownership", self._settings.poll, self.sharing.look)
        pace = self.store.pace
        self._every("servers", self._settings.share_every or pace.share, self.sharing.look_around)
        self._every("held", self._settings.share_every or HELD_EVERY, self._look_after_held)
        sweep = self._settings.lease_sweep or pace.sweep
        self._every("leases", sweep, lambda: self._chores.spawn(self.expire_leases()))
        self._every("wall", WALL_EVERY, self.look_at_wall)
        self.store.listen(self._woken)

    async def adopt(self, families: Sequence[RunId] | None = None) -> None:
        """Take up what has no live owner: all of it, or these runs with their children."""
        home = await self.birthplace(families[0] if families else RunId(""))
        moved = runs_of(await self.store.move(families, home))
        stuck = [run for run in self._stuck if families is None or any(is_family(run, one) for one in families)]
        await self._wake([*moved, *(run for run in stuck if run not in moved)])  # ours that are stuck are tried again

    def recover(self) -> None:
        """From here on, take up what others left behind and can be done here. A server shares with others instead."""
        if not self._settings.serves:
            self._every("recovery", self._settings.recover_every, self._look_for_orphans)

    def _look_for_orphans(self) -> None:
        if self.partitions and not self.sharing.is_leaving:
            self._chores.spawn(self._recovery.look())

    async def _give_back(self, family: RunId) -> bool:
        """Leave a family to whoever can do it, once nothing of it moves here; its tasks were not begun."""
        slots = [slot for slot in self._slots.values() if is_family(slot.id, family)]
        if any(self._dispatcher.is_at_work(slot.id) for slot in slots) or self.is_moving(family):
            return False
        for slot in slots:
            slot.is_leaving = True
            if unbegun := self._dispatcher.withdraw(slot.id):
                slot.laying_down.update(unbegun)
                await self.ask(slot.id, i.LayDown(unbegun))
        below = [row.id for row in await descendants(self.store, family)]
        if self.is_moving(family):  # something has come for it meanwhile
            self._stay_with([slot for slot in slots if not slot.is_gone])
            return False
        self._newer.moving.update([family, *below])
        try:
            for slot in [slot for slot in self._slots.values() if is_family(slot.id, family)]:
                self._residents.drop(slot, ELSEWHERE)
                self._dispatcher.forget(slot.id)
            await self.store.disown_families([family], self.home)
        finally:
            self._newer.moving.difference_update([family, *below])
        self._waiters.look_again()
        return True

    async def _take_up(self, partitions: Sequence[int]) -> None:
        """Drive the runs of these partitions from what is recorded of them."""
        await self._wake(await self.store.with_work(partitions))

    async def _wake(self, runs: Sequence[RunId]) -> None:
        """Drive these runs, which have open work, and all others of ours that something has come for."""
        await self.read_inbox()  # first: a result that is known is not asked for again
        now = self.clock.now()
        for run in runs:
            self.offer(run, Mail(now, 0, i.Wake()))
        await self._tell_of_code(list(self.partitions))
        await self._wake_parked()

    async def _tell_of_code(self, partitions: Sequence[int]) -> None:
        for run, permit in await brought_by_code(self.store, self._dialects.values(), partitions):
            self._offer_now(run, i.PermitGrant(permit))

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
        self._decider.close()
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
        self._recorder.close()
        self._alarms.close()
        self._committer.close()
        self._residents.loader.close()
        self._decider.close()
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
        idle = self._committer.is_idle and self._residents.loader.is_idle and self._decider.is_idle
        return idle and not self._chores

    @property
    def tasks_in_flight(self) -> int:
        return self._dispatcher.in_flight

    def answer_with(self, fetch: Fetch) -> None:
        """Who answers the questions that runs ask while they decide."""
        self._decider.answers = fetch

    # Inputs.

    def create(
        self, run: RunId, start: i.Start, document: bytes, program: Any, reply: Callable[[i.InputAnswer], None]
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
            self._residents.prepare_creation(slot, start, program)
            slot.mailbox.append(mail)
            self._decider.make_ready(slot)

    async def create_forked(
        self, execution: Execution, new: NewRun, lived: Sequence[tuple[int, bytes]], fork: i.Fork
    ) -> i.InputAnswer:
        """Begin a run that has another's past."""
        self._must_run()
        place = await self.birthplace(execution.id)
        slot = self._slots[execution.id] = Slot(execution.id, place)
        slot.creation = new
        slot.lived = lived
        slot.install(execution)
        answer: asyncio.Future[i.InputAnswer] = self._loop.create_future()
        everything = ((fork.source, None),)
        slot.mailbox.append(Mail(self.clock.now(), 0, fork, reply=_into(answer), borrowed=everything))
        self._decider.make_ready(slot)
        return await answer

    def offer(self, run: RunId, mail: Mail) -> None:
        self._residents.offer(run, mail)

    def _offer_now(self, run: RunId, given: i.Input) -> None:
        self.offer(run, Mail(self.clock.now(), 0, given))

    async def ask(self, run: RunId, given: i.Input) -> i.InputAnswer:
        """Offer an input and wait until what follows from it is durable."""
        self._must_run()
        answer: asyncio.Future[i.InputAnswer] = self._loop.create_future()
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

    # Partitions that come and go.

    def _forget(self, partitions: Collection[int]) -> None:
        """Not ours any more: nothing of them stays in memory, nothing more is written, tasks in hand are stopped."""
        if not partitions:
            return
        for slot in list(self._slots.values()):
            if slot.partition in partitions:
                self._residents.drop(slot, ELSEWHERE)
                self._give_up_tasks(slot.id)
            elif not slot.partition:
                if self.partitions:
                    self._residents.load_anew(slot)
                else:
                    self._residents.drop(slot, ELSEWHERE)
        for run in [run for run, home in self._stuck.items() if home in partitions]:
            del self._stuck[run]
        self._newer.leave(partitions)
        self._inbox.leave(partitions)
        self._waiters.look_again()

    def _give_up_tasks(self, run: RunId) -> None:
        at_work = self._dispatcher.at_work(run)
        alone = next((one for one in at_work if self._dispatcher.is_alone(one)), None)
        self._dispatcher.forget(run)
        self._recorder.lose(run, at_work, alone)

    def _stay(self, partitions: list[int]) -> None:
        """They were about to be handed over, and stay after all: what was held back is begun."""
        self._stay_with([slot for slot in self._slots.values() if slot.partition in partitions and slot.is_leaving])
        self._chores.spawn(self._take_up(partitions))

    def _stay_with(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            slot.is_leaving = False
            unbegun, slot.unbegun = slot.unbegun, []
            if slot.execution is None:
                continue  # its tasks find hands when it is loaded
            for number in unbegun:
                self._commands.hand_out(slot, slot.execution, number)
            slot.seeks_hands = True
            if slot.phase is Phase.IDLE:
                self._settler.rest(slot)
        self._dispatcher.fill()

    def _fenced(self, batch: Batch, partitions: Sequence[int]) -> None:
        """Nothing was written, and some of it is not ours any more; the rest is tried again."""
        if all(slot.is_gone for slot, _ in batch):
            return
        self.sharing.lost(partitions)
        self._start_over(batch)

    def _start_over(self, batch: Batch) -> None:
        for slot, _ in batch:
            if not slot.is_gone:
                self._residents.reload(slot)

    def _look_if_late(self) -> None:
        if self.store.is_late:
            self.sharing.late()

    def _erase(self, slot: Slot) -> None:
        """It has ended, and nobody has a use for it any more."""
        self._residents.remove(slot)
        slot.phase = Phase.GONE
        self._removal.remove(slot.id, slot.taken)

    # Letters, alarms, leases.

    def _read_messages(self) -> None:
        """Asking whether any process has committed anything costs microseconds, so it can be asked often."""
        if self.store.changed():
            self._removal.look_again()
            self._read_soon()

    def _read_soon(self) -> None:
        self._chores.spawn(self._inbox.read())

    def _woken(self) -> None:
        """On any thread: the store has heard something."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if self.stopped is None:
            self._guarded(self._read_messages)
            self._guarded(self.sharing.look)

    def _look_after_held(self) -> None:
        """What waits for another server's doing, of which nobody tells us. Costs nothing where nothing waits."""
        self._removal.look_again()
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
                    self._settler.rest(slot)
        if look_for_parked:
            self._chores.spawn(self._wake_parked())

    def look_at_wall(self) -> None:
        """Where it was set, whoever waits for an instant on it has to look again."""
        ahead = self.clock.wall() - self.clock.now()
        if abs(ahead - self._ahead) <= SECOND:
            return
        self._ahead = ahead
        for slot in list(self._slots.values()):
            if slot.calendar and slot.phase is Phase.IDLE:
                slot.alarm = None
                self._settler.rest(slot)
        self._chores.spawn(self._wake_parked())

    async def _wake_parked(self) -> None:
        await self._inbox.read()  # what was acknowledged before a timer was due comes before it
        now = self.clock.now()
        ahead = self.clock.wall() - now
        due = await self.store.due(self.partitions, now, WOKEN_AT_ONCE, ahead)
        for run in due:
            if run not in self._slots:
                self.offer(run, Mail(now, 0, i.Wake()))
        if len(due) == WOKEN_AT_ONCE:  # the rest a moment later, when these are decided
            self._alarms.parked(now + 10_000)
        self._alarms.parked(await self.store.next_due(self.partitions, now, ahead))

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
        return self._settler.watch(watcher)

    def is_open_here(self, run: RunId) -> bool:
        """Whether the run is in memory and has not ended, as far as decided."""
        slot = self._slots.get(run)
        return slot is not None and slot.execution is not None and slot.execution.state.outcome is None

    def is_moving(self, run: RunId) -> bool:
        """Whether the run, or one below it, is about to be decided here, or is being written down."""
        return any(
            slot.phase is not Phase.STUCK and (slot.phase is not Phase.IDLE or bool(slot.mailbox))
            for slot in self._slots.values()
            if is_family(slot.id, run)
        )

    def waiting_for_provider(self, run: RunId) -> dict[int, str]:
        return self._dispatcher.waiting_for_provider(run)

    def providers_changed(self) -> None:
        """Code was loaded: what waited for it goes on."""
        if self.stopped is None:
            self._dispatcher.providers_changed()
            self._recovery.code_changed()
            self._chores.spawn(self._tell_of_code(list(self.partitions)))


def _into(answer: "asyncio.Future[i.InputAnswer]") -> Callable[[i.InputAnswer], None]:
    def settle(given: i.InputAnswer) -> None:
        if not answer.done():
            answer.set_result(given)

    return settle
