"""Tasks for workers in other processes: leased, kept alive by heartbeats, turned in once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from perdure.kernel import inputs
from perdure.kernel.crash_attribution import LossKind, StartPlace, loss_of_lease
from perdure.kernel.values import Instant, RunId
from perdure.stores import clocks
from perdure.stores.commit_types import Message
from perdure.stores.protocol import LeasedTask, LeaseRenewal
from perdure.stores.sqlite.batch_writer import BatchWriter

T = TypeVar("T")


class TaskLeases(ABC):
    """The leasing verbs of a store that can read and run a transaction."""

    @property
    @abstractmethod
    def _connection(self) -> apsw.Connection: ...

    @property
    @abstractmethod
    def _writer(self) -> BatchWriter: ...

    @abstractmethod
    def loss_on(self, machine: str) -> LossKind: ...

    @abstractmethod
    def _read(self, query: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    async def _explained_transaction(self, work: Callable[[], T]) -> T: ...

    async def lease(
        self, pool: str, providers: Sequence[str] | None, worker: str, count: int, until: Instant
    ) -> list[LeasedTask]:
        condition = "" if providers is None else f" AND provider IN ({', '.join('?' * len(providers))})"

        def work() -> list[LeasedTask]:
            taken = list(
                self._connection.execute(
                    f"SELECT run, task, delivery, body FROM tasks WHERE state = 'ready' AND pool = ?{condition}"
                    " ORDER BY run, task LIMIT ?",
                    (pool, *(providers or ()), count),
                )
            )
            for run, task, _, _ in taken:
                self._connection.execute(
                    "UPDATE tasks SET state = 'leased', worker = ?, until = ?, place = 0 WHERE run = ? AND task = ?",
                    (worker, until, run, task),
                )
            return [LeasedTask(*row) for row in taken]

        # Looking first costs an idle worker no write transaction.
        if not self._read("SELECT 1 FROM tasks WHERE state = 'ready' AND pool = ? LIMIT 1", (pool,)):
            return []
        return await self._explained_transaction(work)

    async def is_offered(self, run: RunId, task: int) -> bool:
        return bool(self._read("SELECT 1 FROM tasks WHERE run = ? AND task = ? AND state = 'ready'", (run, task)))

    async def renew(self, worker: str, leases: Sequence[LeasedTask], until: Instant) -> LeaseRenewal:
        def work() -> LeaseRenewal:
            lost, recalled = set(), set()
            for held in leases:
                row = self._connection.execute(
                    "UPDATE tasks SET until = ? WHERE run = ? AND task = ? AND delivery = ? AND worker = ?"
                    " AND state = 'leased' RETURNING recalled",
                    (until, held.run, held.task, held.delivery, worker),
                ).get
                if row is None:
                    lost.add((held.run, held.task))
                elif row:
                    recalled.add((held.run, held.task))
            return LeaseRenewal(frozenset(lost), frozenset(recalled))

        return await self._explained_transaction(work)

    async def begin(self, worker: str, lease: LeasedTask, place: StartPlace, message: Message | None = None) -> bool:
        def work() -> bool:
            self._connection.execute(
                "UPDATE tasks SET place = ?, machine = ? WHERE run = ? AND task = ? AND delivery = ? AND worker = ?"
                " AND state = 'leased'",
                (place, clocks.machine(), lease.run, lease.task, lease.delivery, worker),
            )
            if not self._connection.changes():
                return False
            if message is not None:
                self._writer.send(message, 0)
            return True

        return await self._explained_transaction(work)

    async def report(self, worker: str, lease: LeasedTask, message: Message) -> bool:
        def work() -> bool:
            self._connection.execute(
                "DELETE FROM tasks WHERE run = ? AND task = ? AND delivery = ? AND worker = ? AND state = 'leased'",
                (lease.run, lease.task, lease.delivery, worker),
            )
            if not self._connection.changes():
                return False
            self._writer.send(message, 0)
            return True

        return await self._explained_transaction(work)

    async def expire(self, now: Instant) -> int:
        if not self._read("SELECT 1 FROM tasks WHERE state = 'leased' AND until <= ? LIMIT 1", (now,)):
            return 0

        def work() -> int:
            ended = list(
                self._connection.execute(
                    "UPDATE tasks SET state = 'lost' WHERE state = 'leased' AND until <= ?"
                    " RETURNING run, task, delivery, worker, place, machine",
                    (now,),
                )
            )
            for run, task, delivery, worker, place, machine in ended:
                reason = f"the lease of worker {worker} ended without a result"
                lost = inputs.TaskLost(task, delivery, reason, loss_of_lease(place, self.loss_on(machine)))
                self._writer.send(Message(run, now, inputs.encode(lost)), 0)
            return len(ended)

        return await self._explained_transaction(work)
