"""A worker on leased tasks: takes them from the store's task table, keeps its leases alive, turns results in.

It may live in any process that reaches the store; it knows no runs and decides nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from perdure.kernel import inputs
from perdure.kernel.errors import Conflict
from perdure.kernel.outcomes import Outcome
from perdure.kernel.values import SECOND, Instant, Payload, RunId
from perdure.kernel.work import Assignment, Claim, Port, decode_parcel
from perdure.stores.protocol import Leased, Letter, Store

LEASE: Instant = 60 * SECOND


class Reads(Protocol):
    def now(self) -> Instant: ...


class Hands(Protocol):
    def can_perform(self, provider: str) -> bool: ...
    def perform(self, assignment: Assignment, port: Port, done: Callable[[Outcome], None]) -> None: ...
    def cancel(self, assignment: Assignment) -> object: ...


class LeasingWorker:
    def __init__(
        self,
        store: Store,
        hands: Hands,
        clock: Reads,
        *,
        pool: str,
        name: str,
        providers: Sequence[str] | None = None,
        lease: Instant = LEASE,
    ) -> None:
        self._store = store
        self._hands = hands
        self._clock = clock
        self._pool = pool
        self._name = name
        self._providers = providers
        self._lease = lease
        self._held: dict[tuple[RunId, int], tuple[Leased, Assignment]] = {}
        self._reports: set[asyncio.Task[None]] = set()

    async def take(self, count: int = 10) -> int:
        """Lease what is ready and begin it; how many."""
        until = self._clock.now() + self._lease
        taken = await self._store.lease(self._pool, self._providers, self._name, count, until)
        for leased in taken:
            parcel = decode_parcel(leased.body)
            assignment = _filled(
                parcel.assignment,
                leased.delivery,
                await self._text(leased.run, parcel.arguments),
                await self._text(leased.run, parcel.input),
            )
            self._held[(leased.run, leased.task)] = (leased, assignment)
            self._hands.perform(assignment, _LeasedPort(), self._ending(leased, assignment))
        return len(taken)

    async def _text(self, run: RunId, payload: Payload) -> bytes:
        if isinstance(payload, bytes):
            return payload
        return (await self._store.values(run, [payload.digest]))[payload.digest]

    def _ending(self, leased: Leased, assignment: Assignment) -> Callable[[Outcome], None]:
        def done(outcome: Outcome) -> None:
            if self._held.pop((leased.run, leased.task), None) is not None:
                report = asyncio.get_running_loop().create_task(self._report(leased, assignment, outcome))
                self._reports.add(report)
                report.add_done_callback(self._reports.discard)

        return done

    async def _report(self, leased: Leased, assignment: Assignment, outcome: Outcome) -> None:
        result = inputs.TaskResult(leased.task, assignment.attempt, leased.delivery, outcome)
        # A lease that is not ours any more answers False: the task belongs to the next delivery.
        await self._store.report(self._name, leased, Letter(leased.run, self._clock.now(), inputs.encode(result)))

    async def beat(self) -> None:
        """Keep the leases; stop what was recalled, drop what was lost."""
        leases = [leased for leased, _ in self._held.values()]
        if not leases:
            return
        answer = await self._store.renew(self._name, leases, self._clock.now() + self._lease)
        for key in answer.lost | answer.recalled:
            held = self._held.get(key)
            if held is not None:
                if key in answer.lost:
                    del self._held[key]
                self._hands.cancel(held[1])

    async def finish(self) -> None:
        """Until everything that has ended is turned in."""
        while self._reports:
            await asyncio.gather(*self._reports)


def _filled(assignment: Assignment, delivery: int, arguments: bytes, input: bytes) -> Assignment:
    from msgspec.structs import replace

    return replace(assignment, delivery=delivery, arguments=arguments, input=input)


class _LeasedPort:
    """A worker elsewhere reaches its run through the server's protocol, which does not exist yet."""

    async def claim_effect(self, key: str) -> Claim:
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
