"""Tasks for workers in other processes: leased, kept alive by heartbeats, turned in once. And what tasks print."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from perdure.kernel import inputs
from perdure.kernel.crash_attribution import LossKind, StartPlace, loss_of_lease
from perdure.kernel.values import Instant, RunId
from perdure.stores import clocks
from perdure.stores.commit_types import LOG_BYTES_PER_ATTEMPT, LOG_BYTES_PER_RUN, Message, TaskLogRow
from perdure.stores.protocol import LeasedTask, LeaseRenewal
from perdure.stores.sqlite.batch_writer import BatchWriter
from perdure.stores.sync_thread import SyncThread

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
            rows = list(
                self._connection.execute(
                    f"SELECT run, task, delivery, body FROM tasks WHERE state = 'ready' AND pool = ?{condition}"
                    " ORDER BY run, task LIMIT ?",
                    (pool, *(providers or ()), count),
                )
            )
            for run, task, _, _ in rows:
                self._connection.execute(
                    "UPDATE tasks SET state = 'leased', worker = ?, until = ?, place = 0 WHERE run = ? AND task = ?",
                    (worker, until, run, task),
                )
            return [LeasedTask(*row) for row in rows]

        # Looking first costs an idle worker no write transaction.
        if not self._read("SELECT 1 FROM tasks WHERE state = 'ready' AND pool = ? LIMIT 1", (pool,)):
            return []
        return await self._explained_transaction(work)

    async def is_offered(self, run: RunId, task: int) -> bool:
        return bool(self._read("SELECT 1 FROM tasks WHERE run = ? AND task = ? AND state = 'ready'", (run, task)))

    async def renew(self, worker: str, leases: Sequence[LeasedTask], until: Instant) -> LeaseRenewal:
        def work() -> LeaseRenewal:
            lost, recalled = set(), set()
            for lease in leases:
                row = self._connection.execute(
                    "UPDATE tasks SET until = ? WHERE run = ? AND task = ? AND delivery = ? AND worker = ?"
                    " AND state = 'leased' RETURNING recalled",
                    (until, lease.run, lease.task, lease.delivery, worker),
                ).get
                if row is None:
                    lost.add((lease.run, lease.task))
                elif row:
                    recalled.add((lease.run, lease.task))
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
            expired = list(
                self._connection.execute(
                    "UPDATE tasks SET state = 'lost' WHERE state = 'leased' AND until <= ?"
                    " RETURNING run, task, delivery, worker, place, machine",
                    (now,),
                )
            )
            for run, task, delivery, worker, place, machine in expired:
                reason = f"the lease of worker {worker} ended without a result"
                lost = inputs.TaskLost(task, delivery, reason, loss_of_lease(place, self.loss_on(machine)))
                self._writer.send(Message(run, now, inputs.encode(lost)), 0)
            return len(expired)

        return await self._explained_transaction(work)


# What tasks print and log: written without waiting for the disk, bounded for each attempt and each run.

_INSERT_LOG = (
    "INSERT INTO task_logs (run, task, attempt, delivery, path, first_line, lines, body)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_TRIM = (
    "DELETE FROM task_logs WHERE {of_these} AND position <= (SELECT max(position) FROM"
    " (SELECT position, sum(length(body)) OVER (ORDER BY position DESC) AS total FROM task_logs WHERE {of_these})"
    " WHERE total > {limit})"
)
_TRIM_ATTEMPT = _TRIM.format(of_these="run = ?1 AND task = ?2 AND attempt = ?3", limit=LOG_BYTES_PER_ATTEMPT)
_TRIM_RUN = _TRIM.format(of_these="run = ?1", limit=LOG_BYTES_PER_RUN)
_SELECT_LOGS = (
    "SELECT position, task, attempt, delivery, path, first_line, lines, body FROM task_logs"
    " WHERE run = (SELECT number FROM runs WHERE id = ?) AND position > ? ORDER BY position"
)


class StoredTaskLogs(ABC):
    """The verbs for task logs of a store that can run a transaction."""

    _turn: asyncio.Lock
    _thread: SyncThread
    _is_full: bool

    @property
    @abstractmethod
    def _connection(self) -> apsw.Connection: ...

    @abstractmethod
    async def _begin(self) -> None: ...

    @abstractmethod
    def _roll_back(self) -> None: ...

    @abstractmethod
    def _explained(self, error: apsw.Error) -> Exception: ...

    @abstractmethod
    def _read(self, query: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]: ...

    async def write_task_logs(self, rows: Sequence[TaskLogRow]) -> None:
        async with self._turn:
            if self._is_full:
                return  # what is left of the disk is for runs
            connection = self._connection
            connection.pragma("synchronous", "normal")  # the next commit of a run syncs these pages too
            try:
                await self._begin()
                await self._thread.run(lambda: self._insert(rows))
            except apsw.Error as error:
                self._roll_back()
                raise self._explained(error) from error
            except BaseException:
                self._roll_back()
                raise
            finally:
                connection.pragma("synchronous", "full")

    def _insert(self, rows: Sequence[TaskLogRow]) -> None:
        execute = self._connection.execute
        numbers: dict[RunId, int | None] = {}
        for row in rows:
            if row.run not in numbers:
                numbers[row.run] = execute("SELECT number FROM runs WHERE id = ?", (row.run,)).get
            number = numbers[row.run]
            if number is not None:
                about = (row.task, row.attempt, row.delivery, row.path, row.first_line, row.lines, row.body)
                execute(_INSERT_LOG, (number, *about))
        for run, task, attempt in dict.fromkeys((numbers[row.run], row.task, row.attempt) for row in rows):
            execute(_TRIM_ATTEMPT, (run, task, attempt))
        for run in dict.fromkeys(numbers.values()):
            execute(_TRIM_RUN, (run,))
        execute("COMMIT")

    async def task_logs(self, run: RunId, after: int = 0) -> list[TaskLogRow]:
        return [
            TaskLogRow(run, task, attempt, delivery, path, first_line, lines, body, position)
            for position, task, attempt, delivery, path, first_line, lines, body in self._read(
                _SELECT_LOGS, (run, after)
            )
        ]
