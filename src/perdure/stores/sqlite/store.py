"""The store on one SQLite file: one writer, short reads on the event loop, syncs in a thread of their own."""

import asyncio
import ctypes
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import apsw

from perdure.kernel.ids import ServerGroup
from perdure.kernel.json_values.values import Instant
from perdure.stores.access import Act
from perdure.stores.clocks import BootClock
from perdure.stores.commit_types import (
    CommitAnswer,
    Committed,
    CommitUnknown,
    Fenced,
    Transition,
    is_large,
)
from perdure.stores.errors import StoreMoved
from perdure.stores.protocol import PollIntervals
from perdure.stores.sqlite.access import StoredAccess, keep_act
from perdure.stores.sqlite.batch_writer import BatchWriter
from perdure.stores.sqlite.catalog import StoredCatalog
from perdure.stores.sqlite.database import (
    BUSY_MILLISECONDS,
    WalPreallocation,
    explain,
    explained,
    needs_migration,
    open_for_reading,
    open_for_writing,
    set_count,
)
from perdure.stores.sqlite.fence import fenced_partitions
from perdure.stores.sqlite.file_identity import FileIdentity
from perdure.stores.sqlite.ownership import PARTITIONS, PartitionOwnership
from perdure.stores.sqlite.partition_locks import LockWatch
from perdure.stores.sqlite.reads import StoreReads
from perdure.stores.sqlite.run_removal import StoredRunRemoval
from perdure.stores.sqlite.task_leases import StoredTaskLogs, TaskLeases
from perdure.stores.sqlite.write_transactions import WriteTransactions
from perdure.stores.sync_thread import SyncThread

if TYPE_CHECKING:
    from perdure.stores.sqlite.write_turns import WriteTurns

_log = logging.getLogger("perdure.store")

T = TypeVar("T")

QUICK_SYNC = 0.002  # seconds; a slower disk is waited for in a thread
CLOSING_TIMEOUT = 2.0  # seconds; others who write take turns, a stranger is not waited for
HEARS = PollIntervals(1.0, share=1.0, sweep=1.0)  # a program of an earlier version touches no lock
_YES = ctypes.c_int(1)


