"""The store on PostgreSQL: one connection writes, a few read, one keeps the lease; each has its thread."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure.kernel.values import Instant, RunId
from perdure.stores.commit_types import DeliveredMessage, Message
from perdure.stores.errors import BackupRefused, StoreError
from perdure.stores.postgres import run_removal
from perdure.stores.postgres.batch_writer import BatchWriter
from perdure.stores.postgres.catalog import Catalog
from perdure.stores.postgres.clock_offset import begin
from perdure.stores.postgres.commits import Commits
from perdure.stores.postgres.connection_threads import ConnectionThread, ReadPool
from perdure.stores.postgres.database import Database, PostgresSettings
from perdure.stores.postgres.messages import send, send_all, send_together
from perdure.stores.postgres.permits import allocate, lock
from perdure.stores.postgres.reads import Reads
from perdure.stores.postgres.server_lease import NOTIFY_OWNERS
from perdure.stores.postgres.session import ConnectionLost, Session
from perdure.stores.postgres.task_leases import TaskLeases
from perdure.stores.postgres.wire import INT, INTS, TEXT, Statement
from perdure.stores.protocol import PollIntervals

T = TypeVar("T")

# What was sent to a run that is about to start elsewhere waits for it; see `entrusting`.
_DISCARD = Statement(
    "DELETE FROM inbox WHERE partition = ANY({0}) AND position = ANY({1}) AND NOT EXISTS"
    " (SELECT 1 FROM inbox other WHERE other.run = inbox.run AND other.partition <> ALL({0}))",
    INTS,
    INTS,
)
_LIMIT = Statement(
    "INSERT INTO limits VALUES ({}, {}) ON CONFLICT (scope) DO UPDATE SET capacity = excluded.capacity", TEXT, INT
)
_NO_LIMIT = Statement("DELETE FROM limits WHERE scope = {}", TEXT)


class PostgresStore(Commits, Reads, TaskLeases, Catalog):
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
        self.poll_intervals = PollIntervals(share=min(30.0, 3 * self._database.settings.lease), sweep=5.0)
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
        self._lane = ConnectionThread(self._database, "writer", self._reconnected)
        if not must_exist:
            self._lane.session = session
        self._readers = ReadPool(self._database, session if must_exist else None)
        self._writer = BatchWriter()
        self._looked_at = 0.0

    # Care.

    async def reopen(self) -> None:
        async with self._turn:
            self._writer.forget()
            await self._lane.hand(self._lane.drop)
            await self._lane.run(lambda session, again: None)

    def limit_patience(self, patience: float = 0.0) -> None:
        self._database.patience = min(patience, self._database.patience)

    async def close(self) -> None:
        self.limit_patience()
        async with self._turn:
            if self._lease is not None:
                if not self._lease.is_over:
                    try:
                        await self._lane.hand(lambda: self._leave(self._lane.connected()))
                        self._lease.tell_everyone()
                    except (StoreError, ConnectionLost):
                        pass  # our lease ends by itself
                self._lease.end()
            self._lane.close()
            self._readers.close()

    def abandon(self) -> None:
        """Let go of everything without a word, as a dying process does: our lease runs out by itself."""
        self.limit_patience()
        if self._lease is not None:
            self._lease.end()
        self._lane.close()
        self._readers.close()

    async def backup(self, target: str) -> None:
        raise BackupRefused(
            f"{self._database.address}: a database server is copied by its own tools, not by `perdure backup`",
            hint=f"pg_dump --format=custom --schema=perdure --file=FILE {self._database.address}",
        )

    # Writing.

    async def send(self, message: Message) -> DeliveredMessage | None:
        sent = await self._write(lambda session, again: send(session, message, stamps=self._stamps))
        if sent is not None:
            await self._tell([sent])
        return sent

    async def send_together(self, messages: Sequence[Message]) -> list[DeliveredMessage]:
        sent = await self._write(lambda session, again: send_together(session, messages, stamps=self._stamps))
        if sent:
            await self._tell(sent)
        return sent

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

    async def prune(self, ended_before: Instant, limit: int) -> list[RunId]:
        gone = await self._write(lambda session, again: run_removal.prune(session, ended_before, limit, self._now()))
        self._writer.forget()
        return gone

    async def remove(self, runs: Sequence[RunId]) -> list[RunId]:
        gone = await self._write(lambda session, again: run_removal.remove(session, runs))
        self._writer.forget()
        return gone

    async def _write(self, work: Callable[[Session, bool], T]) -> T:
        async with self._turn:
            return await self._lane.run(work)

    # Reading: see `Reads`.

    async def _look(self, statement: Statement, *values: Any) -> list[tuple[Any, ...]]:
        return await self._readers.look(statement, *values)

    async def _read(self, statement: Statement, *values: Any) -> list[tuple[Any, ...]]:
        return await self._readers.run(lambda session, again: session.run(statement, *values))

    def _learn(self, numbers: dict[RunId, int]) -> None:
        self._writer.learn(numbers)

    # Hints.

    async def _tell(self, delivered: Sequence[DeliveredMessage]) -> None:
        partitions = {one.partition for one in delivered} - self._owned
        if partitions and self._lease is not None:
            self._lease.tell_owners(partitions)
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
        return int(time.monotonic()) if self._lease is None else self._database.news.catalog

    def listen(self, woken: Callable[[], None]) -> None:
        self._database.news.woken = woken
