"""The store on PostgreSQL: one connection writes, a few read, one keeps the lease; each has its thread."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from zlib import crc32

from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.access import Act
from perdure.stores.commit_types import (
    LOG_BYTES_PER_ATTEMPT,
    LOG_BYTES_PER_RUN,
    Committed,
    DeliveredMessage,
    Message,
    TaskLogRow,
    Transition,
)
from perdure.stores.errors import BackupRefused, StoreError
from perdure.stores.feed_changes import FOREVER
from perdure.stores.postgres import run_removal
from perdure.stores.postgres.access import StoredAccess, keep_act
from perdure.stores.postgres.batch_writer import BatchWriter
from perdure.stores.postgres.catalog import StoredCatalog
from perdure.stores.postgres.clock_offset import begin
from perdure.stores.postgres.commits import Commits
from perdure.stores.postgres.connection_threads import ConnectionThread, ReadPool
from perdure.stores.postgres.database import NOW, Database, PostgresSettings
from perdure.stores.postgres.messages import send, send_all, send_together
from perdure.stores.postgres.permits import allocate, lock
from perdure.stores.postgres.reads import StoreReads
from perdure.stores.postgres.server_lease import NOTIFY_OWNERS
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.task_leases import TaskLeases
from perdure.stores.postgres.wire import BLOBS, INT, INTS, TEXT, TEXTS, Statement
from perdure.stores.protocol import PollIntervals
from perdure.stores.run_removal import NO_VIEWS, LastView

T = TypeVar("T")

# What was sent to a run that is about to start elsewhere waits for it; see `membership.transfer_runs`.
_DISCARD = Statement(
    "DELETE FROM inbox WHERE partition = ANY({0}) AND position = ANY({1}) AND NOT EXISTS"
    " (SELECT 1 FROM inbox other WHERE other.run = inbox.run AND other.partition <> ALL({0}))",
    INTS,
    INTS,
)
_LIMIT = Statement(
    "INSERT INTO limits VALUES ({}, {}) ON CONFLICT (scope) DO UPDATE SET capacity = excluded.capacity", TEXT, INT
)
_HOSTS = Statement(
    "SELECT p.id, s.id, s.epoch FROM partitions p JOIN servers s ON s.id = p.owner WHERE p.is_shared"
    f" AND s.role = 'serve' AND s.reads >= {{}} AND s.until >= {NOW} ORDER BY p.id",
    INT,
)
HOST_TRIES = 10  # to create a run where the owner is replaced meanwhile
LEAVING = 5.0  # seconds that the database has to answer to whoever leaves
_NO_LIMIT = Statement("DELETE FROM limits WHERE scope = {}", TEXT)


# What tasks print and log: written without waiting for the disk, bounded for each attempt and each run.

_UNSYNCED = Statement("SELECT set_config('synchronous_commit', 'off', true)")
# Locked, so that a run that is being removed leaves no rows behind.
_LOG_NUMBERS = Statement("SELECT id, number FROM runs WHERE id = ANY({}) ORDER BY id FOR KEY SHARE", TEXTS)
_INSERT_LOGS = Statement(
    "INSERT INTO task_logs (run, task, attempt, delivery, path, first_line, lines, body)"
    " SELECT * FROM unnest({}, {}, {}, {}, {}, {}, {}, {})",
    INTS,
    INTS,
    INTS,
    INTS,
    TEXTS,
    INTS,
    INTS,
    BLOBS,
)
_TRIM = (
    "DELETE FROM task_logs WHERE {of_these} AND position <= (SELECT max(position) FROM"
    " (SELECT position, sum(length(body)) OVER (ORDER BY position DESC) AS total FROM task_logs WHERE {of_these})"
    " AS kept WHERE total > {limit})"
)
_TRIM_ATTEMPT = Statement(
    _TRIM.format(of_these="run = {0} AND task = {1} AND attempt = {2}", limit=LOG_BYTES_PER_ATTEMPT), INT, INT, INT
)
_TRIM_RUN = Statement(_TRIM.format(of_these="run = {0}", limit=LOG_BYTES_PER_RUN), INT)

_TASK_LOGS = Statement(
    "SELECT position, task, attempt, delivery, path, first_line, lines, body FROM task_logs"
    " WHERE run = (SELECT number FROM runs WHERE id = {}) AND position > {} ORDER BY position",
    TEXT,
    INT,
)


class PostgresStore(Commits, StoreReads, TaskLeases, StoredCatalog, StoredAccess):
    def __init__(
        self,
        url: str,
        now: Callable[[], Instant] | None = None,
        *,
        settings: PostgresSettings | None = None,
        must_exist: bool = False,
    ) -> None:
        """With `must_exist` nothing is created. `now` is another clock than the store's own, for tests."""
        super().__init__()
        self._database = Database(url, settings or PostgresSettings())
        # News are told, and every renewal of the lease looks for what was not; a look in between is the last net.
        self.poll_intervals = PollIntervals(0.0, share=min(30.0, 3 * self._database.settings.lease), sweep=5.0)
        self.clock = self._database.clock
        self._now = now or self.clock.now
        self._stamps = now is None  # by the clock that all have, not by what a sender has counted
        session = self._database.connect("writer" if not must_exist else "reader 1")
        try:
            if not must_exist:
                self._database.migrate(session)
            self._database.refuse_foreign(session)
            self._database.migrate(session)  # one that exists may be older than we can read
            begin(session, self.clock, self._database.address, checks=now is None)
        except BaseException as error:
            session.close()
            raise self._database.explain(error) if isinstance(error, Exception) else error from None
        self._write_thread = ConnectionThread(self._database, "writer", self._reconnected)
        if not must_exist:
            self._write_thread.session = session
        self._readers = ReadPool(self._database, session if must_exist else None)
        self._writer = BatchWriter()
        self._looked_at = 0.0

    # Care.

    async def reopen(self) -> None:
        async with self._turn:
            self._writer.forget()
            await self._write_thread.call(self._write_thread.drop)
            await self._write_thread.run(lambda session, again: None)

    def limit_timeout(self, timeout: float = 0.0) -> None:
        self._database.timeout = min(timeout, self._database.timeout)

    async def close(self) -> None:
        self.limit_timeout()
        async with self._turn:
            if self._lease is not None:
                try:
                    await self._write_thread.run(self._leave_in_time)  # also late: perhaps nobody is there to take over
                    self._lease.notify_everyone()
                except StoreError:
                    pass  # our lease ends by itself
                self._lease.end()
            self._write_thread.close()
            self._readers.close()

    def _leave_in_time(self, session: Session, again: bool) -> None:
        session.until = time.monotonic() + LEAVING
        try:
            self._leave(session)
        finally:
            session.until = None

    def abandon(self) -> None:
        """Close without leaving in order, as a process that dies does: the lease expires by itself."""
        self.limit_timeout()
        if self._lease is not None:
            self._lease.end()
        self._write_thread.close()
        self._readers.close()

    async def backup(self, target: str) -> None:
        raise BackupRefused(
            f"{self._database.address}: a database server is copied by its own tools, not by `perdure backup`",
            hint=f"pg_dump --format=custom --schema=perdure --file=FILE {self._database.address}",
        )

    # Writing.

    async def create_elsewhere(self, change: Transition) -> Committed | None:
        """Written under the fence of the server that owns it: that one lives when this is committed."""

        def work(session: Session, again: bool) -> Committed | None:
            for _ in range(HOST_TRIES):
                if not (hosts := session.run(_HOSTS, self.reads)):
                    break
                change.partition, server, epoch = hosts[crc32(change.run.encode()) % len(hosts)]
                answer = self._writer.write(session, [change], (server, epoch), self._now())
                if isinstance(answer, Committed):
                    return answer
            return None

        answer = await self._write(work)
        if answer is not None and answer.delivered:
            await self._tell(answer.delivered)
        return answer

    async def send(self, message: Message) -> DeliveredMessage | None:
        delivered = await self._write(lambda session, again: send(session, message, stamps=self._stamps))
        if delivered is not None:
            await self._tell([delivered])
        return delivered

    async def send_together(self, messages: Sequence[Message]) -> list[DeliveredMessage]:
        delivered = await self._write(lambda session, again: send_together(session, messages, stamps=self._stamps))
        if delivered:
            await self._tell(delivered)
        return delivered

    async def discard(self, positions: Sequence[int]) -> None:
        await self._write(lambda session, again: session.run(_DISCARD, sorted(self._owned), positions))

    async def set_limit(self, scope: str, limit: int | None) -> None:
        def work(session: Session, again: bool) -> list[DeliveredMessage]:
            with session.transaction():
                lock(session, [scope])
                if limit is None:
                    session.run(_NO_LIMIT, scope)
                else:
                    session.run(_LIMIT, scope, limit)
                return send_all(session, allocate(session, scope, self._now()))

        await self._tell(await self._write(work))

    async def write_task_logs(self, rows: Sequence[TaskLogRow]) -> None:
        await self._write(lambda session, again: _write_task_logs(session, rows))

    async def task_logs(self, run: RunId, after: int = 0) -> list[TaskLogRow]:
        rows = await self._read(_TASK_LOGS, run, after)
        return [TaskLogRow(run, *rest, position=position) for position, *rest in rows]  # type: ignore[misc]

    async def prune(self, ended_before: Instant, limit: int) -> list[RunId]:
        removed = await self._write(lambda session, again: run_removal.prune(session, ended_before, limit, self._now()))
        self._writer.forget()
        return removed

    async def prunable(self, ended_before: Instant, limit: int) -> list[RunId]:
        return [id for (id,) in await self._read(run_removal.PRUNABLE, ended_before, limit)]

    async def remove(
        self,
        runs: Sequence[RunId],
        views: Mapping[RunId, LastView] = NO_VIEWS,
        ended_before: Instant | None = None,
    ) -> list[RunId]:
        until = FOREVER if ended_before is None else ended_before
        removed = await self._write(lambda session, again: run_removal.remove(session, runs, views, until, self._now()))
        self._writer.forget()
        return removed

    async def _write(self, work: Callable[[Session, bool], T]) -> T:
        async with self._turn:
            return await self._write_thread.run(work)

    async def _write_aside(self, work: Callable[[Session, bool], T]) -> T:
        return await self._readers.run(work)

    # Reading: see `StoreReads`.

    async def _query(self, statement: Statement, *values: Any) -> list[tuple[Any, ...]]:
        return await self._readers.query(statement, *values)

    async def _read(self, statement: Statement, *values: Any) -> list[tuple[Any, ...]]:
        return await self._readers.run(lambda session, again: session.run(statement, *values))

    def _learn(self, numbers: dict[RunId, int]) -> None:
        self._writer.learn(numbers)

    # Hints.

    async def _tell(self, delivered: Sequence[DeliveredMessage]) -> None:
        partitions = {message.partition for message in delivered} - self._owned
        if partitions and self._lease is not None:
            self._lease.notify_owners(partitions)
        elif partitions:
            await self._write(lambda session, again: session.run(NOTIFY_OWNERS, sorted(partitions)))

    def changed(self) -> bool:
        """Hints hasten; looking from time to time is the truth."""
        now = time.monotonic()
        is_hinted = self._lease is not None and self._lease.has_messages.is_set()
        if not is_hinted and now - self._looked_at < self._database.settings.poll:
            return False
        if self._lease is not None:
            self._lease.has_messages.clear()
        self._looked_at = now
        return True

    def catalog_mark(self) -> int:
        return int(time.monotonic()) if self._lease is None else self._database.notifications.catalog

    def listen(self, woken: Callable[[], None]) -> None:
        self._database.notifications.woken = woken

    def acting(self, act: Act) -> "ActingStore":
        return ActingStore(self, act)


