"""Who owns what: one row per process with a lease, and partitions that point to it.

    nobody ──share, claim──▶ ours ──give_up, close──▶ nobody
                                     └──our row removed by a successor──▶ nobody (and every commit of ours is fenced)

A commit locks our row with its epoch. The epoch is raised whenever the connection that writes is replaced: a statement
of the lost one that is still on its way then writes nothing.
"""

from collections.abc import Callable, Collection, Sequence

import psycopg

from perdure.kernel import inputs
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.tasks.crash_attribution import LossKind
from perdure.stores.commit_types import Message
from perdure.stores.postgres.clock_offset import JUMP
from perdure.stores.postgres.database import NOW, Database
from perdure.stores.postgres.membership import Membership, transfer_runs
from perdure.stores.postgres.messages import SHARED, birthplace, send_all
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.wire import INT, INTS, TEXT, TEXTS, Statement
from perdure.stores.protocol import AdoptedRuns, Server, Share

FIRST_PRIVATE = 1_001

_LOCK = Statement("SELECT pg_advisory_xact_lock(1346720322, 0)")
_SERVERS = Statement(
    "SELECT s.name, s.role, (SELECT count(*) FROM partitions p WHERE p.owner = s.id), s.until FROM servers s"
    f" WHERE s.until >= {NOW} ORDER BY s.id"
)
_OWNED = Statement(
    f"SELECT p.id FROM partitions p JOIN servers s ON s.id = p.owner WHERE p.id = ANY({{}}) AND s.until >= {NOW}",
    INTS,
)
_OURS = Statement("SELECT id FROM partitions WHERE owner = {} ORDER BY id", INT)

# Take-over.
_IS_SILENT = f"until < {{0}} AND abs({NOW} - {{0}}) <= {JUMP}"  # by our count, while the store's clock agrees with it
_SILENT = Statement(f"SELECT id, token FROM servers WHERE {_IS_SILENT} AND token <> {{1}}", INT, TEXT)
_END_SESSIONS = Statement(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND usename = current_user AND split_part(application_name, ' ', 1) = ANY({})",
    TEXTS,
)
_TAKE_OVER = Statement(
    "DELETE FROM servers WHERE id IN (SELECT id FROM servers WHERE id = ANY({1})"
    f" AND {_IS_SILENT} FOR UPDATE SKIP LOCKED) RETURNING name",
    INT,
    INTS,
)

