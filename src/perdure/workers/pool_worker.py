"""The worker of a pool: leases tasks from the store's task table, renews the leases and reports results.

It may run in any process that reaches the store; it knows no runs and decides nothing. Before it starts a suspect it
records in the row of the lease where it does: whoever finds the lease expired decides by the row. A suspect that must
not run beside other tasks has a process of its own, or this one to itself (invariant 27).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from perdure.kernel import inputs
from perdure.kernel.assignments import NOT_IMPORTED, Assignment, EffectClaimResult, RunPort, decode_assignment
from perdure.kernel.crash_attribution import ALONE_FROM, LossKind, StartPlace, time_alone
from perdure.kernel.errors import Conflict
from perdure.kernel.outcomes import Code, Failed, Outcome
from perdure.kernel.values import SECOND, Instant, Payload, RunId
from perdure.stores.commit_types import Message
from perdure.stores.protocol import LeasedTask, Store

LEASE: Instant = 60 * SECOND


class StoreClockReader(Protocol):
    def now(self) -> Instant: ...


class TaskRunner(Protocol):
    def can_perform(self, provider: str) -> bool: ...
    def keeps_apart(self, assignment: Assignment) -> bool: ...
    def can_keep_apart(self, assignment: Assignment) -> bool: ...
    def perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None: ...
    def cancel(self, assignment: Assignment) -> object: ...


class PoolWorker:
    def __init__(
        self,
        store: Store,
        runner: TaskRunner,
        clock: StoreClockReader,
        *,
        pool: str,
        name: str,
        providers: Sequence[str] | None = None,
        lease: Instant = LEASE,
    ) -> None:
        self._store = store
        self._runner = runner
        self._clock = clock
        self._pool = pool
        self._name = name
        self._providers = providers
        self._lease = lease
        self._executing: dict[tuple[RunId, int], tuple[LeasedTask, Assignment]] = {}
        self._reports: set[asyncio.Task[None]] = set()
        self._not_begun: deque[tuple[LeasedTask, Assignment]] = deque()  # until nothing else works here
        self._alone: tuple[Assignment, Instant] | None = None  # the one that is, and until when

    async def take(self, count: int = 10) -> int:
        """Lease what is ready and begin it; how many. Nothing is leased while a task is, or waits to be, alone here."""
        await self._begin_alone()
        if self._alone is not None or self._not_begun:
            return 0
        until = self._clock.now() + self._lease
        leases = await self._store.lease(self._pool, self._providers, self._name, count, until)
        for leased in leases:
            parcel = decode_assignment(leased.body)
            assignment = _filled(
                parcel.assignment,
                leased.delivery,
                await self._text(leased.run, parcel.arguments),
                await self._text(leased.run, parcel.input),
            )
            if assignment.suspicion:
                await self._begin_suspect(leased, assignment)
            else:
                self._begin(leased, assignment)
        await self._begin_alone()
        return len(leases)

    def _begin(self, leased: LeasedTask, assignment: Assignment) -> None:
        self._executing[(leased.run, leased.task)] = (leased, assignment)
        self._runner.perform(assignment, _LeasedPort(), self._ending(leased, assignment))

    async def _begin_suspect(self, leased: LeasedTask, assignment: Assignment) -> None:
        if self._runner.keeps_apart(assignment):
            place = StartPlace.APART
        elif assignment.suspicion < ALONE_FROM:
            place = StartPlace.BESIDE_OTHERS
        elif self._runner.can_keep_apart(assignment):
            place, assignment = StartPlace.APART, replace(assignment, apart=True)
        else:
            self._set_aside(leased, assignment)
            return
        if await self._store.begin(self._name, leased, place):  # else it is another's by now
            self._begin(leased, assignment)

    def _set_aside(self, leased: LeasedTask, assignment: Assignment) -> None:
        self._executing[(leased.run, leased.task)] = (leased, assignment)  # its lease is kept
        self._not_begun.append((leased, assignment))

    async def _begin_alone(self) -> None:
        if self._alone is not None or not self._not_begun:
            return
        waiting = {id(assignment) for _, assignment in self._not_begun}
        at_work = [other for _, other in self._executing.values() if id(other) not in waiting]
        if not all(running.apart or self._runner.keeps_apart(running) for running in at_work):
            return
        leased, assignment = self._not_begun.popleft()
        self._alone = (assignment, self._clock.now() + time_alone(assignment.losses))
        if await self._store.begin(self._name, leased, StartPlace.ALONE):
            self._begin(leased, assignment)
        else:
            self._executing.pop((leased.run, leased.task), None)
            self._alone = None
            await self._begin_alone()

    def _clear(self, leased: LeasedTask, outlived: bool) -> Message:
        cleared = inputs.Clear(leased.task, leased.delivery, outlived)
        return Message(leased.run, self._clock.now(), inputs.encode(cleared))

    async def _text(self, run: RunId, payload: Payload) -> bytes:
        if isinstance(payload, bytes):
            return payload
        return (await self._store.values(run, [payload.digest]))[payload.digest]

    def _ending(self, leased: LeasedTask, assignment: Assignment) -> Callable[[Outcome], None]:
        def done(outcome: Outcome) -> None:
            if self._executing.pop((leased.run, leased.task), None) is not None:
                if _is(outcome, NOT_IMPORTED) and assignment.apart:
                    self._set_aside(leased, replace(assignment, apart=False))
                    return
                report = asyncio.get_running_loop().create_task(self._report(leased, assignment, outcome))
                self._reports.add(report)
                report.add_done_callback(self._reports.discard)

        return done

    async def _report(self, leased: LeasedTask, assignment: Assignment, outcome: Outcome) -> None:
        result: inputs.Input = inputs.TaskResult(leased.task, assignment.attempt, leased.delivery, outcome)
        if assignment.apart and isinstance(outcome, Failed) and _is(outcome, Code.WORKER_DIED):
            result = inputs.TaskLost(leased.task, leased.delivery, outcome.message, LossKind.ALONE)
        # A lease that is not ours any more answers False: the task belongs to the next delivery.
        await self._store.report(self._name, leased, Message(leased.run, self._clock.now(), inputs.encode(result)))
        if self._alone is not None and self._alone[0] is assignment:  # its end is known: others may begin
            self._alone = None
            await self._begin_alone()

    async def beat(self) -> None:
        """Keep the leases; stop what was recalled, drop what was lost. Who has outlived its time alone is cleared."""
        await self._look_at_alone()
        leases = [leased for leased, _ in self._executing.values()]
        if not leases:
            return
        answer = await self._store.renew(self._name, leases, self._clock.now() + self._lease)
        for key in answer.lost | answer.recalled:
            execution = self._executing.get(key)
            if execution is not None:
                if key in answer.lost:
                    await self._drop(key)
                self._runner.cancel(execution[1])

    async def _look_at_alone(self) -> None:
        if self._alone is not None and self._clock.now() >= self._alone[1]:
            assignment, self._alone = self._alone[0], None
            leased, _ = self._executing[(assignment.run, assignment.task)]
            await self._store.begin(self._name, leased, StartPlace.BESIDE_OTHERS, self._clear(leased, outlived=True))
        await self._begin_alone()

    async def _drop(self, key: tuple[RunId, int]) -> None:
        """It is another's now, although we live: whoever was alone here is not to be charged with that."""
        leased, assignment = self._executing.pop(key)
        self._not_begun = deque(waiting for waiting in self._not_begun if waiting[1] is not assignment)
        if self._alone is not None and self._alone[0] is assignment:
            self._alone = None
            await self._store.send(self._clear(leased, outlived=False))

    async def finish(self) -> None:
        """Until everything that has ended is turned in."""
        while self._reports:
            await asyncio.gather(*self._reports)

    async def close(self) -> None:
        """An orderly stop: what is in hand is stopped and given back at once, and charged to nobody."""
        executing, self._executing = self._executing, {}
        self._not_begun.clear()
        self._alone = None
        for leased, assignment in executing.values():
            self._runner.cancel(assignment)
            lost = inputs.TaskLost(leased.task, leased.delivery, f"worker {self._name} was stopped", LossKind.STOPPED)
            await self._store.report(self._name, leased, Message(leased.run, self._clock.now(), inputs.encode(lost)))
        await self.finish()


def _filled(assignment: Assignment, delivery: int, arguments: bytes, input: bytes) -> Assignment:
    return replace(assignment, delivery=delivery, arguments=arguments, input=input)


def _is(outcome: Outcome, code: str) -> bool:
    return isinstance(outcome, Failed) and outcome.code == code


class _LeasedPort:
    """A worker elsewhere reaches its run through the server's protocol, which does not exist yet."""

    async def claim_effect(self, key: str) -> EffectClaimResult:
        raise Conflict("effects need a connection to the engine, which a leased task does not have yet")

    async def complete_effect(self, key: str, result: bytes) -> None:
        await self.claim_effect(key)

    async def complete_effect_unfit(self, key: str, reason: str) -> None:
        await self.claim_effect(key)

    async def release_effect(self, key: str) -> None:
        await self.claim_effect(key)

    async def emit_signal(self, name: str, value: bytes) -> None:
        raise Conflict("signals need a connection to the engine, which a leased task does not have yet")

    async def report(self, body: bytes) -> bytes | None:
        raise Conflict("reports need a connection to the engine, which a leased task does not have yet")

    def heartbeat(self, detail: bytes | None) -> None:
        """`beat` does it for all leases together."""

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """The worker's own process logs."""
