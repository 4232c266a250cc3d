"""One engine in this process: opened, given inputs, watched and closed. What happens inside is the scheduler's.

open ─▶ join the store ─▶ create, ask, adopt … ─▶ leave (hand over) ─▶ close
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perdure.engine.clock import Clock, until_beat
from perdure.engine.runs.run_waiters import Ended
from perdure.engine.scheduler import Scheduler, Watcher
from perdure.engine.settings import Settings
from perdure.engine.slot import ELSEWHERE, Mail, Slot, SlotPhase, answer_into
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import Fetch
from perdure.kernel.errors import EngineMissing, EngineStopped, PerdureError
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.large_values import LargeValues, extract_large_values
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.stores.access import Act
from perdure.stores.commit_types import NewRun, TaskAnswer
from perdure.stores.protocol import Store

if TYPE_CHECKING:
    from perdure.engine.tasks.executor import Executor

WALL_EVERY = 60.0  # seconds between looks at the wall clock, for waits until an instant that it shows
HELD_EVERY = 1.0  # seconds between looks at what waits for other servers
LAST_WORDS = 2.0  # seconds to write down what was not begun, when a server leaves


class Runtime:
    def __init__(
        self, store: Store, dialects: Mapping[str, Dialect], executor: "Executor", clock: Clock, settings: Settings
    ) -> None:
        self.store = store
        self.clock = clock
        self.scheduler = Scheduler(store, dialects, executor, clock, settings)
        self.partitions = self.scheduler.context.partitions
        self._settings = settings
        self._slots = self.scheduler.slots
        self._tasks = self.scheduler.tasks
        self._looks: dict[str, asyncio.TimerHandle] = {}
        self._ahead: Instant = 0  # of the wall, compared with the store's clock
        self._heard = asyncio.Event()

    @property
    def stopped(self) -> PerdureError | None:
        return self.scheduler.stopped

    # Opening and closing.

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ahead = self.clock.wall() - self.clock.now()
        ownership = self.scheduler.partitions
        await ownership.join()
        self.store.listen(self._woken)
        settings, pace = self._settings, self.store.poll_intervals
        look_every = max(settings.poll, pace.messages)
        self._every("inbox", look_every, self._look_for_messages)
        self._every("ownership", look_every, ownership.poll)
        self._every("servers", settings.share_every or pace.share, ownership.look_around)
        self._every("held", settings.share_every or HELD_EVERY, self._look_after_held)
        self._every("leases", settings.lease_sweep or pace.sweep, self._look_for_lost_leases)
        self._every("wall", WALL_EVERY, self.look_at_wall)

    async def adopt(self, families: Sequence[RunId] | None = None) -> None:
        """Take up what has no live owner: all of it, or these runs with their children."""
        await self.scheduler.partitions.adopt(families)

    def recover(self) -> None:
        """From here on, take up what others left behind and can be done here. A server shares with others instead."""
        if not self._settings.serves:
            self._every("recovery", self._settings.recover_every, self.look_for_orphans)

    async def leave(self, grace: float | None = None) -> bool:
        """Hand everything over to those who stay: what is in flight gets a grace to end and be recorded.

        False: some did not end in time, and will be delivered again.
        """
        grace = self._settings.grace if grace is None else grace
        self.scheduler.partitions.is_leaving = True
        is_drained = self.stopped is None and await self.scheduler.handover.leave(grace)
        await self._become_quiet()
        self.scheduler.handover.return_unstarted()
        await self._become_quiet()
        return is_drained

    async def _become_quiet(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                while not self.is_quiet:
                    await asyncio.sleep(0.002)

    async def close(self) -> None:
        """Stop as on Ctrl-C: what is decided is committed, the rest is left for the next owner."""
        self.store.limit_timeout()
        if self._slots:
            await self.leave(0.0)  # so that tasks which were not begun cost no delivery
        await self.scheduler.dispatcher.close()
        self.scheduler.decide_no_more()
        if self.stopped is None:
            await self._tasks.done()
            await self.scheduler.recorder.write_logs()
        self._stop("the engine was closed")
        await self._tasks.done()
        await self.store.close()

    async def die(self) -> None:
        """End as a killed process does: nothing more is written, nobody is told, the locks are free."""
        self._stop("the engine died")
        await self._tasks.cancel()
        self.store.abandon()
        await self.scheduler.dispatcher.close()

    def _stop(self, reason: str) -> None:
        self.scheduler.stop(EngineStopped(reason))
        for task in self._looks.values():
            task.cancel()

    def _every(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        def again() -> None:
            if self.stopped is None:
                self._looks[name] = self._loop.call_later(until_beat(seconds), again)
                self.scheduler.guard(action)

        again()

    @property
    def home(self) -> int:
        """The partition of an engine that does not serve; its runs are born there."""
        return self.scheduler.partitions.home

    async def birthplace(self, run: RunId) -> int | None:
        """Where a new run is born; None: at another server."""
        return await self.scheduler.partitions.find_birthplace(run)

    @property
    def is_guest(self) -> bool:
        """Whether it leaves runs to others: it has no engine, or waits for the server that owns the file."""
        return self.scheduler.partitions.is_guest

    async def drives(self) -> None:
        """Until it drives runs itself; without an engine, for ever."""
        while self.is_guest:
            self.scheduler.must_run()
            await asyncio.sleep(self._settings.poll)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing moves here before something arrives from outside: a result, a signal, a due time."""
        return self.stopped is not None or self.scheduler.is_idle

    @property
    def routes(self) -> Mapping[str, str]:
        """Provider → the pool of workers elsewhere that does its tasks."""
        return self._settings.routes

    @property
    def tasks_in_flight(self) -> int:
        return self.scheduler.dispatcher.in_flight

    def answer_with(self, fetch: Fetch) -> None:
        """Who answers the questions that runs ask while they decide."""
        self.scheduler.answers = fetch

    # Inputs.

    def create(
        self,
        run: RunId,
        start: i.Start,
        document: bytes,
        program: Any,
        reply: Callable[[i.InputAnswer], None],
        act: Act | None = None,
        values: LargeValues = (),
    ) -> Slot | None:
        """Begin a run that is new as far as we know; the commit finds out. None if it is known, or begins elsewhere.

        `values`: what the start refers to, if somebody else has put it aside.
        """
        self.scheduler.must_run()
        place = self.scheduler.partitions.birthplace(run)
        if not values:
            start, values = extract_large_values(start, "input")
        mail = Mail(self.clock.now(), 0, start, reply=reply, values=values, act=act)
        if run in self._slots:  # the same start twice: the second finds the first
            self.scheduler.offer(run, mail)
        elif place is None:
            reply(ELSEWHERE)
        else:
            slot = self._slots[run] = Slot(run, place)
            slot.programs = ((start.program, start.language, document),)
            self.scheduler.runs.prepare_creation(slot, start, program)
            slot.mailbox.append(mail)
            self.scheduler.make_ready(slot)
            return slot
        return None

    async def create_elsewhere(
        self, run: RunId, start: i.Start, document: bytes, program: Any, act: Act | None = None
    ) -> i.InputAnswer:
        """Begin a run that another server goes on with."""
        self.scheduler.must_run()
        from perdure.engine.ownership.creation_elsewhere import create_elsewhere  # few processes need it

        start, values = extract_large_values(start, "input")
        slot = Slot(run, 0)
        slot.programs = ((start.program, start.language, document),)
        self.scheduler.runs.prepare_creation(slot, start, program)
        mail = Mail(self.clock.now(), 0, start, values=values, act=act)
        try:
            return await create_elsewhere(self.scheduler, slot, [mail])
        except EngineMissing:
            if not self._settings.drives:
                raise
            return ELSEWHERE  # the server that we wait for has just ended: it may be born here

    async def create_forked(
        self,
        execution: Execution,
        new: NewRun,
        lived: Sequence[tuple[int, bytes]],
        fork: i.Fork,
        *,
        reopen: i.Reopen | None = None,
        document: bytes | None = None,
        act: Act | None = None,
    ) -> i.InputAnswer:
        """Begin a run that has another's past, and goes on with `reopen` if that had ended."""
        self.scheduler.must_run()
        place = await self.birthplace(execution.id)
        if execution.id in self._slots:  # the same request twice
            return i.Refused("the same fork is being made", conflict=True)
        slot = Slot(execution.id, place or 0)
        slot.creation = new
        slot.lived = lived
        if document is not None:
            slot.programs = ((new.program, new.language, document),)
        slot.install(execution)
        fork, values = extract_large_values(fork, "input") if fork.input is not None else (fork, ())
        future: asyncio.Future[i.InputAnswer] = self._loop.create_future()
        everything = ((fork.source, None),)
        reply = answer_into(future)
        is_last = reopen is None
        answered = reply if is_last else None
        mails = [Mail(self.clock.now(), 0, fork, reply=answered, values=values, borrowed=everything, act=act)]
        if reopen is not None:
            mails.append(Mail(self.clock.now(), 0, reopen, reply=reply))
        if place is None:
            from perdure.engine.ownership.creation_elsewhere import create_elsewhere

            return await create_elsewhere(self.scheduler, slot, mails)
        self._slots[slot.id] = slot
        slot.mailbox.extend(mails)
        self.scheduler.make_ready(slot)
        return await future

    def offer(self, run: RunId, mail: Mail) -> None:
        self.scheduler.offer(run, mail)

    async def ask(
        self, run: RunId, input: i.Input, answer: TaskAnswer | None = None, act: Act | None = None
    ) -> i.InputAnswer:
        """Offer an input and wait until what follows from it is durable. `answer`: it is that of a worker elsewhere."""
        return await self.scheduler.ask(run, input, answer, act)

    # What others have done is looked for again and again.

    def _look_for_messages(self) -> None:
        """Asking whether any process has committed anything costs microseconds, so it can be asked often."""
        if self.store.changed():
            self.scheduler.removal.look_again()
            self.scheduler.inbox.read_soon()

    def _woken(self) -> None:
        """On any thread: the store has heard something."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._poll_store)

    def _poll_store(self) -> None:
        self._heard.set()
        if self.stopped is None:
            self.scheduler.guard(self._look_for_messages)
            self.scheduler.guard(self.scheduler.partitions.poll)

    async def hear(self) -> None:
        """Until the store has heard of something that others did, or it is time to look."""
        with suppress(TimeoutError):
            async with asyncio.timeout(until_beat(max(self._settings.poll, self.store.poll_intervals.messages))):
                await self._heard.wait()
        self._heard.clear()

    def _look_after_held(self) -> None:
        """What waits for another server's doing, of which nobody tells us. Costs nothing where nothing waits."""
        self.scheduler.removal.look_again()
        if self.scheduler.incompatible:
            self._tasks.spawn(self.scheduler.incompatible.hand_over())

    def look_for_orphans(self) -> None:
        """Take up runs that have no owner, if they can be done here."""
        if self.stopped is None and self.partitions and not self.scheduler.partitions.is_leaving:
            self._tasks.spawn(self.scheduler.recovery.look_for_orphans())

    def _look_for_lost_leases(self) -> None:
        self._tasks.spawn(self.expire_leases())

    async def expire_leases(self) -> None:
        if await self.store.expire(self.clock.now()):
            await self.read_inbox()

    async def read_inbox(self) -> None:
        await self.scheduler.inbox.read()

    def look_at_wall(self) -> None:
        """Where the wall clock was set, whoever waits for an instant on it has to look again."""
        ahead = self.clock.wall() - self.clock.now()
        if abs(ahead - self._ahead) <= SECOND:
            return
        self._ahead = ahead
        for slot in list(self._slots.values()):
            if slot.calendar and slot.phase is SlotPhase.IDLE:
                slot.alarm = None
                self.scheduler.idle(slot)
        self._tasks.spawn(self.scheduler.partitions.wake_parked())

    # Watching.

    def ended(self, run: RunId) -> "asyncio.Future[Ended | None]":
        """How a run of ours ends, once it does. Whoever does not wait to the end says so with `unwait`.

        None: it may belong to another process now.
        """
        self.scheduler.must_run()
        return self.scheduler.waiters.wait(run)

    def unwait(self, run: RunId, future: "asyncio.Future[Ended | None]") -> None:
        self.scheduler.waiters.leave(run, future)

    def hear_ends(self, listener: Callable[[RunId, Ended], None]) -> None:
        """Hear of every run that ends here, once that is on disk."""
        self.scheduler.waiters.listener = listener

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Hear of every commit; call the answer to stop."""
        return self.scheduler.watch(watcher)

    def origin_of(self, run: RunId) -> tuple[str, str, Instant]:
        """Language, namespace and start of a run in memory, such as one that a watcher hears of."""
        execution = self._slots[run].execution
        assert execution is not None, "whoever has committed is in memory"
        return execution.dialect.name, execution.namespace, execution.state.started_at

    def is_open_here(self, run: RunId) -> bool:
        """Whether the run is in memory and has not ended, as far as decided."""
        slot = self._slots.get(run)
        return slot is not None and slot.execution is not None and slot.execution.state.outcome is None

    def is_moving(self, run: RunId) -> bool:
        """Whether the run, or one below it, is about to be decided here, or is being written down."""
        return self.scheduler.runs.is_moving(run)

    def waiting_for_provider(self, run: RunId) -> dict[int, str]:
        return self.scheduler.dispatcher.waiting_for_provider(run)

    def providers_changed(self) -> None:
        """Code was loaded: what waited for it goes on."""
        if self.stopped is None:
            self.scheduler.dispatcher.providers_changed()
            self.scheduler.recovery.code_changed()
            self._tasks.spawn(self.scheduler.partitions.announce_code(list(self.partitions)))