# Partitions.
_DISTINCT = (
    "(WITH RECURSIVE step AS ((SELECT partition FROM {table} {where} ORDER BY partition LIMIT 1) UNION ALL"
    " SELECT (SELECT partition FROM {table} WHERE partition > step.partition {more} ORDER BY partition LIMIT 1)"
    " FROM step WHERE step.partition IS NOT NULL) SELECT partition FROM step WHERE partition IS NOT NULL)"
)
_IN_USE = (
    _DISTINCT.format(table="runs", where="WHERE ended_at IS NULL", more="AND ended_at IS NULL")
    + " UNION "
    + _DISTINCT.format(table="inbox", where="", more="")
)
_ORPHANED = Statement(
    f"SELECT used.partition FROM ({_IN_USE}) AS used WHERE NOT EXISTS (SELECT 1 FROM partitions p"
    f" JOIN servers s ON s.id = p.owner WHERE p.id = used.partition AND s.until >= {NOW}) ORDER BY 1"
)
_CLAIM = Statement(
    "INSERT INTO partitions (id, owner, is_shared) SELECT free, {}, false FROM generate_series({}, {}) AS free"
    " WHERE NOT EXISTS (SELECT 1 FROM partitions WHERE id = free)"
    " AND NOT EXISTS (SELECT 1 FROM runs WHERE partition = free AND ended_at IS NULL)"
    " AND NOT EXISTS (SELECT 1 FROM inbox WHERE partition = free) ORDER BY free LIMIT 1 RETURNING id",
    INT,
    INT,
    INT,
)
_NOBODYS = Statement(
    "INSERT INTO partitions (id, owner, is_shared)"
    " SELECT greatest({}, (SELECT max(id) FROM partitions) + 1, (SELECT max(partition) FROM runs) + 1), NULL, false"
    " RETURNING id",
    INT,
)
_FAMILIES = Statement(
    "SELECT split_part(found.run, '.', 1) FROM (SELECT id AS run, number FROM runs WHERE partition = ANY({0})"
    " AND ended_at IS NULL UNION ALL SELECT run, 9223372036854775807 FROM inbox WHERE partition = ANY({0})) AS found"
    " GROUP BY 1 ORDER BY min(found.number), 1",
    INTS,
)
_LAST = Statement("SELECT max(id) FROM partitions")
_FREE = Statement("UPDATE partitions SET owner = NULL WHERE owner = {} AND id = ANY({})", INT, INTS)
_DROP_EMPTY = Statement(
    "DELETE FROM partitions p WHERE NOT is_shared AND owner IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM runs WHERE partition = p.id AND ended_at IS NULL)"
    " AND NOT EXISTS (SELECT 1 FROM inbox WHERE partition = p.id)"
)
_IS_THERE = Statement("SELECT 1 FROM partitions WHERE id = {}", INT)
_LOCK_FREE = Statement("SELECT id FROM partitions WHERE id = ANY({}) AND owner IS NULL ORDER BY id FOR UPDATE", INTS)
_MISSING = Statement(
    "SELECT id FROM unnest({}) AS id WHERE NOT EXISTS (SELECT 1 FROM partitions p WHERE p.id = id)", INTS
)
_AT_WORK = "SELECT partition, id FROM runs WHERE partition = ANY({}) AND has_work"
_ALL_AT_WORK = Statement(f"{_AT_WORK} ORDER BY number", INTS)
_FAMILY_AT_WORK = Statement(
    f"{_AT_WORK} AND (id = {{}} OR (id >= {{}} AND id < {{}})) ORDER BY number", INTS, TEXT, TEXT, TEXT
)
_MOVE_ALL_RUNS = (
    Statement(  # also those that have ended: a message may reopen them, or a relative that goes on tell them
        "WITH roots AS (SELECT split_part(id, '.', 1) AS root FROM runs WHERE partition = ANY({1}) AND ended_at IS NULL"
        " UNION SELECT split_part(run, '.', 1) FROM inbox WHERE partition = ANY({1}))"
        " UPDATE runs SET partition = {0} FROM roots WHERE partition = ANY({1})"
        " AND (id = root OR (id >= root || '.' AND id < root || '/'))",
        INT,
        INTS,
    )
)
_MOVE_ALL_MESSAGES = Statement("UPDATE inbox SET partition = {} WHERE partition = ANY({})", INT, INTS)
_MOVE_RUNS = Statement(
    "UPDATE runs SET partition = {} WHERE partition = ANY({}) AND (id = {} OR (id >= {} AND id < {}))",
    INT,
    INTS,
    TEXT,
    TEXT,
    TEXT,
)
_MOVE_MESSAGES = Statement(
    "UPDATE inbox SET partition = {} WHERE partition = ANY({}) AND (run = {} OR (run >= {} AND run < {}))",
    INT,
    INTS,
    TEXT,
    TEXT,
    TEXT,
)
_FORWARD = Statement(
    "UPDATE inbox SET partition = runs.partition FROM runs WHERE runs.id = inbox.run"
    " AND runs.partition <> inbox.partition AND inbox.partition = ANY({}) AND inbox.position = ANY({})",
    INTS,
    INTS,
)
_SHARES = Statement(
    "SELECT (SELECT count(*) FROM servers WHERE role = 'serve'),"
    " (SELECT count(*) FROM servers WHERE role = 'serve' AND id < {0}),"
    " (SELECT count(*) FROM partitions WHERE owner = {0} AND is_shared)",
    INT,
)
_TAKE_FREE = Statement(
    "UPDATE partitions SET owner = {} WHERE id IN (SELECT id FROM partitions WHERE owner IS NULL AND is_shared"
    " ORDER BY id LIMIT {}) RETURNING id",
    INT,
    INT,
)
_LEFT_BEHIND = Statement(
    "(SELECT id FROM runs WHERE partition = {0} AND ended_at IS NULL LIMIT {1})"
    " UNION (SELECT run FROM inbox WHERE partition = {0} LIMIT {1})",
    INT,
    INT,
)
_SETTLE_RUNS = Statement(
    "UPDATE runs SET partition = n.home FROM unnest({}, {}) AS n (id, home) WHERE runs.id = n.id"
    " AND runs.partition = {} RETURNING runs.id, runs.partition,"
    " runs.ended_at IS NULL AND (runs.has_work OR coalesce(runs.due, runs.on_wall) IS NOT NULL)",
    TEXTS,
    INTS,
    INT,
)
_SETTLE_MESSAGES = Statement(
    "UPDATE inbox SET partition = n.home FROM unnest({}, {}) AS n (run, home)"
    " WHERE inbox.partition = {} AND inbox.run = n.run",
    TEXTS,
    INTS,
    INT,
)

