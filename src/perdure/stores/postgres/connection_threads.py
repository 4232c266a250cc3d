"""Threads that wait for the database, each with a connection of its own, so that the event loop does not.

A lost connection is opened again, with growing pauses, until the time in `PERDURE_DB_PATIENCE` is over, and the
statement is repeated.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg

from perdure.stores.errors import StoreError, StoreUnreachable
from perdure.stores.postgres.database import Database, is_transient
from perdure.stores.postgres.session import ConnectionLost, Session
from perdure.stores.postgres.wire import Statement
from perdure.stores.sync_thread import SyncThread

T = TypeVar("T")
Work = Callable[[Session, bool], T]
"""What is done on a session; True when it may have been done before."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0
PASSING_TRIES = 10
CLOSING = 2.0  # seconds; who waits for a database that does not answer is not waited for


class ConnectionThread:
    def __init__(
        self, database: Database, purpose: str, connected: Callable[[Session], None] = lambda session: None
    ) -> None:
        """`connected` hears of every new session before it is used."""
        self._database = database
        self._purpose = purpose
        self._connected = connected
        self._thread: SyncThread | None = None
        self._is_closed = False
        self.session: Session | None = None

    async def run(self, work: Work[T]) -> T:
        return await self.call(lambda: self.run_here(work))

    async def call(self, call: Callable[[], T]) -> T:
        if self._is_closed:
            raise StoreError("the store was closed")
        if self._thread is None:
            self._thread = SyncThread(f"perdure-{self._purpose}")
        return await self._thread.run(call)

    def run_here(self, work: Work[T]) -> T:
        """On the thread that calls."""
        again, passing = False, 0
        began = time.monotonic()
        pause = FIRST_PAUSE
        while True:
            try:
                return work(self.connected(), again)
            except (ConnectionLost, StoreUnreachable) as error:
                self.drop()
                again = True
                if self._is_closed or time.monotonic() - began > self._database.timeout:
                    raise self._database.explain(error) from None
                self._database.warn(f"{' '.join(str(error).split())}; trying again")
            except psycopg.Error as error:
                self._roll_back()
                passing += 1
                if not is_transient(error) or passing >= PASSING_TRIES:
                    raise self._database.explain(error) from error
            except BaseException:
                self._roll_back()
                raise
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def connected(self) -> Session:
        if self.session is None or not self.session.is_there():
            self.drop()
            session = self._database.connect(self._purpose)
            try:
                self._connected(session)
            except BaseException:
                session.close()
                raise
            self.session = session
        return self.session

    def _roll_back(self) -> None:
        if self.session is not None:
            self.session.roll_back()

    def drop(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None

    def close(self) -> None:
        self._is_closed = True
        if self._thread is not None and not self._thread.close(CLOSING):
            if self.session is not None:
                self.session.interrupt()
            self._thread.close()
        self.drop()


async def _answered(session: Session) -> None:
    """Wait, without a thread, until what was sent has its whole answer, or the connection is gone."""
    loop, socket = asyncio.get_running_loop(), session.socket
    while not session.is_answered(time.monotonic()):
        ready = asyncio.Event()
        loop.add_reader(socket, ready.set)
        if not session.is_sent:
            loop.add_writer(socket, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(socket)
            loop.remove_writer(socket)


class ReadPool:
    """A few connections for reading; a free one takes the next query."""

    def __init__(self, database: Database, first: Session | None) -> None:
        self._threads = [
            ConnectionThread(database, f"reader {number}") for number in range(1, database.settings.readers + 1)
        ]
        self._threads[0].session = first
        self._free = list(reversed(self._threads))
        self._querying: set[ConnectionThread] = set()  # threads whose session the event loop waits for
        self._is_closed = False
        self._turn: asyncio.Semaphore | None = None

    async def run(self, work: Work[T]) -> T:
        async with self._free_thread() as thread:
            return await thread.run(work)

    async def query(self, statement: Statement, *values: Any) -> list[tuple[Any, ...]]:
        """A short question. It is asked on the event loop, which goes on while the database answers: two ways between
        threads would take longer than the answer. What fails is repeated in a thread, which may wait.
        """
        async with self._free_thread() as thread:
            session = thread.session
            if session is not None and session.is_one_trip(statement) and session.is_there():
                self._querying.add(thread)
                try:
                    session.send(statement, *values)
                    await _answered(session)
                    return session.receive_rows()
                except psycopg.Error:
                    pass
                except ConnectionLost:
                    thread.drop()
                except BaseException:  # an answer that nobody waits for must not be the next one's
                    thread.drop()
                    raise
                finally:
                    self._querying.discard(thread)
                    if self._is_closed:
                        thread.close()
            return await thread.run(lambda session, again: session.run(statement, *values))

    @asynccontextmanager
    async def _free_thread(self) -> AsyncIterator[ConnectionThread]:
        if self._turn is None:
            self._turn = asyncio.Semaphore(len(self._threads))
        async with self._turn:
            thread = self._free.pop()
            try:
                yield thread
            finally:
                self._free.append(thread)

    def close(self) -> None:
        """Who is waited for on the event loop is let go by who waits."""
        self._is_closed = True
        for thread in self._threads:
            if thread not in self._querying:
                thread.close()