class SqliteStore(
    WriteTransactions,
    PartitionOwnership,
    StoredRunRemoval,
    StoredTaskLogs,
    StoreReads,
    TaskLeases,
    StoredCatalog,
    StoredAccess,
):
    poll_intervals = PollIntervals(0.0, share=1.0, sweep=1.0)  # a look costs microseconds, and nobody tells

    def __init__(
        self,
        path: Path,
        now: Callable[[], Instant] | None = None,
        vfs: str | None = None,
        *,
        must_exist: bool = False,
        timeout: float | None = None,
        group: ServerGroup | None = None,
    ) -> None:
        """With `must_exist` nothing is created, and nothing is written before something has to be.

        `now` is another clock than the store's own, for tests. A program that keeps the file locked is waited for as
        many seconds as `timeout` says. Processes of one `group` serve the file together.
        """
        super().__init__(group)
        self.path = path
        self.clock = BootClock()
        self._must_count = now is None  # until the count is the one that the store has
        self._now = now or self.clock.now
        self._vfs = vfs
        self._timeout = BUSY_MILLISECONDS / 1_000 if timeout is None else timeout
        self._file_identity: FileIdentity | None = None
        self._is_lost = False  # the file was taken away under us
        self._is_full = False  # there is no room but to remove something
        self._turn = asyncio.Lock()  # one write transaction at a time
        self._thread = SyncThread(f"perdure-sync {path.name}")
        self._writing: tuple[apsw.Connection, BatchWriter] | None = None
        self._turns: WriteTurns | None = None
        try:
            self._open(must_exist)
        except BaseException:
            self._thread.close()
            raise

    def _open(self, must_exist: bool) -> None:
        if not must_exist:
            self._open_for_writing()
        self._reader = open_for_reading(self.path, self._vfs)
        if needs_migration(self._reader):
            self._open_for_writing()
        if self._writing is None:
            self._set_count(self._reader, writes=False)
        self._seen = -1
        self._read_at = None  # marks of two connections have nothing to do with each other

    def _set_count(self, connection: apsw.Connection, *, writes: bool) -> None:
        """Once: whoever counts goes on, whatever the wall shows when the file is opened again."""
        if self._must_count:
            with explained(self.path):
                set_count(self.clock, connection, self.path, writes=writes)
            self._must_count = not writes

    def _open_for_writing(self) -> tuple[apsw.Connection, BatchWriter]:
        if self._file_identity is not None and not self.path.exists():
            raise StoreMoved(f"{self.path} was deleted while it was in use")  # a new one would be another store
        connection = open_for_writing(self.path, self._vfs)
        try:
            self._set_count(connection, writes=True)
            self._file_identity = self._identify_file(connection)
        except BaseException:
            connection.close(True)
            raise
        connection.set_busy_timeout(0)
        connection.set_wal_hook(self._count_pages)
        self._sync_cost = 0.0  # seconds, a moving average
        self._wal_pages = 0
        self._wal_preallocation = WalPreallocation(self.path, self._vfs)
        self._writing = (connection, BatchWriter(connection))
        if self._turns is None and (self._group is not None or self.path.with_name(f"{self.path.name}-gate").exists()):
            from perdure.stores.sqlite.write_turns import WriteTurns  # most processes write alone

            self._turns = WriteTurns.of(self.path, creates=self._group is not None)
        if self._wal_preallocation.is_small:
            with suppress(apsw.Error):  # whoever writes is told
                self._checkpoint()
        return self._writing

    def _identify_file(self, connection: apsw.Connection) -> FileIdentity:
        with explained(self.path):
            identity = FileIdentity(connection, self.path, self._vfs)
        if self._file_identity is not None and identity.identity != self._file_identity.identity:
            raise StoreMoved(f"{self.path} was replaced by another file while it was in use")
        return identity

    @property
    def _connection(self) -> apsw.Connection:
        return (self._writing or self._open_for_writing())[0]

    @property
    def _writer(self) -> BatchWriter:
        return (self._writing or self._open_for_writing())[1]

    async def reopen(self) -> None:
        async with self._turn:
            self._look_at_file()
            self._close_connections()
            self._open(must_exist=True)
            if self._file_identity is not None and self._writing is None:
                self._open_for_writing()

    def limit_timeout(self, timeout: float = 0.0) -> None:
        self._timeout = max(timeout, CLOSING_TIMEOUT)

    async def close(self) -> None:
        async with self._turn:
            self._strike_out(list(self._locks))
            self._close_connections()
            self._release(list(self._locks))
            self._thread.close()
            self._stop_hearing()

    def abandon(self) -> None:
        """Close without leaving in order, as a process that dies does."""
        for lock in self._locks.values():
            lock.abandon()
        self._locks.clear()
        self._thread.close()
        self._close_connections()
        self._stop_hearing()

    def _stop_hearing(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.close()

    def _close_connections(self) -> None:
        connections = [self._reader] if self._writing is None else [self._reader, self._writing[0]]
        for connection in connections:
            if self._is_lost:  # what is in the log belongs to another file than the one that is there
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            if self._is_full:  # the log keeps its room, for whoever comes to remove something
                connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(_YES))
            connection.close(True)
        self._writing = None

    # Writing.

    async def commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        try:
            return await self._transaction(lambda: self._write(batch), in_thread=is_large(batch))
        except (apsw.Error, LookupError) as error:
            return CommitUnknown(explain(self.path, error))

    def commit_at_once(self, batch: Sequence[Transition]) -> CommitAnswer | None:
        if (
            self._turn.locked()
            or is_large(batch)
            or self._is_full
            or self._sync_cost > QUICK_SYNC
            or self._wal_pages > self._pages_at_hand
        ):
            return None
        turns = self._turns
        if turns is not None and not turns.take_at_once():
            return None
        try:
            return self._commit_now(batch)
        finally:
            if turns is not None:
                turns.give_back()

    def _commit_now(self, batch: Sequence[Transition]) -> CommitAnswer | None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return None
        try:
            answer = self._write(batch)
            self._commit()
        except (apsw.Error, LookupError) as error:
            self._roll_back()
            return CommitUnknown(explain(self.path, error))
        return answer

    def _write(self, batch: Sequence[Transition]) -> Committed | Fenced:
        lost = fenced_partitions(self._connection, {change.partition for change in batch}, self._epochs)
        return Fenced(sorted(lost)) if lost else self._writer.write(batch, self._epochs, self._now())

    async def create_elsewhere(self, change: Transition) -> Committed | None:
        def work() -> Committed | None:
            served = self._served_partitions(self._connection.execute(PARTITIONS))
            if not served:
                return None
            change.partition = served[crc32(change.run.encode()) % len(served)][0]
            return self._writer.write([change], (), self._now())

        return await self._explained_transaction(work, in_thread=is_large([change]))

    async def _explained_transaction(self, work: Callable[[], T], **how: bool) -> T:
        try:
            return await self._transaction(work, **how)
        except apsw.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: apsw.Error) -> Exception:
        return explain(self.path, error)

    # Reading: see `StoreReads`.

    def _read(self, query: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._reader.execute(query, bindings).fetchall()
        except apsw.Error as error:
            raise explain(self.path, error) from error

    def changed(self) -> bool:
        self._look_at_file()
        self._look_at_locks()
        before, self._seen = self._seen, self._reader.pragma("data_version")
        return before != self._seen

    def catalog_mark(self) -> int:
        mark: int = self._reader.pragma("data_version")
        return mark

    def listen(self, woken: Callable[[], None]) -> None:
        """Whoever sends a message touches the lock of its receiver."""
        self._watch = LockWatch.begin(woken)
        if self._watch is not None and all(map(self._watch.add, self._locks.values())):
            self.poll_intervals = HEARS

    def acting(self, act: Act) -> "ActingStore":
        return ActingStore(self, act)


class ActingStore(SqliteStore):
    """The same store, with the same connections, for one act."""

    __slots__ = ("_act",)

    def __init__(self, store: SqliteStore, act: Act) -> None:
        self.__dict__ = store.__dict__
        self._act = act

    async def _explained_transaction(self, work: Callable[[], T], **how: bool) -> T:
        def acted() -> T:
            before = self._connection.total_changes()
            result = work()
            if self._connection.total_changes() != before:
                keep_act(self._connection, self._act.record())
            return result

        return await super()._explained_transaction(acted, **how)
