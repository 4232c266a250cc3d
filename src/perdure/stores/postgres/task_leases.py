"""Tasks for workers in other processes: leased, kept alive by heartbeats, turned in once."""

import secrets
from abc import abstractmethod
from collections.abc import Sequence

from msgspec.structs import replace

from perdure.kernel import inputs
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.tasks.crash_attribution import LossKind, StartPlace, loss_of_lease
from perdure.stores import clocks
from perdure.stores.commit_types import DeliveredMessage, Message
from perdure.stores.pool_tasks import (
    LEASE_COLUMNS,
    LeaseRenewal,
    LeaseRequest,
    PoolBacklog,
    TaskLease,
    WorkerRow,
    lease_row,
)
from perdure.stores.postgres.messages import send, send_all
from perdure.stores.postgres.session import Session, Step
from perdure.stores.postgres.store_part import StorePart
from perdure.stores.postgres.wire import BLOB, INT, INTS, TEXT, TEXTS, Statement

_MATCHES = " AND ({} IS NULL OR namespace = ANY({})) AND ({} IS NULL OR opener = '' OR opener = ANY({}))"
_FOREMOST = " ORDER BY turn, offered_at, run, task LIMIT {} FOR UPDATE SKIP LOCKED"
_READY = "SELECT run, task, turn, offered_at FROM tasks WHERE state = 'ready' AND pool = "
_ANY_READY = Statement(
    "SELECT 1 FROM tasks WHERE state = 'ready' AND pool = ANY({}) AND ({} IS NULL OR provider = ANY({}))"
    f"{_MATCHES} LIMIT 1",
    *(TEXTS,) * 7,
)
_OF_ANY = Statement(f"{_READY}{{}}{_MATCHES}{_FOREMOST}", TEXT, *(TEXTS,) * 4, INT)
_OF_SOME = Statement(
    "SELECT t.* FROM unnest({}) AS p (provider) CROSS JOIN LATERAL"
    f" ({_READY}{{}} AND provider = p.provider{_MATCHES}{_FOREMOST}) AS t",
    TEXTS,
    TEXT,
    *(TEXTS,) * 4,
    INT,
)
_OF_TASKS = ", ".join(f"tasks.{name}" for name in LEASE_COLUMNS.split(", "))
_GRANT = Statement(
    "UPDATE tasks SET state = 'leased', lease = n.lease, worker = {}, until = {}, request = {}, holder = {}, place = 0,"
    " touched = false FROM unnest({}, {}, {}) AS n (lease, run, task)"
    f" WHERE tasks.run = n.run AND tasks.task = n.task RETURNING {_OF_TASKS}",
    TEXT,
    INT,
    TEXT,
    TEXT,
    TEXTS,
    TEXTS,
    INTS,
)
_LEASED_UNDER = Statement(
    f"SELECT {LEASE_COLUMNS}, request FROM tasks WHERE request BETWEEN {{}} AND {{}} AND state = 'leased'"
    " ORDER BY turn, run, task",
    TEXT,
    TEXT,
)
_ONE_AT_A_TIME = Statement("SELECT pg_advisory_xact_lock(hashtextextended({}, 8420))", TEXT)
_LOST = Statement("SELECT run, task, lost_delivery FROM tasks WHERE lost_lease = {}", TEXT)
_FIND = Statement(
    f"SELECT {LEASE_COLUMNS} FROM tasks WHERE lease = ANY({{}}) AND state IN ('leased', 'answered')", TEXTS
)
_IS_OFFERED = Statement("SELECT 1 FROM tasks WHERE run = {} AND task = {} AND state = 'ready'", TEXT, INT)
_LASTS = "(state = 'leased' OR (state = 'answered' AND answer IS NULL))"  # of an ended run: until its worker has heard
_RENEW = Statement(
    f"UPDATE tasks SET until = CASE WHEN recalled THEN until ELSE {{}} END WHERE lease = ANY({{}}) AND {_LASTS}"
    " RETURNING lease, recalled",
    INT,
    TEXTS,
)
_BEGIN = Statement(
    "UPDATE tasks SET place = {}, machine = {} WHERE lease = {} AND state = 'leased' RETURNING 1", INT, TEXT, TEXT
)
_TOUCH = Statement("UPDATE tasks SET touched = true WHERE lease = {} AND state = 'leased' RETURNING 1", TEXT)
_TURN_IN = Statement(
    f"UPDATE tasks SET state = 'answered', answer = {{}}, until = {{}}, body = '' WHERE lease = {{}} AND {_LASTS}"
    " RETURNING 1",
    BLOB,
    INT,
    TEXT,
)
_REPORT_OUTCOME = Statement(
    "UPDATE tasks SET reported = {}, touched = true WHERE lease = {} AND number = {} AND state = 'leased' RETURNING 1",
    BLOB,
    TEXT,
    INT,
)
_RELEASE = Statement(
    "UPDATE tasks SET state = CASE WHEN recalled THEN 'lost' ELSE 'ready' END, lease = NULL, request = NULL,"
    " worker = NULL, until = NULL, holder = '', releases = releases + 1"
    " WHERE lease = {} AND state = 'leased' AND NOT touched RETURNING run, task, delivery, recalled",
    TEXT,
)
_END_LEASES = Statement("UPDATE tasks SET until = {} WHERE state = 'leased' AND holder = {}", INT, TEXT)
_PUT_VALUE = Statement(
    "INSERT INTO large_values (run, digest, text) SELECT number, {}, {} FROM runs WHERE id = {} ON CONFLICT DO NOTHING",
    BLOB,
    BLOB,
    TEXT,
)
_NOTE_WORKERS = Statement(
    "INSERT INTO workers (pool, name, holder, providers, opens, slots, seen_at, left_at)"
    " SELECT * FROM unnest({}, {}, {}, {}, {}, {}, {}, {}) ON CONFLICT (pool, name) DO UPDATE SET"
    " holder = excluded.holder, providers = excluded.providers, opens = excluded.opens, slots = excluded.slots,"
    " seen_at = excluded.seen_at, left_at = excluded.left_at WHERE workers.seen_at <= excluded.seen_at",
    *(TEXTS,) * 5,
    *(INTS,) * 3,
)
_FORGET_WORKERS = Statement("DELETE FROM workers WHERE seen_at < {}", INT)
_WORKERS = Statement(
    "SELECT pool, name, holder, providers, opens, slots, seen_at, left_at FROM workers ORDER BY pool, name"
)
_BACKLOGS = Statement(
    "SELECT pool, provider, opener, namespace, count(*) FILTER (WHERE state = 'ready'),"
    " count(*) FILTER (WHERE state = 'leased'), min(offered_at) FILTER (WHERE state = 'ready'), max(releases)"
    " FROM tasks WHERE state IN ('ready', 'leased') AND ({} IS NULL OR pool = ANY({}))"
    " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
    TEXTS,
    TEXTS,
)
_WAS_SENT = Statement(
    "SELECT 1 FROM runs JOIN inbox ON inbox.partition = runs.partition AND inbox.run = runs.id"
    " WHERE runs.id = {} AND inbox.body = {} LIMIT 1",
    TEXT,
    BLOB,
)
_ANY_OVER = Statement("SELECT 1 FROM tasks WHERE state IN ('leased', 'answered') AND until <= {} LIMIT 1", INT)
_FORGET_ANSWERS = Statement(
    "DELETE FROM tasks WHERE (run, task) IN (SELECT run, task FROM tasks WHERE state = 'answered' AND until <= {}"
    " LIMIT 10000 FOR UPDATE SKIP LOCKED)",
    INT,
)
_EXPIRE = Statement(
    "UPDATE tasks SET state = 'lost', lost_lease = lease, lost_delivery = delivery, lease = NULL"
    " FROM (SELECT run, task FROM tasks WHERE state = 'leased' AND until <= {}"
    " ORDER BY until FOR UPDATE SKIP LOCKED) AS over WHERE tasks.run = over.run AND tasks.task = over.task"
    " RETURNING tasks.run, tasks.task, tasks.delivery, tasks.worker, tasks.place, tasks.machine",
    INT,
)


