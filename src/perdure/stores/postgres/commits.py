"""When a commit is made, on which thread, and how its answer is handled. `commit_statement.py` says what it writes.

The event loop waits a few milliseconds for a quick database: passing the work to a thread takes longer. After that a
thread waits instead, so that a database that stalls never blocks the event loop.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from perdure.kernel.json_values.values import Instant
from perdure.stores.commit_types import CommitAnswer, Committed, CommitUnknown, Fenced, Transition
from perdure.stores.errors import StoreError
from perdure.stores.postgres.batch_writer import BatchWriter
from perdure.stores.postgres.commit_statement import CommitStatement
from perdure.stores.postgres.connection_threads import ConnectionThread
from perdure.stores.postgres.database import is_transient
from perdure.stores.postgres.fence import Fence
from perdure.stores.postgres.ownership import PartitionOwnership
from perdure.stores.postgres.session import ConnectionLost, Session

QUICK_COMMIT = 0.002  # seconds on the average; a slower database is waited for in a thread from the start
LONGEST_MOMENT = 0.005  # seconds that the event loop waits
PASSING_TRIES = 10


class Commits(PartitionOwnership):
    """The methods of a store that commit, over the thread with the writing connection."""

    _write_thread: ConnectionThread
    _writer: BatchWriter
    _now: Callable[[], Instant]

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Lock()  # one at a time uses the connection that writes
        self._cost = 0.0  # seconds of a commit, a moving average

    async def commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        async with self._turn:
            lost = self._lost(batch)
            return await self._write_thread.call(lambda: self._commit(batch)) if lost is None else lost

    def commit_at_once(self, batch: Sequence[Transition]) -> CommitAnswer | Awaitable[CommitAnswer] | None:
        session = self._write_thread.session
        if self._cost > QUICK_COMMIT or session is None or not self._take_turn():
            return None
        is_waiting = False
        try:
            if not self._writer.is_ready_for(batch) or not session.is_there():
                return None
            if (lost := self._lost(batch)) is not None:
                return lost
            began = time.perf_counter()
            commit_statement = CommitStatement(batch, self._writer, self._now())
            statement, values = commit_statement.statement(self._fence, is_guarded=True)
            if not session.is_one_trip(statement):
                return None
            try:
                session.send(statement, *values)
            except ConnectionLost as error:
                return self._connection_lost(error)
            if session.is_answered(time.monotonic() + LONGEST_MOMENT):
                return self._answer(session, commit_statement, began)
            is_waiting = True
            return self._answer_later(session, commit_statement, batch, began)
        finally:
            if not is_waiting:
                self._turn.release()

    def _take_turn(self) -> bool:
        """Without waiting: where nobody has the turn or waits for it, it is given at once."""
        taking = self._turn.acquire()
        try:
            taking.send(None)
        except StopIteration:
            return True
        taking.close()
        return False

    async def _answer_later(
        self, session: Session, commit_statement: CommitStatement, batch: Sequence[Transition], began: float
    ) -> CommitAnswer:
        try:
            return await self._write_thread.call(
                lambda: self._answer(session, commit_statement, began) or self._commit(batch)
            )
        finally:
            self._turn.release()

    def _answer(self, session: Session, commit_statement: CommitStatement, began: float) -> CommitAnswer | None:
        """The answer to a statement that was sent; None if nothing was written and it has to be built again."""
        try:
            answer = commit_statement.read(session.receive_rows(time.monotonic() + self._database.settings.lease))
        except ConnectionLost as error:
            return self._connection_lost(error)
        except Exception as error:
            return None if is_transient(error) else CommitUnknown(self._database.explain(error))
        return None if answer is None else self._finish(self._writer.finish(answer), began)

    def _commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        """On the writing thread, however long it takes."""
        began = time.perf_counter()
        for tries in range(1, PASSING_TRIES + 1):
            try:
                session = self._write_thread.connected()
            except StoreError as error:
                return CommitUnknown(error)
            if self._lease_of_us.is_over:  # as the new connection has found out
                return Fenced(sorted({change.partition for change in batch}))
            session.until = time.monotonic() + self._database.settings.lease  # longer it would be worth nothing
            try:
                return self._finish(self._writer.write(session, batch, self._fence, self._now()), began)
            except ConnectionLost as error:
                return self._connection_lost(error)
            except Exception as error:
                session.roll_back()
                if not is_transient(error) or tries == PASSING_TRIES:
                    return CommitUnknown(self._database.explain(error))
                time.sleep(0.001 * 2**tries)
            finally:
                session.until = None
        raise AssertionError("unreachable")

    def _lost(self, batch: Sequence[Transition]) -> Fenced | None:
        """What we do not own we do not write, and past our lease we own nothing."""
        partitions = {change.partition for change in batch}
        lost = partitions if self._lease is None or self._lease.is_over else partitions - self._owned
        return Fenced(sorted(lost)) if lost else None

    def _connection_lost(self, error: ConnectionLost) -> CommitUnknown:
        self._write_thread.drop()
        return CommitUnknown(self._database.explain(error))

    def _finish(self, answer: Committed | Fenced, began: float) -> Committed | Fenced:
        self._cost += (time.perf_counter() - began - self._cost) / 8
        if isinstance(answer, Fenced):
            self._lease_of_us.lose()
            return answer
        if not answer.delivered:
            return answer
        # Messages to our own runs are at hand; who owns the others' is given a hint.
        elsewhere = {delivered.partition for delivered in answer.delivered} - self._owned
        if elsewhere:
            self._lease_of_us.notify_owners(elsewhere)
        local = [message for message in answer.delivered if message.partition in self._owned]
        return Committed(answer.refused, local, answer.rivals)

    @property
    def _fence(self) -> Fence:
        return self._lease_of_us.server, self._epoch
