"""Tasks for workers in other processes: leased, kept alive by heartbeats, turned in once. And what tasks print."""

import asyncio
import secrets
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import apsw

from perdure.kernel import inputs
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.tasks.crash_attribution import LossKind, StartPlace, loss_of_lease
from perdure.stores import clocks
from perdure.stores.commit_types import LARGE, LOG_BYTES_PER_ATTEMPT, LOG_BYTES_PER_RUN, Message, TaskLogRow
from perdure.stores.pool_tasks import (
    LEASE_COLUMNS,
    LeaseRenewal,
    LeaseRequest,
    PoolBacklog,
    TaskLease,
    WorkerRow,
    lease_row,
)
from perdure.stores.sqlite.store_part import StorePart
from perdure.stores.sync_thread import SyncThread

_FIND = f"SELECT {LEASE_COLUMNS} FROM tasks WHERE lease = ? AND state IN ('leased', 'answered')"
_LASTS = "(state = 'leased' OR (state = 'answered' AND answer IS NULL))"  # of an ended run: until its worker has heard
_RENEW = f"UPDATE tasks SET until = iif(recalled, until, ?) WHERE lease = ? AND {_LASTS} RETURNING recalled"
_LOST = "SELECT run, task, lost_delivery FROM tasks WHERE lost_lease = ?"
_LEASED_UNDER = (
    f"SELECT {LEASE_COLUMNS}, request FROM tasks WHERE request BETWEEN ? AND ? AND state = 'leased'"
    " ORDER BY turn, run, task"
)
_GRANT = (
    "UPDATE tasks SET state = 'leased', lease = ?, worker = ?, until = ?, request = ?, holder = ?, place = 0,"
    f" touched = 0 WHERE run = ? AND task = ? RETURNING {LEASE_COLUMNS}"
)


_OFFERED_PROVIDERS = """
WITH RECURSIVE offered (name) AS (
    SELECT min(provider) FROM tasks WHERE state = 'ready' AND pool = ?1
    UNION ALL
    SELECT (SELECT min(provider) FROM tasks WHERE state = 'ready' AND pool = ?1 AND provider > name)
    FROM offered WHERE name IS NOT NULL
)
SELECT name FROM offered WHERE name IS NOT NULL
"""  # one step in the index for each


