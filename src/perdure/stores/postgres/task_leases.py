"""Tasks for workers in other processes: leased, kept alive by heartbeats, turned in once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure.kernel import inputs
from perdure.kernel.crash_attribution import LossKind, StartPlace, loss_of_lease
from perdure.kernel.values import Instant, RunId
from perdure.stores import clocks
from perdure.stores.commit_types import DeliveredMessage, Message
from perdure.stores.postgres.messages import send, send_all
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.wire import BLOB, INT, INTS, TEXT, TEXTS, Statement
from perdure.stores.protocol import LeasedTask, LeaseRenewal

T = TypeVar("T")

_ANY_READY = Statement("SELECT 1 FROM tasks WHERE state = 'ready' AND pool = {} LIMIT 1", TEXT)
_LEASE = (
    "UPDATE tasks SET state = 'leased', worker = {}, until = {}, place = 0"
    " FROM (SELECT run, task FROM tasks WHERE state = 'ready' AND pool = {} %s"
    " ORDER BY run, task LIMIT {} FOR UPDATE SKIP LOCKED) AS free"
    " WHERE tasks.run = free.run AND tasks.task = free.task RETURNING tasks.run, tasks.task, tasks.delivery, tasks.body"
)
_LEASE_ANY = Statement(_LEASE % "", TEXT, INT, TEXT, INT)
_LEASE_SOME = Statement(_LEASE % "AND provider = ANY({})", TEXT, INT, TEXT, TEXTS, INT)
_LEASED_BEFORE = Statement(
    "SELECT run, task, delivery, body FROM tasks WHERE state = 'leased' AND until = {} AND worker = {}", INT, TEXT
)
_IS_OFFERED = Statement("SELECT 1 FROM tasks WHERE run = {} AND task = {} AND state = 'ready'", TEXT, INT)
_RENEW = Statement(
    "UPDATE tasks SET until = {} FROM unnest({}, {}, {}) AS n (run, task, delivery) WHERE tasks.run = n.run"
    " AND tasks.task = n.task AND tasks.delivery = n.delivery AND worker = {} AND state = 'leased'"
    " RETURNING tasks.run, tasks.task, tasks.recalled",
    INT,
    TEXTS,
    INTS,
    INTS,
    TEXT,
)
_TURN_IN = Statement(
    "DELETE FROM tasks WHERE run = {} AND task = {} AND delivery = {} AND worker = {} AND state = 'leased' RETURNING 1",
    TEXT,
    INT,
    INT,
    TEXT,
)
_BEGIN = Statement(
    "UPDATE tasks SET place = {}, machine = {} WHERE run = {} AND task = {} AND delivery = {} AND worker = {}"
    " AND state = 'leased' RETURNING 1",
    INT,
    TEXT,
    TEXT,
    INT,
    INT,
    TEXT,
)
_WAS_SENT = Statement(
    "SELECT 1 FROM runs JOIN inbox ON inbox.partition = runs.partition AND inbox.run = runs.id"
    " WHERE runs.id = {} AND inbox.body = {} LIMIT 1",
    TEXT,
    BLOB,
)
_ANY_OVER = Statement("SELECT 1 FROM tasks WHERE state = 'leased' AND until <= {} LIMIT 1", INT)
_EXPIRE = Statement(
    "UPDATE tasks SET state = 'lost' FROM (SELECT run, task FROM tasks WHERE state = 'leased' AND until <= {}"
    " ORDER BY until FOR UPDATE SKIP LOCKED) AS over WHERE tasks.run = over.run AND tasks.task = over.task"
    " RETURNING tasks.run, tasks.task, tasks.delivery, tasks.worker, tasks.place, tasks.machine",
    INT,
)


class TaskLeases(ABC):
    """The leasing verbs of a store that can read and run a transaction."""

    _stamps: bool

    @abstractmethod
    async def _read(self, statement: Statement, *values: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    async def _write(self, work: Callable[[Session, bool], T]) -> T: ...

    @abstractmethod
    def loss_on(self, machine: str) -> LossKind: ...

    @abstractmethod
    def _look_at_machines(self, session: Session) -> None: ...

    @abstractmethod
    async def _tell(self, delivered: Sequence[DeliveredMessage]) -> None:
        """Hint to the owners that messages have come."""

    async def lease(
        self, pool: str, providers: Sequence[str] | None, worker: str, count: int, until: Instant
    ) -> list[LeasedTask]:
        def work(session: Session, again: bool) -> list[LeasedTask]:
            rows = session.run(_LEASED_BEFORE, until, worker) if again else []
            if not rows:
                rows = (
                    session.run(_LEASE_ANY, worker, until, pool, count)
                    if providers is None
                    else session.run(_LEASE_SOME, worker, until, pool, providers, count)
                )
            return [LeasedTask(*row) for row in sorted(rows)]

        # Looking first costs an idle worker no write transaction.
        if not await self._read(_ANY_READY, pool):
            return []
        return await self._write(work)

    async def is_offered(self, run: RunId, task: int) -> bool:
        return bool(await self._read(_IS_OFFERED, run, task))

    async def renew(self, worker: str, leases: Sequence[LeasedTask], until: Instant) -> LeaseRenewal:
        def work(session: Session, again: bool) -> LeaseRenewal:
            runs, tasks, deliveries = zip(
                *[(leased.run, leased.task, leased.delivery) for leased in leases], strict=True
            )
            renewed = {
                (run, task): recalled
                for run, task, recalled in session.run(_RENEW, until, runs, tasks, deliveries, worker)
            }
            lost = {(lease.run, lease.task) for lease in leases if (lease.run, lease.task) not in renewed}
            return LeaseRenewal(frozenset(lost), frozenset(key for key, recalled in renewed.items() if recalled))

        return await self._write(work) if leases else LeaseRenewal(frozenset(), frozenset())

    async def begin(self, worker: str, lease: LeasedTask, place: StartPlace, message: Message | None = None) -> bool:
        def work(session: Session, again: bool) -> list[DeliveredMessage] | None:
            if again and message is not None and session.run(_WAS_SENT, message.to, message.body):
                return []
            with session.transaction():
                rows = session.run(_BEGIN, place, clocks.machine(), lease.run, lease.task, lease.delivery, worker)
                if not rows:
                    return None
                return [] if message is None else self._sent(session, message)

        delivered = await self._write(work)
        await self._tell(delivered or ())
        return delivered is not None

    async def report(self, worker: str, lease: LeasedTask, message: Message) -> bool:
        def work(session: Session, again: bool) -> list[DeliveredMessage] | None:
            if again and session.run(_WAS_SENT, message.to, message.body):
                return []
            with session.transaction():
                if not session.run(_TURN_IN, lease.run, lease.task, lease.delivery, worker):
                    return None
                return self._sent(session, message)

        delivered = await self._write(work)
        await self._tell(delivered or ())
        return delivered is not None

    def _sent(self, session: Session, message: Message) -> list[DeliveredMessage]:
        delivered = send(session, message, stamps=self._stamps)
        return [] if delivered is None else [delivered]

    async def expire(self, now: Instant) -> int:
        if not await self._read(_ANY_OVER, now):
            return 0

        def work(session: Session, again: bool) -> list[DeliveredMessage]:
            with session.transaction():
                messages = []
                over = session.run(_EXPIRE, now)
                if any(place == StartPlace.ALONE for *_, place, _ in over):
                    self._look_at_machines(session)
                for run, task, delivery, worker, place, machine in over:
                    reason = f"the lease of worker {worker} ended without a result"
                    lost = inputs.TaskLost(task, delivery, reason, loss_of_lease(place, self.loss_on(machine)))
                    messages.append((Message(run, now, inputs.encode(lost)), 0))
                return send_all(session, messages)

        delivered = await self._write(work)
        await self._tell(delivered)
        return len(delivered)
