"""Transactions on one SQLite file: begun patiently, synced in a thread of their own, the log kept short and roomy."""

import asyncio
import logging
import threading
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import apsw

from perdure.stores.errors import StoreMoved
from perdure.stores.sqlite.batch_writer import BatchWriter
from perdure.stores.sqlite.database import WalPreallocation
from perdure.stores.sqlite.file_identity import FileIdentity
from perdure.stores.sqlite.partition_locks import wake_owner
from perdure.stores.sqlite.store_part import StorePart
from perdure.stores.sync_thread import SyncThread

if TYPE_CHECKING:
    from perdure.stores.sqlite.write_turns import WriteTurns

_log = logging.getLogger("perdure.store")

T = TypeVar("T")

LOOK_EVERY = 250  # milliseconds between two looks whether a wait for another program is to end
SAY_EVERY = 10.0  # seconds between two lines about it


class WriteTransactions(StorePart):
    """The writing side of a store that has opened its connections."""

    _writing: tuple[apsw.Connection, BatchWriter] | None
    _file_identity: FileIdentity | None
    _is_lost: bool
    _is_full: bool
    _timeout: float
    _turn: asyncio.Lock
    _turns: "WriteTurns | None"
    _thread: SyncThread
    _sync_cost: float
    _wal_pages: int
    _wal_preallocation: WalPreallocation

    @abstractmethod
    def _open_for_writing(self) -> tuple[apsw.Connection, BatchWriter]: ...

    @asynccontextmanager
    async def _writing_alone(self) -> AsyncIterator[None]:
        """One write transaction at a time in this process, and in turn with others."""
        async with self._turn:
            if self._writing is None:
                self._open_for_writing()
            if self._turns is None:
                yield
            else:
                async with self._turns.taken():
                    yield

    async def _transaction(self, work: Callable[[], T], *, removes: bool = False, in_thread: bool = False) -> T:
        """Statements run here, on the event loop: they only touch memory. Waiting for the disk is the thread's part,
        and so are large values: SQLite copies each several times.

        On a full disk only what removes something is begun.
        """
        async with self._writing_alone():
            try:
                if self._is_full and not removes:
                    self._look_for_room()
                await self._begin()
                result = await self._thread.run(work) if in_thread else work()
                await self._thread.run(self._commit_and_give_back)
            except BaseException:
                self._roll_back()
                raise
            return result

    async def _begin(self) -> None:
        if self._wal_pages > self._wal_preallocation.folded_at:
            await self._thread.run(self._checkpoint)
        elif self._wal_pages > self._wal_preallocation.pages:
            await self._patiently(self._lengthen)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            # Another process writes just now. Waiting for it is not the event loop's business either.
            await self._patiently(self._begin_patiently)

    async def _patiently(self, call: Callable[[threading.Event], None]) -> None:
        given_up = threading.Event()
        await self._thread.run(lambda: call(given_up), cancelled=given_up.set)

    def _begin_patiently(self, given_up: threading.Event) -> None:
        """In pieces: whoever closes the store does not wait for a stranger."""
        began = said_at = time.monotonic()
        self._connection.set_busy_timeout(LOOK_EVERY)
        try:
            while True:
                try:
                    self._connection.execute("BEGIN IMMEDIATE")
                    return
                except apsw.BusyError:
                    now = time.monotonic()
                    if now - began >= self._timeout or given_up.is_set():
                        raise
                    if now - said_at >= SAY_EVERY:
                        said_at = now
                        _log.warning(
                            "STORE-LOCKED: another program has kept %s locked for %d s; waiting", self.path, now - began
                        )
        finally:
            self._connection.set_busy_timeout(0)

    def _commit_and_give_back(self) -> None:
        """In the thread: the event loop may be busy for a while when it hears of the end, and others wait."""
        self._commit()
        if self._turns is not None:
            self._turns.give_back()

    def _commit(self) -> None:
        began = time.perf_counter()
        self._connection.execute("COMMIT")
        self._sync_cost += (time.perf_counter() - began - self._sync_cost) / 8
        self._look_at_file()  # after the sync, and before anyone is told
        self._wake_owners()

    def _wake_owners(self) -> None:
        """Tell the processes to whose runs messages were sent."""
        if sent_to := self._writer.sent_to:
            for partition in sent_to:
                wake_owner(self.path, partition)
            sent_to.clear()

    def _look_at_file(self) -> None:
        if self._file_identity is not None:
            try:
                self._file_identity.check()
            except StoreMoved:
                self._is_lost = True
                raise

    def _checkpoint(self) -> None:
        """Fold the log into the file. Between two commits, so that it can begin anew from its start."""
        self._is_full = self._wal_preallocation.is_small
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._wal_pages = 0
        self._wal_preallocation.look_around()
        self._is_full = not self._wal_preallocation.is_ready(self._connection)

    def _look_for_room(self) -> None:
        """Before anything is added while the disk is full: it may not be any more."""
        self._checkpoint()
        if self._is_full:
            raise apsw.FullError("the file cannot grow by what a checkpoint of the log needs")

    async def _begin_log_anew(self) -> None:
        """Where it stands, with the room that it has: somebody needs some to remove something."""
        async with self._writing_alone():
            self._connection.set_busy_timeout(LOOK_EVERY)
            try:
                await self._thread.run(lambda: self._connection.execute("PRAGMA wal_checkpoint(RESTART)"))
            except apsw.Error as error:
                _log.debug("%s: its write-ahead log cannot be restarted: %s", self.path, error)
            finally:
                self._connection.set_busy_timeout(0)

    def _lengthen(self, given_up: threading.Event) -> None:
        self._begin_patiently(given_up)
        try:
            self._wal_preallocation.lengthen(self._wal_pages)
        finally:
            self._connection.execute("ROLLBACK")

    @property
    def _pages_at_hand(self) -> int:
        """How long the log may be for a commit that takes no more time than its own sync."""
        return min(self._wal_preallocation.pages, self._wal_preallocation.folded_at)

    def _count_pages(self, connection: apsw.Connection, database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _roll_back(self) -> None:
        self._writer.forget()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
