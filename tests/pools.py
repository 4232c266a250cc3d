"""A worker of a pool beside an engine, without a server between them."""

import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.engine.client import Client
from perdure.engine.tasks.lease_errors import LeaseGone
from perdure.engine.tasks.leased_tasks import LEASE, LeasedTasks, parcel_of
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.outcomes import Outcome
from perdure.kernel.tasks.assignments import EffectClaimResult, RunPort
from perdure.kernel.tasks.crash_attribution import StartPlace
from perdure.kernel.tasks.task_sources import KeptLeases, TaskGrant
from perdure.stores.pool_tasks import LeaseRequest
from perdure.workers.pool_worker import PoolWorker, TaskRunner


class EngineSource:
    """Tasks of a pool, straight from the engine."""

    def __init__(self, client: Client, pool: str, worker: str, lease: Instant = LEASE) -> None:
        self.tasks = LeasedTasks(client, lease)
        self._request = LeaseRequest([pool], worker, 1, 0)
        self.lease_for = lease / SECOND
        self.beat_every = self.lease_for / 3

    async def lease(self, count: int, wait: float) -> list[TaskGrant]:
        request = self._request
        asked = LeaseRequest(request.pools, request.worker, count, 0)
        grants = []
        for lease in await self.tasks.lease(asked, wait):
            parcel = parcel_of(lease)
            arguments, task_input = [
                await self.tasks.text(lease.run, payload) for payload in (parcel.arguments, parcel.input)
            ]
            assignment = replace(parcel.assignment, delivery=lease.delivery, arguments=arguments, input=task_input)
            grants.append(TaskGrant(lease.lease, assignment, time.monotonic()))
        return grants

    async def give_back_unheard(self) -> None:
        """Nothing is cut off here."""

    async def renew(self, leases: Sequence[str]) -> KeptLeases:
        _, renewal = await self.tasks.renew(leases)
        return KeptLeases(renewal.lost, renewal.recalled)

    async def begin(self, lease: str, place: StartPlace, cleared: bool | None = None) -> bool:
        if cleared is False:
            await self.tasks.clear_lost(lease)
            return False
        try:
            await self.tasks.begin(await self.tasks.find_open(lease), place, is_cleared=bool(cleared))
        except LeaseGone:
            return False
        return True

    async def end(self, lease: str, outcome: Outcome, *, was_alone: bool = False) -> bool:
        try:
            await self.tasks.end(await self.tasks.find(lease), outcome, was_alone=was_alone)
        except LeaseGone:
            return False
        return True

    async def pass_on(self, grant: TaskGrant, outcome: Outcome) -> TaskGrant | None:
        raise AssertionError("nothing here is leased with its pipeline")

    async def release(self, lease: str, *, has_begun: bool) -> None:
        await self.tasks.release(await self.tasks.find_open(lease), has_begun=has_begun)

    def port_for(self, grant: TaskGrant) -> RunPort:
        return EnginePort(self.tasks, grant.lease)


class EnginePort:
    def __init__(self, tasks: LeasedTasks, lease: str) -> None:
        self._tasks = tasks
        self._lease = lease

    async def claim_effect(self, key: str) -> EffectClaimResult:
        return await self._tasks.claim_effect(await self._tasks.find_open(self._lease), key)

    async def complete_effect(self, key: str, result: bytes) -> None:
        await self._tasks.complete_effect(await self._tasks.find_open(self._lease), key, result)

    async def complete_effect_unfit(self, key: str, reason: str) -> None:
        await self._tasks.complete_effect_unfit(await self._tasks.find_open(self._lease), key, reason)

    async def release_effect(self, key: str) -> None:
        await self._tasks.release_effect(await self._tasks.find_open(self._lease), key)

    async def emit_signal(self, name: str, value: bytes) -> None:
        await self._tasks.signal(await self._tasks.find_open(self._lease), name, value)

    async def report(self, body: bytes) -> bytes | None:
        return await self._tasks.report(await self._tasks.find_open(self._lease), body)

    def heartbeat(self, detail: bytes | None) -> None:
        """The worker keeps all leases together."""

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """Nobody reads it here."""


def pool_worker(world: Any, name: str = "w1", *, pool: str = "gpu", lease: Instant = LEASE) -> PoolWorker:
    """A worker of a test world's engine, with the world's hands and clock."""
    runner: TaskRunner = world.hands
    return PoolWorker(EngineSource(world.engine, pool, name, lease), runner, world.clock.now, name=name)