class TaskLeases(StorePart):
    """The leasing verbs of a store that can read and run a transaction."""

    @abstractmethod
    def loss_on(self, machine: str) -> LossKind: ...

    async def lease(self, request: LeaseRequest) -> list[TaskLease]:
        filters, values = "", list[Any]()
        if request.namespaces is not None:
            filters += f" AND namespace IN ({', '.join('?' * len(request.namespaces))})"
            values += request.namespaces
        if request.opens is not None:
            filters += f" AND opener IN ({', '.join('?' * (1 + len(request.opens)))})"
            values += ["", *request.opens]
        query = f"FROM tasks WHERE state = 'ready' AND pool = ?{filters}"
        looks: list[tuple[str, list[Any]]] = []  # one for each provider: the index has its tasks in their order
        for pool in request.pools:
            if request.providers is None:
                looks.append((query, [pool, *values]))
            else:
                own = frozenset(request.providers)
                some = [name for (name,) in self._read(_OFFERED_PROVIDERS, (pool,)) if name in own]
                looks += [(query + " AND provider = ?", [pool, *values, name]) for name in some]

        def work() -> list[TaskLease]:
            execute = self._connection.execute
            before: list[Any] = execute(_LEASED_UNDER, request.names).fetchall() if request.key else []
            if before:
                return request.given_before(before)
            ready: list[Any] = []
            for look, bindings in looks:
                order = "ORDER BY turn, offered_at, run, task LIMIT ?"
                ready += execute(f"SELECT run, task, turn, offered_at {look} {order}", (*bindings, request.count))
            ready.sort(key=lambda row: (row[2], row[3], row[0], row[1]))
            holder = (request.worker, request.until, request.name if request.key else None, request.holder)
            granted = []
            for run, task, _, _ in ready[: request.count]:
                (row,) = execute(_GRANT, (secrets.token_hex(16), *holder, run, task))
                granted.append(lease_row(row))
            return granted

        # Looking first costs an idle worker no write transaction.
        is_ready = any(self._read(f"SELECT 1 {look} LIMIT 1", tuple(bindings)) for look, bindings in looks)
        if not is_ready and not (request.key and self._read(_LEASED_UNDER, request.names)):
            return []
        return await self._explained_transaction(work)

    async def find_leases(self, leases: Sequence[str]) -> dict[str, TaskLease]:
        leases_by_id = {}
        for lease in leases:
            for row in self._read(_FIND, (lease,)):
                leases_by_id[lease] = lease_row(row)
        return leases_by_id

    async def is_offered(self, run: RunId, task: int) -> bool:
        return bool(self._read("SELECT 1 FROM tasks WHERE run = ? AND task = ? AND state = 'ready'", (run, task)))

    async def renew(self, leases: Sequence[str], until: Instant) -> LeaseRenewal:
        def work() -> LeaseRenewal:
            lost, recalled = set(), set()
            for lease in leases:
                row = self._connection.execute(_RENEW, (until, lease)).get
                if row is None:
                    lost.add(lease)
                elif row:
                    recalled.add(lease)
            return LeaseRenewal(frozenset(lost), frozenset(recalled))

        return await self._explained_transaction(work)

    async def _change_one(self, query: str, values: Sequence[Any], message: Message | None = None) -> bool:
        def work() -> bool:
            self._connection.execute(query, tuple(values))
            if not self._connection.changes():
                return False
            if message is not None:
                self._writer.send(message, 0)
            return True

        return await self._explained_transaction(work)

    async def begin(self, lease: str, place: StartPlace, message: Message | None = None) -> bool:
        query = "UPDATE tasks SET place = ?, machine = ? WHERE lease = ? AND state = 'leased'"
        return await self._change_one(query, (place, clocks.machine(), lease), message)

    async def clear_lost(self, lease: str, now: Instant) -> None:
        def work() -> None:
            for run, task, delivery in self._read(_LOST, (lease,)):
                self._writer.send(Message(run, now, inputs.encode(inputs.Clear(task, delivery, outlived=False))), 0)

        await self._explained_transaction(work)

    async def touch(self, lease: str) -> bool:
        return await self._change_one("UPDATE tasks SET touched = 1 WHERE lease = ? AND state = 'leased'", (lease,))

    async def report(self, lease: str, message: Message | None, answer: bytes = b"", kept_until: Instant = 0) -> bool:
        return await self._change_one(
            f"UPDATE tasks SET state = 'answered', answer = ?, until = ?, body = x'' WHERE lease = ? AND {_LASTS}",
            (answer, kept_until, lease),
            message,
        )

    async def report_outcome(self, lease: str, number: int, name: bytes, message: Message) -> bool:
        query = "UPDATE tasks SET reported = ?, touched = 1 WHERE lease = ? AND number = ? AND state = 'leased'"
        return await self._change_one(query, (name, lease, number), message)

    async def release(self, lease: str) -> bool:
        def work() -> bool:
            query = (
                "UPDATE tasks SET state = 'ready', lease = NULL, request = NULL, worker = NULL, until = NULL,"
                " holder = '', releases = releases + 1 WHERE lease = ? AND state = 'leased' AND touched = 0"
                " RETURNING run, task, delivery, recalled"
            )
            rows: list[Any] = self._connection.execute(query, (lease,)).fetchall()
            for run, task, delivery, recalled in rows:
                if recalled:
                    execute = self._connection.execute
                    execute("UPDATE tasks SET state = 'lost' WHERE run = ? AND task = ?", (run, task))
                    lost = inputs.TaskLost(task, delivery, "recalled before it was begun", LossKind.STOPPED)
                    self._writer.send(Message(run, self._now(), inputs.encode(lost)), 0)
            return bool(rows)

        return await self._explained_transaction(work)

    async def end_leases(self, holder: str, now: Instant) -> None:
        query = "UPDATE tasks SET until = ? WHERE state = 'leased' AND holder = ?"
        await self._explained_transaction(lambda: self._connection.execute(query, (now, holder)))

    async def expire(self, now: Instant) -> int:
        if not self._read("SELECT 1 FROM tasks WHERE state IN ('leased', 'answered') AND until <= ? LIMIT 1", (now,)):
            return 0

        def work() -> int:
            expired = list(
                self._connection.execute(
                    "UPDATE tasks SET state = 'lost', lost_lease = lease, lost_delivery = delivery, lease = NULL"
                    " WHERE state = 'leased' AND until <= ?"
                    " RETURNING run, task, delivery, worker, place, machine",
                    (now,),
                )
            )
            for run, task, delivery, worker, place, machine in expired:
                reason = f"the lease of worker {worker} ended without a result"
                lost = inputs.TaskLost(task, delivery, reason, loss_of_lease(place, self.loss_on(machine)))
                self._writer.send(Message(run, now, inputs.encode(lost)), 0)
            self._connection.execute(
                "DELETE FROM tasks WHERE (run, task) IN"
                " (SELECT run, task FROM tasks WHERE state = 'answered' AND until <= ? LIMIT 10000)",
                (now,),
            )
            return len(expired)

        return await self._explained_transaction(work)

    async def put_value(self, run: RunId, digest: bytes, text: bytes) -> None:
        query = (
            "INSERT INTO large_values (run, digest, text) SELECT number, ?, ? FROM runs WHERE id = ?"
            " ON CONFLICT DO NOTHING"
        )
        work = partial(self._connection.execute, query, (digest, text, run))
        await self._explained_transaction(work, in_thread=len(text) > LARGE)

    async def note_workers(self, rows: Sequence[WorkerRow], forgotten: Instant) -> None:
        values = [(r.pool, r.name, r.holder, r.providers, r.opens, r.slots, r.seen_at, r.left_at) for r in rows]

        def work() -> None:
            query = "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            self._connection.executemany(query, values)
            self._connection.execute("DELETE FROM workers WHERE seen_at < ?", (forgotten,))

        await self._explained_transaction(work)

    async def workers(self) -> list[WorkerRow]:
        columns = "pool, name, holder, providers, opens, slots, seen_at, left_at"
        return [WorkerRow(*row) for row in self._read(f"SELECT {columns} FROM workers ORDER BY pool, name")]

    async def backlogs(self, pools: Sequence[str] | None = None) -> list[PoolBacklog]:
        condition = "" if pools is None else f" AND pool IN ({', '.join('?' * len(pools))})"
        query = (
            "SELECT pool, provider, opener, namespace, sum(state = 'ready'), sum(state = 'leased'),"
            " min(iif(state = 'ready', offered_at, NULL)), max(releases) FROM tasks"
            f" WHERE state IN ('ready', 'leased'){condition} GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
        )
        return [PoolBacklog(*row) for row in self._read(query, tuple(pools or ()))]


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


class StoredTaskLogs(StorePart):
    """The verbs for task logs of a store that can run a transaction."""

    _turn: asyncio.Lock
    _thread: SyncThread
    _is_full: bool

    @abstractmethod
    async def _begin(self) -> None: ...

    @abstractmethod
    def _roll_back(self) -> None: ...

    @abstractmethod
    def _explained(self, error: apsw.Error) -> Exception: ...

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
