"""The worker of a pool: leases tasks, keeps the leases, answers each task once.

It runs in any process that reaches a server; it knows no runs and decides nothing. Before it starts a suspect it has it
recorded where it does: whoever finds the lease lost decides by that. A suspect that must not run beside other tasks has
a process of its own, or this one to itself (invariant 27). A lease that could not be kept is over by the worker's own
clock: its task is stopped.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from msgspec.structs import replace

from perdure.kernel.json_values.values import Instant
from perdure.kernel.outcomes import Code, Failed, Outcome
from perdure.kernel.tasks.assignments import NOT_IMPORTED, Assignment, RunPort
from perdure.kernel.tasks.crash_attribution import ALONE_FROM, StartPlace, time_alone
from perdure.kernel.tasks.task_sources import TaskGrant, TaskSource

LONG_POLL = 30.0  # seconds that one request for work waits


class TaskRunner(Protocol):
    def can_perform(self, provider: str) -> bool: ...
    def keeps_apart(self, assignment: Assignment) -> bool: ...
    def can_keep_apart(self, assignment: Assignment) -> bool: ...
    def perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None: ...
    def cancel(self, assignment: Assignment) -> object: ...


class HeldTask:
    """A task in hand."""

    __slots__ = ("assignment", "grant", "has_begun", "kept_at")

    def __init__(self, grant: TaskGrant) -> None:
        self.grant = grant
        self.assignment = grant.assignment
        self.has_begun = False
        self.kept_at = grant.asked_at  # when the lease was last asked to last


class PoolWorker:
    def __init__(
        self, source: TaskSource, runner: TaskRunner, now: Callable[[], Instant], *, name: str, slots: int = 10
    ) -> None:
        self._source = source
        self._runner = runner
        self._now = now
        self._name = name
        self._slots = slots
        self._held: dict[str, HeldTask] = {}  # by lease
        self._answers: set[asyncio.Task[None]] = set()
        self._not_begun: deque[str] = deque()  # leases of tasks that wait until nothing else works here
        self._alone: tuple[str, Instant] | None = None  # the one that is, and until when
        self._has_place = asyncio.Event()
        self._is_stopping = False  # pipelines in hand are left to others after the task that is under way

    @property
    def in_hand(self) -> int:
        return len(self._held)

    # The life of the process.

    async def run(self, stopping: asyncio.Event, grace: float) -> int:
        """Work until told to stop; then finish what is in hand, within the grace. How many tasks did not end in it."""
        beating = asyncio.ensure_future(self._keep_beating())
        try:
            while not stopping.is_set():
                leasing = asyncio.ensure_future(self._take_when_free())
                stopped = asyncio.ensure_future(stopping.wait())
                await asyncio.wait({leasing, stopped}, return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
                if leasing.done():
                    leasing.result()
                else:
                    leasing.cancel()
                    with suppress(asyncio.CancelledError):
                        await leasing
                    await self._source.give_back_unheard()
            self._is_stopping = True
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._give_back_not_begun()
                    while self._held or self._answers:
                        self._has_place.clear()
                        await self._has_place.wait()
            left = len(self._held)
            await self.close()
            return left
        finally:
            beating.cancel()

    async def _take_when_free(self) -> None:
        is_full = len(self._held) >= self._slots
        if is_full or (not await self.take(self._slots - len(self._held), LONG_POLL) and self._not_begun):
            self._has_place.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0 if self._alone or self._not_begun else LONG_POLL):
                    await self._has_place.wait()

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(self._source.beat_every)
            with suppress(ConnectionError):
                await self.beat()

    # Taking and beginning.

    async def take(self, count: int = 10, wait: float = 0.0) -> int:
        """Lease what is ready and begin it; how many. Nothing is leased while a task is, or waits to be, alone here."""
        await self._begin_alone()
        if self._alone is not None or self._not_begun:
            return 0
        grants = await self._source.lease(count, wait)
        for grant in grants:
            held = self._held[grant.lease] = HeldTask(grant)
            if held.assignment.suspicion:
                await self._begin_suspect(held)
            else:
                self._begin(held)
        await self._begin_alone()
        return len(grants)

    def _begin(self, held: HeldTask) -> None:
        held.has_begun = True
        self._runner.perform(held.assignment, self._source.port_for(held.grant), self._ending(held))

    async def _begin_suspect(self, held: HeldTask) -> None:
        assignment = held.assignment
        if self._runner.keeps_apart(assignment):
            place = StartPlace.APART
        elif assignment.suspicion < ALONE_FROM:
            place = StartPlace.BESIDE_OTHERS
        elif self._runner.can_keep_apart(assignment):
            place, held.assignment = StartPlace.APART, replace(assignment, apart=True)
        else:
            self._not_begun.append(held.grant.lease)
            return
        if await self._source.begin(held.grant.lease, place):  # else it is another's by now
            self._begin(held)
        else:
            self._held.pop(held.grant.lease, None)

    async def _begin_alone(self) -> None:
        if self._alone is not None or not self._not_begun:
            return
        running = [held.assignment for held in self._held.values() if held.has_begun]
        if not all(assignment.apart or self._runner.keeps_apart(assignment) for assignment in running):
            return
        lease = self._not_begun.popleft()
        held = self._held[lease]
        self._alone = (lease, self._now() + time_alone(held.assignment.losses))
        if await self._source.begin(lease, StartPlace.ALONE):
            self._begin(held)
        else:
            self._held.pop(lease, None)
            self._alone = None
            await self._begin_alone()

    # Ending.

    def _ending(self, held: HeldTask) -> Callable[[Outcome], None]:
        def done(outcome: Outcome) -> None:
            if self._held.get(held.grant.lease) is not held:
                return  # it is another's by now
            if _is(outcome, NOT_IMPORTED) and held.assignment.apart:
                held.assignment, held.has_begun = replace(held.assignment, apart=False), False
                self._not_begun.append(held.grant.lease)
                return
            self._spawn(self._answer(held, outcome))

        return done

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._answers.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: "asyncio.Task[None]") -> None:
        self._answers.discard(task)
        self._has_place.set()

    async def _answer(self, held: HeldTask, outcome: Outcome) -> None:
        """The lease is kept until the answer was heard, and on with the next task of a pipeline."""
        lease, following = held.grant.lease, None
        was_alone = held.assignment.apart and _is(outcome, Code.WORKER_DIED)
        try:
            if held.grant.pipeline is None or was_alone or self._is_stopping:
                await self._source.end(lease, outcome, was_alone=was_alone)
            else:
                following = await self._source.pass_on(held.grant, outcome)
        finally:
            if self._held.get(lease) is held:
                del self._held[lease]
            else:
                following = None  # it was dropped meanwhile
        if following is not None:
            self._held[lease] = HeldTask(following)
            self._begin(self._held[lease])
        if self._alone is not None and self._alone[0] == lease:  # its end is known: others may begin
            self._alone = None
            await self._begin_alone()

    async def beat(self) -> None:
        """Keep the leases; stop what was recalled, drop what was lost. Who has outlived its time alone is cleared."""
        await self._look_at_alone()
        asked = time.monotonic()
        leases = list(self._held)
        try:
            kept = await self._source.renew(leases) if leases else None
        except ConnectionError:
            await self._drop_expired()
            raise
        if kept is None:
            return
        for lease in leases:
            held = self._held.get(lease)
            if held is None:
                continue
            if lease in kept.lost:
                await self._drop(lease)
                self._runner.cancel(held.assignment)
                continue
            held.kept_at = asked
            if lease in kept.recalled:
                self._recall(held)

    def _recall(self, held: HeldTask) -> None:
        if held.has_begun:
            self._runner.cancel(held.assignment)
        else:
            lease = held.grant.lease
            self._not_begun = deque(waiting for waiting in self._not_begun if waiting != lease)
            self._held.pop(lease, None)
            self._spawn(self._source.release(lease, has_begun=False))

    async def _drop_expired(self) -> None:
        """Nobody renews them: by now they may belong to others."""
        over = time.monotonic() - self._source.lease_for
        for lease, held in list(self._held.items()):
            if held.kept_at < over:
                self._held.pop(lease, None)
                self._not_begun = deque(waiting for waiting in self._not_begun if waiting != lease)
                if self._alone is not None and self._alone[0] == lease:
                    self._alone = None
                self._runner.cancel(held.assignment)
                self._has_place.set()

    async def _look_at_alone(self) -> None:
        if self._alone is not None and self._now() >= self._alone[1]:
            lease, self._alone = self._alone[0], None
            await self._source.begin(lease, StartPlace.BESIDE_OTHERS, cleared=True)
        await self._begin_alone()

    async def _drop(self, lease: str) -> None:
        """It is another's now, although we live: whoever was alone here is not to be charged with that."""
        del self._held[lease]
        self._not_begun = deque(waiting for waiting in self._not_begun if waiting != lease)
        self._has_place.set()
        if self._alone is not None and self._alone[0] == lease:
            self._alone = None
            await self._source.begin(lease, StartPlace.LET_GO, cleared=False)

    # Stopping.

    async def finish(self) -> None:
        """Until everything that has ended is answered."""
        while self._answers:
            await asyncio.gather(*self._answers)

    async def _give_back_not_begun(self) -> None:
        while self._not_begun:
            lease = self._not_begun.popleft()
            if self._held.pop(lease, None) is not None:
                await self._source.release(lease, has_begun=False)

    async def close(self) -> None:
        """An orderly stop: what is in hand is stopped and given back at once, and charged to nobody."""
        held, self._held = self._held, {}
        self._not_begun.clear()
        self._alone = None
        for lease, task in held.items():
            self._runner.cancel(task.assignment)
            with suppress(ConnectionError):
                await self._source.release(lease, has_begun=task.has_begun)
        await self.finish()


def _is(outcome: Outcome, code: str) -> bool:
    return isinstance(outcome, Failed) and outcome.code == code
