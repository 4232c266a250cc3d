"""The store on one SQLite file: one writer, short reads on the event loop, syncs in a thread of their own."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from perdure.kernel import inputs
from perdure.kernel.outcomes import Status
from perdure.kernel.values import Instant, RunId
from perdure.stores.protocol import (
    CommitAnswer,
    Committed,
    Delivered,
    Fenced,
    Filter,
    Leased,
    Letter,
    Renewal,
    RunRow,
    Stored,
    Transition,
    Unknown,
)
from perdure.stores.sqlite.database import BUSY_MILLISECONDS, explain, open_for_reading, open_for_writing
from perdure.stores.sqlite.ownership import PartitionLock, is_locked, try_lock
from perdure.stores.sqlite.syncing import SyncThread
from perdure.stores.sqlite.writing import BatchWriter

T = TypeVar("T")

QUICK_SYNC = 0.002  # seconds; a slower disk is waited for in a thread
CHECKPOINT_PAGES = 4_000  # 16 MB of log before it is folded into the file: fewer syncs, little space

_ROW = (
    "SELECT id, partition, language, name, program, parent, labels, key, status, has_work, due, created_at, ended_at,"
    " stuck FROM runs "
)


class SqliteStore:
    def __init__(self, path: Path, now: Callable[[], Instant], vfs: str | None = None) -> None:
        self.path = path
        self._now = now
        self._vfs = vfs
        self._locks: dict[int, PartitionLock] = {}
        self._epochs: dict[int, int] = {}
        self._turn = asyncio.Lock()  # one write transaction at a time
        self._thread = SyncThread(f"perdure-sync {path.name}")
        self._open()

    def _open(self) -> None:
        self._connection = open_for_writing(self.path, self._vfs)
        self._reader = open_for_reading(self.path, self._vfs)
        self._writer = BatchWriter(self._connection)
        self._seen = -1
        self._sync_cost = 0.0  # seconds, a moving average
        self._wal_pages = 0
        self._connection.set_busy_timeout(0)
        self._connection.set_wal_hook(self._count_pages)

    async def reopen(self) -> None:
        async with self._turn:
            self._close_connections()
            self._open()

    async def close(self) -> None:
        async with self._turn:
            self._close_connections()
            for lock in self._locks.values():
                lock.release()
            self._locks.clear()
            self._thread.close()

    def abandon(self) -> None:
        """Let go of everything without a word, as a dying process does."""
        for lock in self._locks.values():
            lock.abandon()
        self._locks.clear()
        self._thread.close()
        self._close_connections()

    def _close_connections(self) -> None:
        self._reader.close()
        self._connection.close(True)

    # Ownership.

    async def claim(self) -> int:
        busy = {partition for (partition,) in self._read("SELECT DISTINCT partition FROM runs WHERE ended_at IS NULL")}
        busy |= {partition for (partition,) in self._read("SELECT DISTINCT partition FROM inbox")}
        partition = 1
        while partition in busy or not await self.adopt(partition):
            partition += 1
        return partition

    async def adopt(self, partition: int) -> bool:
        lock = try_lock(self.path, partition)
        if lock is None:
            return False

        def take_over() -> int:
            epoch: int = self._connection.execute(
                "INSERT INTO partitions VALUES (?, 1) ON CONFLICT DO UPDATE SET epoch = epoch + 1 RETURNING epoch",
                (partition,),
            ).get
            return epoch

        try:
            self._epochs[partition] = await self._transaction(take_over)
        except BaseException:
            lock.release()
            raise
        self._locks[partition] = lock
        return True

    async def move(self, families: Sequence[RunId], home: int) -> None:
        for partition in await self.orphaned():
            lock = try_lock(self.path, partition)
            if lock is None:
                continue

            def work(partition: int = partition) -> None:
                execute = self._connection.execute
                execute("UPDATE partitions SET epoch = epoch + 1 WHERE id = ?", (partition,))
                for family in families:
                    bindings = (home, partition, family, f"{_literal(family)}.*")
                    execute("UPDATE runs SET partition = ?1 WHERE partition = ?2 AND (id = ?3 OR id GLOB ?4)", bindings)
                    execute(
                        "UPDATE inbox SET partition = ?1 WHERE partition = ?2 AND (run = ?3 OR run GLOB ?4)", bindings
                    )

            try:
                await self._explained_transaction(work)
            finally:
                lock.release()

    def is_owned(self, partition: int) -> bool:
        return partition in self._locks or is_locked(self.path, partition)

    async def orphaned(self) -> list[int]:
        rows = self._read(
            "SELECT DISTINCT partition FROM runs WHERE ended_at IS NULL UNION SELECT DISTINCT partition FROM inbox"
        )
        return [partition for (partition,) in rows if not self.is_owned(partition)]

    # Writing.

    async def commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        try:
            return await self._transaction(lambda: self._write(batch))
        except (apsw.Error, LookupError) as error:
            return Unknown(explain(self.path, error))

    def commit_at_once(self, batch: Sequence[Transition]) -> CommitAnswer | None:
        if self._turn.locked() or self._sync_cost > QUICK_SYNC or self._wal_pages > CHECKPOINT_PAGES:
            return None
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return None
        try:
            answer = self._write(batch)
            self._commit()
        except (apsw.Error, LookupError) as error:
            self._roll_back()
            return Unknown(explain(self.path, error))
        return answer

    def _write(self, batch: Sequence[Transition]) -> Committed | Fenced:
        lost = [
            partition
            for partition in {change.partition for change in batch}
            if self._connection.execute("SELECT epoch FROM partitions WHERE id = ?", (partition,)).get
            != self._epochs.get(partition, -1)
        ]
        return Fenced(sorted(lost)) if lost else self._writer.write(batch, self._epochs, self._now())

    async def send(self, letter: Letter) -> int | None:
        def work() -> int | None:
            if self._connection.execute("SELECT 1 FROM runs WHERE id = ?", (letter.to,)).get is None:
                return None
            return self._writer.send(letter, 0).position

        return await self._explained_transaction(work)

    async def discard(self, positions: Sequence[int]) -> None:
        def work() -> None:
            self._connection.executemany(
                "DELETE FROM inbox WHERE position = ?", [(position,) for position in positions]
            )

        await self._explained_transaction(work)

    async def set_limit(self, scope: str, limit: int | None) -> None:
        def work() -> None:
            if limit is None:
                self._connection.execute("DELETE FROM limits WHERE scope = ?", (scope,))
            else:
                self._connection.execute(
                    "INSERT INTO limits VALUES (?1, ?2) ON CONFLICT DO UPDATE SET capacity = ?2", (scope, limit)
                )
            self._writer.allocate(scope, self._now())

        await self._explained_transaction(work)

    async def prune(self, ended_before: Instant, limit: int) -> list[RunId]:
        def work() -> list[RunId]:
            execute = self._connection.execute
            # A run goes when it has ended and nothing that descends from it is left: leaves first.
            gone = list(
                execute(
                    "SELECT number, id FROM runs r WHERE ended_at < ?1 AND NOT EXISTS"
                    " (SELECT 1 FROM runs c WHERE c.parent = r.id) AND (parent IS NULL OR NOT EXISTS"
                    " (SELECT 1 FROM runs p WHERE p.id = r.parent AND (p.ended_at IS NULL OR p.ended_at >= ?1)))"
                    " ORDER BY ended_at LIMIT ?2",
                    (ended_before, limit),
                )
            )
            for number, id in gone:
                for table in ("log", "snapshots", "large_values"):
                    execute(f"DELETE FROM {table} WHERE run = ?", (number,))
                for table in ("inbox", "permits", "tasks"):
                    execute(f"DELETE FROM {table} WHERE run = ?", (id,))
                execute("DELETE FROM runs WHERE number = ?", (number,))
            # A document may be on its way to a child that is not there yet.
            if gone and execute("SELECT count(*) FROM inbox").get == 0:
                execute("DELETE FROM programs WHERE digest NOT IN (SELECT program FROM runs)")
            return [id for _, id in gone]

        removed = await self._explained_transaction(work)
        self._writer.forget()
        return removed

    async def _explained_transaction(self, work: Callable[[], T]) -> T:
        try:
            return await self._transaction(work)
        except apsw.Error as error:
            raise explain(self.path, error) from error

    async def _transaction(self, work: Callable[[], T]) -> T:
        """Statements run here, on the event loop: they only touch memory. Waiting for the disk is the thread's part."""
        async with self._turn:
            await self._begin()
            try:
                result = work()
                await self._thread.run(self._commit)
            except BaseException:
                self._roll_back()
                raise
            return result

    async def _begin(self) -> None:
        if self._wal_pages > CHECKPOINT_PAGES:
            await self._thread.run(self._checkpoint)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            # Another process writes just now. Waiting for it is not the event loop's business either.
            await self._thread.run(self._begin_patiently)

    def _begin_patiently(self) -> None:
        self._connection.set_busy_timeout(BUSY_MILLISECONDS)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        finally:
            self._connection.set_busy_timeout(0)

    def _commit(self) -> None:
        began = time.perf_counter()
        self._connection.execute("COMMIT")
        self._sync_cost += (time.perf_counter() - began - self._sync_cost) / 8

    def _checkpoint(self) -> None:
        """Fold the log into the file. Between two commits, so that it can begin anew from its start."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._wal_pages = 0

    def _count_pages(self, connection: apsw.Connection, database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _roll_back(self) -> None:
        self._writer.forget()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    # Reading.

    def _read(self, query: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._reader.execute(query, bindings).fetchall()
        except apsw.Error as error:
            raise explain(self.path, error) from error

    def changed(self) -> bool:
        before, self._seen = self._seen, self._reader.pragma("data_version")
        return before != self._seen

    async def find(self, run: RunId) -> RunRow | None:
        rows = self._read(_ROW + "WHERE id = ?", (run,))
        return _run_row(rows[0]) if rows else None

    async def begins_with(self, prefix: str) -> list[RunId]:
        return [id for (id,) in self._read("SELECT id FROM runs WHERE id GLOB ? || '*' LIMIT 3", (_literal(prefix),))]

    async def load(self, runs: Sequence[RunId]) -> list[Stored]:
        found = []
        for run in runs:
            rows = self._read(_ROW + "WHERE id = ?", (run,))
            if not rows:
                continue
            snapshot = self._read(
                "SELECT seq, body FROM snapshots WHERE run = (SELECT number FROM runs WHERE id = ?)", (run,)
            )
            tail = self._read(
                "SELECT seq, body FROM log WHERE run = (SELECT number FROM runs WHERE id = ?) AND seq > ? ORDER BY seq",
                (run, snapshot[0][0] if snapshot else 0),
            )
            found.append(Stored(_run_row(rows[0]), snapshot[0] if snapshot else None, tail))
        return found

    async def history(self, run: RunId) -> list[tuple[int, bytes]]:
        return self._read(
            "SELECT seq, body FROM log WHERE run = (SELECT number FROM runs WHERE id = ?) ORDER BY seq", (run,)
        )

    async def program(self, digest: bytes) -> tuple[str, bytes] | None:
        rows = self._read("SELECT language, text FROM programs WHERE digest = ?", (digest,))
        return (rows[0][0], rows[0][1]) if rows else None

    async def values(self, run: RunId, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        found = {}
        for digest in digests:
            for (text,) in self._read(
                "SELECT text FROM large_values WHERE run = (SELECT number FROM runs WHERE id = ?) AND digest = ?",
                (run, digest),
            ):
                found[digest] = text
        return found

    async def search(self, filter: Filter) -> list[RunRow]:
        conditions, bindings = ["TRUE"], list[Any]()
        if filter.statuses:
            conditions.append(f"status IN ({', '.join('?' * len(filter.statuses))})")
            bindings.extend(status.value for status in filter.statuses)
        for column, operator, value in (
            ("name", "=", filter.name),
            ("created_at", ">=", filter.created_after),
            ("created_at", "<", filter.created_before),
            ("parent", "=", filter.parent),
        ):
            if value is not None:
                conditions.append(f"{column} {operator} ?")
                bindings.append(value)
        if filter.roots_only:
            conditions.append("parent IS NULL")
        for name, text in filter.labels.items():
            conditions.append("json_extract(labels, '$.' || json_quote(?)) = ?")
            bindings.extend((name, text))
        query = _ROW + f"WHERE {' AND '.join(conditions)} ORDER BY created_at DESC, number DESC"
        if filter.limit is not None:
            query += " LIMIT ?"
            bindings.append(filter.limit)
        return [_run_row(row) for row in self._read(query, tuple(bindings))]

    async def with_work(self, partitions: Sequence[int]) -> list[RunId]:
        return self._of_partitions(
            "SELECT id FROM runs WHERE has_work = 1 AND partition = ? ORDER BY number", partitions
        )

    def _of_partitions(self, query: str, partitions: Sequence[int]) -> list[RunId]:
        return [id for partition in partitions for (id,) in self._read(query, (partition,))]

    async def due(self, partitions: Sequence[int], until: Instant, limit: int) -> list[RunId]:
        rows = [
            row
            for partition in partitions
            for row in self._read(
                "SELECT due, id FROM runs WHERE partition = ? AND has_work = 0 AND due <= ? ORDER BY due LIMIT ?",
                (partition, until, limit),
            )
        ]
        return [id for _, id in sorted(rows)[:limit]]

    async def next_due(self, partitions: Sequence[int], after: Instant) -> Instant | None:
        found = [
            due
            for partition in partitions
            for (due,) in self._read(
                "SELECT due FROM runs WHERE partition = ? AND has_work = 0 AND due > ? ORDER BY due LIMIT 1",
                (partition, after),
            )
        ]
        return min(found, default=None)

    async def inbox(self, partitions: Sequence[int], limit: int) -> list[Delivered]:
        rows = [
            row
            for partition in partitions
            for row in self._read(
                "SELECT position, partition, run, at, body FROM inbox WHERE partition = ? ORDER BY position LIMIT ?",
                (partition, limit),
            )
        ]
        return [Delivered(position, partition, Letter(run, at, body)) for position, partition, run, at, body in rows]

    # Leased tasks.

    async def lease(
        self, pool: str, providers: Sequence[str] | None, worker: str, count: int, until: Instant
    ) -> list[Leased]:
        condition = "" if providers is None else f" AND provider IN ({', '.join('?' * len(providers))})"

        def work() -> list[Leased]:
            taken = list(
                self._connection.execute(
                    f"SELECT run, task, delivery, body FROM tasks WHERE state = 'ready' AND pool = ?{condition}"
                    " ORDER BY run, task LIMIT ?",
                    (pool, *(providers or ()), count),
                )
            )
            for run, task, _, _ in taken:
                self._connection.execute(
                    "UPDATE tasks SET state = 'leased', worker = ?, until = ? WHERE run = ? AND task = ?",
                    (worker, until, run, task),
                )
            return [Leased(*row) for row in taken]

        # Looking first costs an idle worker no write transaction.
        if not self._read("SELECT 1 FROM tasks WHERE state = 'ready' AND pool = ? LIMIT 1", (pool,)):
            return []
        return await self._explained_transaction(work)

    async def renew(self, worker: str, leases: Sequence[Leased], until: Instant) -> Renewal:
        def work() -> Renewal:
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
            return Renewal(frozenset(lost), frozenset(recalled))

        return await self._explained_transaction(work)

    async def report(self, worker: str, lease: Leased, letter: Letter) -> bool:
        def work() -> bool:
            self._connection.execute(
                "DELETE FROM tasks WHERE run = ? AND task = ? AND delivery = ? AND worker = ? AND state = 'leased'",
                (lease.run, lease.task, lease.delivery, worker),
            )
            if not self._connection.changes():
                return False
            self._writer.send(letter, 0)
            return True

        return await self._explained_transaction(work)

    async def expire(self, now: Instant) -> int:
        if not self._read("SELECT 1 FROM tasks WHERE state = 'leased' AND until <= ? LIMIT 1", (now,)):
            return 0

        def work() -> int:
            ended = list(
                self._connection.execute(
                    "UPDATE tasks SET state = 'lost' WHERE state = 'leased' AND until <= ?"
                    " RETURNING run, task, delivery, worker",
                    (now,),
                )
            )
            for run, task, delivery, worker in ended:
                lost = inputs.TaskLost(task, delivery, f"the lease of worker {worker} ended without a result")
                self._writer.send(Letter(run, now, inputs.encode(lost)), 0)
            return len(ended)

        return await self._explained_transaction(work)

    # Care.

    async def backup(self, target: str) -> None:
        def copy() -> None:
            source = open_for_reading(self.path, self._vfs)
            destination = apsw.Connection(target)
            try:
                with destination.backup("main", source, "main") as copying:
                    while not copying.done:
                        copying.step(1_000)
            finally:
                destination.close()
                source.close()

        try:
            await asyncio.to_thread(copy)
        except apsw.Error as error:
            raise explain(Path(target), error) from error


def _run_row(row: tuple[Any, ...]) -> RunRow:
    id, partition, language, name, program, parent, labels, key, status, has_work, due, created, ended, stuck = row
    return RunRow(
        id,
        partition,
        language,
        name,
        program,
        parent,
        json.loads(labels) if labels else {},
        key,
        Status(status),
        bool(has_work),
        due,
        created,
        ended,
        stuck,
    )


def _literal(prefix: str) -> str:
    """The text as GLOB sees it: its own special characters taken literally."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in prefix)