SETTLED_AT_ONCE = 1_000
WAKE = inputs.encode(inputs.Wake())


class PartitionOwnership(Membership):
    """The owning verbs of a store that can read and run a transaction."""

    _now: Callable[[], Instant]

    def __init__(self) -> None:
        super().__init__()
        self._owned: set[int] = set()
        self._giving_up: set[int] = set()

    def _leave(self, session: Session) -> None:
        super()._leave(session)
        session.run(_DROP_EMPTY)
        self._owned.clear()

    async def rejoin(self) -> list[int]:
        def work(session: Session, again: bool) -> list[int]:
            return [id for (id,) in session.run(_OURS, self._come_back(session))]

        self._owned = set(await self._write(work))
        self._lease_of_us.notify_everyone()  # who has too much gives us our part at once
        return sorted(self._owned)

    # One's own.

    async def claim(self) -> int:
        await self._join(self._role or "private")

        def work(session: Session, again: bool) -> int:
            with session.transaction():
                session.run(_LOCK)
                server = self._present(session)
                session.run(_DROP_EMPTY)
                ((last,),) = session.run(_LAST)
                rows: list[tuple[int]] = []
                first = FIRST_PRIVATE
                while not rows:
                    last = max(last, first)
                    rows = session.run(_CLAIM, server, first, last + 1)
                    first, last = last + 1, last + 1_000
                return rows[0][0]

        home = await self._write(work)
        self._owned.add(home)
        return home

    async def move(self, families: Sequence[RunId] | None, home: int) -> list[AdoptedRuns]:
        await self._join(self._role or "private")

        def work(session: Session, again: bool) -> list[AdoptedRuns]:
            self._take_over(session)
            orphans = [id for (id,) in session.run(_ORPHANED)]
            with session.transaction():
                session.run(_LOCK)
                if (home,) not in session.run(_OURS, self._present(session)):
                    return []  # we were taken over, and are late
                free = [id for (id,) in session.run(_LOCK_FREE, orphans)]
                free += [id for (id,) in session.run(_MISSING, orphans)]
                moved = _move_all(session, free, home) if families is None else _move(session, free, families, home)
                if moved:
                    self._look_at_machines(session)
            at_work: dict[int, list[RunId]] = {} if families is not None else {partition: [] for partition in free}
            for partition, run in moved:
                at_work.setdefault(partition, []).append(run)
            return [AdoptedRuns(partition, runs) for partition, runs in at_work.items()]

        return await self._write(work)

    def _take_over(self, session: Session) -> list[str]:
        """The names of those who fell silent. What they shared is free: others are told, for each takes its part."""
        ended = take_over(session, self._database)
        if ended:
            self._lease_of_us.notify_everyone()
        return ended

    def loss_of(self, run: RunId) -> LossKind:
        return LossKind.PROCESS  # silent, dead or cut off: nobody sees which, nor what else it had at work

    async def transfer(self, runs: Sequence[RunId]) -> list[RunId]:
        if self._lease is None:
            return []
        fence = (self._lease.server, self._epoch)
        owned, now = sorted(self._owned), self._now()
        moved = await self._write(lambda session, again: transfer_runs(session, fence, self.reads, owned, runs, now))
        if moved:
            self._lease_of_us.notify_owners(set(moved.values()))
        return list(moved)

    async def _forward(self, strays: Sequence[int]) -> None:
        await self._write(lambda session, again: session.run(_FORWARD, sorted(self._owned), strays))

    # What is shared.

    async def share(self) -> Share:
        lease = await self._join("serve")
        lease.has_news.clear()

        def work(session: Session, again: bool) -> Share:
            ended = self._take_over(session)
            with session.transaction():
                session.run(_LOCK)
                server = self._present(session)
                ended += ["a process that has ended" for _ in _settle_orphans(session, self._now())]
                ((servers, before_us, owned),) = session.run(_SHARES, server)
                fair = SHARED // servers + (before_us < SHARED % servers)
                taken = session.run(_TAKE_FREE, server, fair - owned) if fair > owned else []
                if again:  # the first try may have taken them, and its answer was lost
                    known = self._owned | self._giving_up
                    taken = [(id,) for (id,) in session.run(_OURS, server) if id not in known]
                if taken:
                    self._look_at_machines(session)
            return Share(sorted(id for (id,) in taken), max(0, owned - fair), ended)

        share = await self._write(work)
        self._owned.update(share.taken)
        return share

    def should_share(self) -> bool:
        return self._lease is not None and self._lease.has_news.is_set()

    async def give_up(self, partitions: Collection[int]) -> None:
        self._owned.difference_update(partitions)
        if self._lease is not None:
            server = self._lease.server
            self._giving_up.update(partitions)
            try:
                await self._write(lambda session, again: session.run(_FREE, server, sorted(partitions)))
            finally:
                self._giving_up.difference_update(partitions)
                self._owned.difference_update(partitions)  # `rejoin` may have read them as ours meanwhile
            self._lease.notify_everyone()

    async def owned(self, partitions: Collection[int]) -> frozenset[int]:
        return frozenset(id for (id,) in await self._read(_OWNED, sorted(partitions)))

    async def orphaned_partitions(self) -> list[int]:
        return [id for (id,) in await self._read(_ORPHANED)]

    async def families(self, partitions: Sequence[int]) -> list[RunId]:
        return [RunId(run) for (run,) in await self._read(_FAMILIES, partitions)]

    async def disown_families(self, families: Sequence[RunId], home: int) -> None:
        def work(session: Session, again: bool) -> None:
            with session.transaction():
                session.run(_LOCK)
                if (home,) in session.run(_OURS, self._present(session)):
                    ((nobodys,),) = session.run(_NOBODYS, FIRST_PRIVATE)
                    _move(session, [home], families, nobodys)

        await self._write(work)

    async def servers(self) -> list[Server]:
        rows = await self._read(_SERVERS)
        return [Server(name, role == "serve", partitions, until) for name, role, partitions, until in rows]