class ActingStore(PostgresStore):
    """The same store, with the same connections, for one act."""

    __slots__ = ("_act",)

    def __init__(self, store: PostgresStore, act: Act) -> None:
        self.__dict__ = store.__dict__
        self._act = act

    async def _write(self, work: Callable[[Session, bool], T]) -> T:
        return await super()._write(lambda session, again: self._acted(work, session, again))

    async def _write_aside(self, work: Callable[[Session, bool], T]) -> T:
        return await super()._write_aside(lambda session, again: self._acted(work, session, again))

    def _acted(self, work: Callable[[Session, bool], T], session: Session, again: bool) -> T:
        with session.transaction():
            result = work(session, again)
            keep_act(session, self._act)
            return result


def _write_task_logs(session: Session, rows: Sequence[TaskLogRow]) -> None:
    with session.transaction():
        session.run(_UNSYNCED)
        numbers: dict[RunId, int] = dict(session.run(_LOG_NUMBERS, sorted({row.run for row in rows})))
        kept = [(numbers[row.run], row) for row in rows if row.run in numbers]
        if not kept:
            return
        session.run(
            _INSERT_LOGS,
            [number for number, _ in kept],
            [row.task for _, row in kept],
            [row.attempt for _, row in kept],
            [row.delivery for _, row in kept],
            [row.path for _, row in kept],
            [row.first_line for _, row in kept],
            [row.lines for _, row in kept],
            [row.body for _, row in kept],
        )
        for attempt in dict.fromkeys((number, row.task, row.attempt) for number, row in kept):
            session.run(_TRIM_ATTEMPT, *attempt)
        for number in dict.fromkeys(number for number, _ in kept):
            session.run(_TRIM_RUN, number)
