"""When a commit is made, on which thread, and what becomes of its answer. What it writes is told in `writing`.

A database that is quick is waited for on the event loop, for a moment: handing over to a thread takes longer. When the
moment is over the thread waits on, so that a database that stalls never holds up the event loop.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from perdure.kernel.values import Instant
from perdure.stores.commit_types import CommitAnswer, Committed, CommitUnknown, Fenced, Transition
from perdure.stores.errors import StoreError
from perdure.stores.postgres.batch_writer import BatchWriter
from perdure.stores.postgres.commit_statement import CommitStatement
from perdure.stores.postgres.connection_threads import ConnectionThread
from perdure.stores.postgres.database import is_passing
from perdure.stores.postgres.ownership import Ownership
from perdure.stores.postgres.session import ConnectionLost, Session
from perdure.stores.postgres.wire import rows_of

QUICK_COMMIT = 0.002  # seconds on the average; a slower database is waited for in a thread from the start
LONGEST_MOMENT = 0.005  # seconds that the event loop waits
PASSING_TRIES = 10


class Commits(Ownership):
    """The committing verbs of a store that has a lane for writing."""

    _lane: ConnectionThread
    _writer: BatchWriter
    _now: Callable[[], Instant]

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Lock()  # one at a time uses the connection that writes
        self._cost = 0.0  # seconds of a commit, a moving average

    async def commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        async with self._turn:
            lost = self._lost(batch)
            return await self._lane.hand(lambda: self._commit(batch)) if lost is None else lost

    def commit_at_once(self, batch: Sequence[Transition]) -> CommitAnswer | Awaitable[CommitAnswer] | None:
        session = self._lane.session
        if self._cost > QUICK_COMMIT or session is None or not self._take_turn():
            return None
        is_waiting = False
        try:
            if not self._writer.is_ready_for(batch) or not session.is_there():
                return None
            if (lost := self._lost(batch)) is not None:
                return lost
            began = time.perf_counter()
            shipment = CommitStatement(batch, self._writer, self._now())
            statement, values = shipment.statement(self._fence, is_guarded=True)
            if not session.is_one_trip(statement):
                return None
            try:
                session.send(statement, *values)
            except ConnectionLost as error:
                return self._broken(error)
            if session.is_answered(time.monotonic() + LONGEST_MOMENT):
                return self._answer(session, shipment, began)
            is_waiting = True
            return self._answer_later(session, shipment, batch, began)
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
        self, session: Session, shipment: CommitStatement, batch: Sequence[Transition], began: float
    ) -> CommitAnswer:
        try:
            return await self._lane.hand(lambda: self._answer(session, shipment, began) or self._commit(batch))
        finally:
            self._turn.release()

    def _answer(self, session: Session, shipment: CommitStatement, began: float) -> CommitAnswer | None:
        """What became of a shipment that was sent; None when it has to be made anew, and nothing happened."""
        try:
            answer = shipment.read(rows_of(session.receive(time.monotonic() + self._database.settings.lease)))
        except ConnectionLost as error:
            return self._broken(error)
        except Exception as error:
            return None if is_passing(error) else CommitUnknown(self._database.explain(error))
        return None if answer is None else self._told(self._writer.finish(answer), began)

    def _commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        """On the lane's thread, however long it takes."""
        began = time.perf_counter()
        for tries in range(1, PASSING_TRIES + 1):
            try:
                session = self._lane.connected()
            except StoreError as error:
                return CommitUnknown(error)
            if self._lease_of_us.is_over:  # as the new connection has found out
                return Fenced(sorted({change.partition for change in batch}))
            session.until = time.monotonic() + self._database.settings.lease  # longer it would be worth nothing
            try:
                return self._told(self._writer.write(session, batch, self._fence, self._now()), began)
            except ConnectionLost as error:
                return self._broken(error)
            except Exception as error:
                session.roll_back()
                if not is_passing(error) or tries == PASSING_TRIES:
                    return CommitUnknown(self._database.explain(error))
                time.sleep(0.001 * 2**tries)
            finally:
                session.until = None
        raise AssertionError("unreachable")

    def _lost(self, batch: Sequence[Transition]) -> Fenced | None:
        """What we do not own we do not write, and past our lease we own nothing."""
        partitions = {change.partition for change in batch}
        gone = partitions if self._lease is None or self._lease.is_over else partitions - self._owned
        return Fenced(sorted(gone)) if gone else None

    def _broken(self, error: ConnectionLost) -> CommitUnknown:
        self._lane.drop()
        return CommitUnknown(self._database.explain(error))

    def _told(self, answer: Committed | Fenced, began: float) -> Committed | Fenced:
        self._cost += (time.perf_counter() - began - self._cost) / 8
        if isinstance(answer, Fenced):
            self._lease_of_us.lose()
            return answer
        if not answer.delivered:
            return answer
        # Messages to our own runs are at hand; who owns the others' is given a hint.
        elsewhere = {one.partition for one in answer.delivered} - self._owned
        if elsewhere:
            self._lease_of_us.tell_owners(elsewhere)
        mine = [one for one in answer.delivered if one.partition in self._owned]
        return Committed(answer.refused, mine, answer.rivals)

    @property
    def _fence(self) -> tuple[int, int]:
        return self._lease_of_us.server, self._epoch