def take_over(session: Session, database: Database) -> list[str]:
    """End whoever fell silent, except ourselves. It frees partitions.

    Their sessions end first, for an open transaction holds the row.
    """
    database.settle(session)
    silent = session.run(_SILENT, database.clock.now(), database.token)
    if not silent:
        return []
    try:
        session.run(_END_SESSIONS, [token for _, token in silent])
    except psycopg.errors.InsufficientPrivilege:
        pass  # their transaction ends by itself, after a lease's time
    return [name for (name,) in session.run(_TAKE_OVER, database.clock.now(), [id for id, _ in silent])]


def _move_all(session: Session, free: list[int], home: int) -> list[tuple[int, RunId]]:
    """Which of the runs have open work, and where they were."""
    at_work = session.run(_ALL_AT_WORK, free)
    session.run(_MOVE_ALL_RUNS, home, free)
    session.run(_MOVE_ALL_MESSAGES, home, free)
    return at_work


def _move(session: Session, free: list[int], families: Sequence[RunId], home: int) -> list[tuple[int, RunId]]:
    at_work: list[tuple[int, RunId]] = []
    for family in families:
        bounds = (family, f"{family}.", f"{family}/")  # "/" comes right behind "."
        at_work += session.run(_FAMILY_AT_WORK, free, *bounds)
        session.run(_MOVE_RUNS, home, free, *bounds)
        session.run(_MOVE_MESSAGES, home, free, *bounds)
    return at_work


def _settle_orphans(session: Session, now: Instant) -> list[int]:
    """What private processes left behind comes among what is shared; which of them.

    The new owners do not know of it: runs with work or a due time get a message that wakes them.
    """
    settled = []
    for (partition,) in session.run(_ORPHANED):
        if partition <= SHARED or (session.run(_IS_THERE, partition) and not session.run(_LOCK_FREE, [partition])):
            continue
        runs = [run for (run,) in session.run(_LEFT_BEHIND, partition, SETTLED_AT_ONCE)]
        homes = [birthplace(run, 1) for run in runs]
        moved = session.run(_SETTLE_RUNS, runs, homes, partition)
        session.run(_SETTLE_MESSAGES, runs, homes, partition)
        send_all(session, [(Message(run, now, WAKE), home) for run, home, must_wake in moved if must_wake])
        settled.append(partition)
    return settled