class TaskLeases(StorePart):
    """The leasing verbs of a store that can read and run a transaction."""

    _stamps: bool

    @abstractmethod
    def loss_on(self, machine: str) -> LossKind: ...

    @abstractmethod
    def _look_at_machines(self, session: Session) -> None: ...

    async def lease(self, request: LeaseRequest) -> list[TaskLease]:
        own = request if request.key else replace(request, key=secrets.token_hex(16))  # to know what was written before
        matches = (request.namespaces, request.namespaces, request.opens, request.opens)

        def work(session: Session, again: bool) -> list[TaskLease]:
            with session.transaction():
                if request.key:  # another server may have been asked the same
                    session.run(_ONE_AT_A_TIME, own.names[0])
                if (again or request.key) and (before := session.run(_LEASED_UNDER, *own.names)):
                    return own.given_before(before)
                ready = []
                for pool in request.pools:
                    if request.providers is None:
                        ready += session.run(_OF_ANY, pool, *matches, request.count)
                    else:
                        ready += session.run(_OF_SOME, request.providers, pool, *matches, request.count)
                ready = sorted(ready, key=lambda row: (row[2], row[3], row[0], row[1]))[: request.count]
                if not ready:
                    return []
                runs, tasks, *_ = zip(*ready, strict=True)
                leases = [secrets.token_hex(16) for _ in ready]
                about = (request.worker, request.until, own.name, request.holder)
                rows = session.run(_GRANT, *about, leases, runs, tasks)
                order = {lease: place for place, lease in enumerate(leases)}
                return sorted(map(lease_row, rows), key=lambda leased: order[leased.lease])

        # Looking first costs an idle worker no write transaction.
        some = (request.providers, request.providers)
        is_ready = bool(await self._read(_ANY_READY, request.pools, *some, *matches))
        if not is_ready and not (request.key and await self._read(_LEASED_UNDER, *own.names)):
            return []
        return await self._write(work)

    async def find_leases(self, leases: Sequence[str]) -> dict[str, TaskLease]:
        return {row[0]: lease_row(row) for row in await self._read(_FIND, leases)}

    async def is_offered(self, run: RunId, task: int) -> bool:
        return bool(await self._read(_IS_OFFERED, run, task))

    async def renew(self, leases: Sequence[str], until: Instant) -> LeaseRenewal:
        renewed = dict(await self._write(lambda session, again: session.run(_RENEW, until, leases)))
        recalled = frozenset(lease for lease, is_recalled in renewed.items() if is_recalled)
        return LeaseRenewal(frozenset(leases) - frozenset(renewed), recalled)

    async def begin(self, lease: str, place: StartPlace, message: Message | None = None) -> bool:
        return await self._change_one((_BEGIN, (place, clocks.machine(), lease)), message)

    async def clear_lost(self, lease: str, now: Instant) -> None:
        def work(session: Session, again: bool) -> list[DeliveredMessage]:
            delivered = []
            for run, task, delivery in session.run(_LOST, lease):
                clear = inputs.Clear(task, delivery, outlived=False)
                delivered += self._sent(session, Message(run, now, inputs.encode(clear)))
            return delivered

        await self._tell(await self._write(work))

    async def touch(self, lease: str) -> bool:
        return await self._change_one((_TOUCH, (lease,)))

    async def report(self, lease: str, message: Message | None, answer: bytes = b"", kept_until: Instant = 0) -> bool:
        return await self._change_one((_TURN_IN, (answer, kept_until, lease)), message)

    async def report_outcome(self, lease: str, number: int, name: bytes, message: Message) -> bool:
        return await self._change_one((_REPORT_OUTCOME, (name, lease, number)), message)

    async def _change_one(self, change: Step, message: Message | None = None) -> bool:
        """Whether the row was changed; then the message was sent with it."""

        def work(session: Session, again: bool) -> list[DeliveredMessage] | None:
            if again and message is not None and session.run(_WAS_SENT, message.to, message.body):
                return []
            with session.transaction():
                if not session.run(change[0], *change[1]):
                    return None
                return [] if message is None else self._sent(session, message)

        delivered = await self._write(work)
        await self._tell(delivered or ())
        return delivered is not None

    async def release(self, lease: str) -> bool:
        def work(session: Session, again: bool) -> tuple[bool, list[DeliveredMessage]]:
            with session.transaction():
                rows = session.run(_RELEASE, lease)
                delivered = []
                for run, task, delivery, is_recalled in rows:
                    if is_recalled:
                        lost = inputs.TaskLost(task, delivery, "recalled before it was begun", LossKind.STOPPED)
                        delivered += self._sent(session, Message(run, self._now(), inputs.encode(lost)))
                return bool(rows), delivered

        is_released, delivered = await self._write(work)
        await self._tell(delivered)
        return is_released

    async def end_leases(self, holder: str, now: Instant) -> None:
        await self._write(lambda session, again: session.run(_END_LEASES, now, holder))

    async def put_value(self, run: RunId, digest: bytes, text: bytes) -> None:
        await self._write(lambda session, again: session.run(_PUT_VALUE, digest, text, run))

    async def note_workers(self, rows: Sequence[WorkerRow], forgotten: Instant) -> None:
        values = [(r.pool, r.name, r.holder, r.providers, r.opens, r.slots, r.seen_at, r.left_at) for r in rows]

        def work(session: Session, again: bool) -> None:
            if values:
                session.run(_NOTE_WORKERS, *zip(*sorted(values), strict=True))
            session.run(_FORGET_WORKERS, forgotten)

        await self._write(work)

    async def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in await self._read(_WORKERS)]

    async def backlogs(self, pools: Sequence[str] | None = None) -> list[PoolBacklog]:
        return [PoolBacklog(*row) for row in await self._read(_BACKLOGS, pools, pools)]

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
                session.run(_FORGET_ANSWERS, now)
                return send_all(session, messages)

        delivered = await self._write(work)
        await self._tell(delivered)
        return len(delivered)
