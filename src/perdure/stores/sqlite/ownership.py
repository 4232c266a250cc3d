"""Who owns what on one file: a process has one partition, one row and one lock.

    claim, share ──▶ ours ──give_up, close──▶ nobody's ──move, share──▶ ours, in our own partition
                      └──somebody found our lock free and moved what we had──▶ fenced: the row is gone

What the dead left is moved in one transaction, while its lock is held; so nobody ever owns two partitions.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from zlib import crc32

import apsw

from perdure.kernel.ids import ServerGroup, root_of
from perdure.kernel.json_values.values import RunId
from perdure.kernel.tasks.crash_attribution import LossKind
from perdure.kernel.versions import RECORDS
from perdure.stores import clocks
from perdure.stores.protocol import AdoptedRuns, Server, Share
from perdure.stores.sqlite.batch_writer import BatchWriter
from perdure.stores.sqlite.fence import EPOCH, fence_off, fenced_partitions, raise_epoch
from perdure.stores.sqlite.partition_locks import (
    LockWatch,
    OwnerLosses,
    PartitionLock,
    group_of_owner,
    is_locked,
    lock_path,
    try_lock,
)
from perdure.stores.sqlite.store_part import StorePart

_log = logging.getLogger("perdure.store")


LOCKED_AT_ONCE = 8  # partitions of the dead that are moved in one transaction: a lock is an open file
CLEARED_AT_ONCE = 8  # rows that a newcomer looks at
TAKEN_WHOLE = 16  # families of a dead owner that one process of a group takes; of more each takes its part
GATHERING = 5.0  # seconds that a process of a group leaves their part to those that are still starting
PARTITIONS = "SELECT id FROM partitions ORDER BY id"

_DISTINCT = (
    "WITH RECURSIVE step (id) AS (SELECT (SELECT partition FROM {table} {where} ORDER BY partition LIMIT 1) UNION ALL"
    " SELECT (SELECT partition FROM {table} WHERE partition > step.id {more} ORDER BY partition LIMIT 1)"
    " FROM step WHERE step.id IS NOT NULL) SELECT id FROM step WHERE id IS NOT NULL"
)
_WITH_OPEN_RUNS = _DISTINCT.format(table="runs", where="WHERE ended_at IS NULL", more="AND ended_at IS NULL")
_WITH_MESSAGES = _DISTINCT.format(table="inbox", where="", more="")
_IS_USED = (
    "SELECT EXISTS (SELECT 1 FROM runs WHERE partition = ?1 AND ended_at IS NULL)"
    " OR EXISTS (SELECT 1 FROM inbox WHERE partition = ?1)"
)
_FAMILY = "(id = ?3 OR id >= ?4 AND id < ?5)"


class PartitionOwnership(StorePart):
    """The owning verbs of a store that can read and run a transaction."""

    _turn: asyncio.Lock
    _writing: tuple[apsw.Connection, BatchWriter] | None
    _is_lost: bool

    def __init__(self, group: ServerGroup | None) -> None:
        self._group = group
        self._began = time.monotonic()
        self._watch: LockWatch | None = None
        self._locks: dict[int, PartitionLock] = {}
        self._epochs: dict[int, int] = {}
        self._is_late = False
        self._serves = False
        self._losses = OwnerLosses(lambda query, bindings: self._read(query, bindings))

    # One's own.

    async def claim(self) -> int:
        home = await self._claim(serves=False)
        assert home is not None
        return home

    async def _claim(self, *, serves: bool) -> int | None:
        """None: another server serves the file. Of several that want to, one does: they sign one after the other."""
        locks: list[PartitionLock] = []

        def work() -> tuple[int, int] | None:
            served = self._served_partitions(self._connection.execute(PARTITIONS))
            if serves and any(group != self._group_name for _, group in served):
                return None
            home = self._lock_new(locks)
            locks[0].sign(serves=serves, group=self._group_name or "")
            epoch = raise_epoch(self._connection, home)
            self._clear_away(home, locks)
            return home, epoch

        with _releasing(locks):
            claimed = await self._explained_transaction(work)
            if claimed is None:
                return None
            home, epoch = claimed
            self._locks[home], self._epochs[home] = locks.pop(0), epoch
            self._watch_lock(self._locks[home])
        self._serves = serves
        return home

    @property
    def _group_name(self) -> str | None:
        return None if self._group is None else self._group.name

    def _served_partitions(self, rows: Iterable[tuple[int]]) -> list[tuple[int, str]]:
        """Those of the processes that serve the file, with their groups."""
        groups = {partition: group_of_owner(self.path, partition, by_server=True) for (partition,) in rows}
        return [(partition, group) for partition, group in groups.items() if group is not None]

    def _watch_lock(self, lock: PartitionLock) -> None:
        if self._watch is not None and not self._watch.add(lock):
            _log.debug("%s cannot be watched; it is looked at from time to time", lock.path)

    def _lock_new(self, locks: list[PartitionLock]) -> int:
        while True:
            number: int = self._connection.execute("UPDATE partition_numbers SET last = last + 1 RETURNING last").get
            # An engine of the version before takes numbers as it finds them free.
            if not self._is_used(number) and (lock := try_lock(self.path, number)) is not None:
                locks.append(lock)
                return number

    def _is_used(self, partition: int) -> bool:
        return bool(self._connection.execute(_IS_USED, (partition,)).get)

    def _clear_away(self, home: int, locks: list[PartitionLock]) -> None:
        """Whoever comes removes some of what processes that were killed have left: a row and a file, and no runs."""
        execute = self._connection.execute
        query = "SELECT id FROM partitions WHERE id <> ? ORDER BY id DESC LIMIT ?"
        for (partition,) in list(execute(query, (home, CLEARED_AT_ONCE))):
            if self._is_owned(partition) or self._is_used(partition):
                continue
            if (lock := try_lock(self.path, partition)) is not None:
                locks.append(lock)
                execute("DELETE FROM partitions WHERE id = ?", (partition,))

    async def give_up(self, partitions: Collection[int]) -> None:
        async with self._turn:
            self._strike_out(partitions)
        self._release(partitions)

    def _strike_out(self, partitions: Collection[int]) -> None:
        """Remove our rows, if that needs no waiting; else the next who comes does. Nothing rests on it: no sync."""
        if self._writing is None or self._is_lost:
            return
        connection, _ = self._writing
        try:
            connection.pragma("synchronous", "off")
            try:
                rows = [(partition,) for partition in partitions if partition in self._locks]
                connection.executemany("DELETE FROM partitions WHERE id = ?", rows)
            finally:
                connection.pragma("synchronous", "full")
        except apsw.Error as error:
            _log.debug("%s: the row of a partition was not removed: %s", self.path, error)

    def _release(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            self._epochs.pop(partition, None)
            if (lock := self._locks.pop(partition, None)) is not None:
                lock.release()

    def _look_at_locks(self) -> None:
        """Somebody may have removed our lock's file, and then somebody else may think that nobody owns what is ours."""
        for partition, lock in list(self._locks.items()):
            if not lock.is_named and not self._lock_again(partition):
                self._is_late = True

    def _lock_again(self, partition: int) -> bool:
        """Whether nobody came in between: who takes something over removes our row, while it holds the lock."""
        lock = try_lock(self.path, partition)
        if lock is None:
            return False
        rows = self._read(EPOCH, (partition,))
        if rows != [(self._epochs[partition],)]:
            lock.release()
            return False
        self._locks[partition].abandon()
        self._locks[partition] = lock
        lock.sign(serves=self._serves, group=self._group_name or "")
        self._watch_lock(lock)
        _log.warning("%s was removed while its process was running; it was created again", lock.path)
        return True

    # What has no owner.

    async def owned(self, partitions: Collection[int]) -> frozenset[int]:
        return frozenset(filter(self._is_owned, partitions))

    def _is_owned(self, partition: int) -> bool:
        return partition in self._locks or is_locked(self.path, partition)

    async def orphaned_partitions(self) -> list[int]:
        used = {id for query in (_WITH_OPEN_RUNS, _WITH_MESSAGES) for (id,) in self._read(query)}
        return [partition for partition in sorted(used) if not self._is_owned(partition)]

    async def move(self, families: Sequence[RunId] | None, home: int) -> list[AdoptedRuns]:
        partitions = await self.orphaned_partitions() if families is None else self._homes_of(families)
        adopted: list[AdoptedRuns] = []
        for first in range(0, len(partitions), LOCKED_AT_ONCE):
            adopted += await self._move(partitions[first : first + LOCKED_AT_ONCE], families, home)
        return adopted

    def _homes_of(self, families: Sequence[RunId]) -> list[int]:
        query = "SELECT DISTINCT partition FROM runs WHERE id = ?1 OR id >= ?2 AND id < ?3"
        homes = {id for family in families for (id,) in self._read(query, _bounds(family))}
        return [partition for partition in sorted(homes) if not self._is_owned(partition)]

    async def _move(self, partitions: Sequence[int], families: Sequence[RunId] | None, home: int) -> list[AdoptedRuns]:
        locks: list[PartitionLock] = []
        free: list[int] = []
        with _releasing(locks):
            for partition in partitions:
                if (lock := try_lock(self.path, partition)) is not None:
                    locks.append(lock)
                    free.append(partition)
                    self._losses.classify(lock, partition)

            def work() -> list[AdoptedRuns]:
                if fenced_partitions(self._connection, [home], self._epochs):
                    return []  # we were taken over ourselves
                return [AdoptedRuns(partition, self._move_out_of(partition, families, home)) for partition in free]

            return await self._explained_transaction(work) if free else []

    def _move_out_of(self, partition: int, families: Sequence[RunId] | None, home: int) -> list[RunId]:
        """Which of the runs have open work. Its owner, should it live and not know, is fenced by this."""
        execute = self._connection.execute
        fence_off(self._connection, partition)
        if families is None:
            runs = list(
                execute("SELECT id FROM runs WHERE has_work = 1 AND partition = ? ORDER BY number", (partition,))
            )
            # One that has ended may be reopened by its message, or be told by a relative that goes on.
            concerned = (
                "SELECT id FROM runs WHERE partition = ?1 AND ended_at IS NULL"
                " UNION ALL SELECT run FROM inbox WHERE partition = ?1"
            )
            roots = dict.fromkeys(root_of(id) for (id,) in execute(concerned, (partition,)))
            every = [(home, partition, *_bounds(root)) for root in roots]
            self._connection.executemany(f"UPDATE runs SET partition = ?1 WHERE partition = ?2 AND {_FAMILY}", every)
            execute("UPDATE inbox SET partition = ?1 WHERE partition = ?2", (home, partition))
            return [id for (id,) in runs]
        moved: list[RunId] = []
        for family in families:
            bindings = (home, partition, *_bounds(family))
            work = f"SELECT id FROM runs WHERE has_work = 1 AND partition = ?2 AND {_FAMILY} ORDER BY number"
            moved += [id for (id,) in execute(work, bindings)]
            execute(f"UPDATE runs SET partition = ?1 WHERE partition = ?2 AND {_FAMILY}", bindings)
            messages = _FAMILY.replace("id", "run")
            execute(f"UPDATE inbox SET partition = ?1 WHERE partition = ?2 AND {messages}", bindings)
        return moved

    def loss_of(self, run: RunId) -> LossKind:
        return self._losses.tell(run)

    def loss_on(self, machine: str) -> LossKind:
        return LossKind.PROCESS if machine in ("", clocks.machine()) else LossKind.STOPPED  # a file has one machine

    async def families(self, partitions: Sequence[int]) -> list[RunId]:
        roots: dict[RunId, None] = {}
        for partition in partitions:
            for query in (
                "SELECT id FROM runs WHERE partition = ? AND ended_at IS NULL ORDER BY number",
                "SELECT run FROM inbox WHERE partition = ? ORDER BY position",
            ):
                roots |= dict.fromkeys(root_of(id) for (id,) in self._read(query, (partition,)))
        return list(roots)

    async def disown_families(self, families: Sequence[RunId], home: int) -> None:
        def work() -> None:
            execute = self._connection.execute
            if fenced_partitions(self._connection, [home], self._epochs):
                return  # it is not ours any more
            nobodys = execute("UPDATE partition_numbers SET last = last + 1 RETURNING last").get
            for family in families:
                bindings = (nobodys, home, *_bounds(family))
                execute(f"UPDATE runs SET partition = ?1 WHERE partition = ?2 AND {_FAMILY}", bindings)
                messages = _FAMILY.replace("id", "run")
                execute(f"UPDATE inbox SET partition = ?1 WHERE partition = ?2 AND {messages}", bindings)

        await self._explained_transaction(work)

    async def transfer(self, runs: Sequence[RunId]) -> list[RunId]:
        return []  # locks do not tell what their owners read

    # Serving.

    async def share(self) -> Share:
        """A partition of our own, and into it all that has no owner, unless another server is there."""
        claimed: list[int] = []
        if not self._locks:
            home = await self._claim(serves=True)
            if home is None:
                return Share(is_waiting=True)
            claimed.append(home)
        home = next(iter(self._locks))
        adopted = await (self.move(None, home) if self._group is None else self._take_part(self._group, home))
        return Share(
            claimed, ended=[f"the owner of partition {adoption.partition}" for adoption in adopted], adopted=adopted
        )

    async def _take_part(self, group: ServerGroup, home: int) -> list[AdoptedRuns]:
        """A fair part of what has no owner, by the names of families. What one process leaves to another that dies
        meanwhile has no owner either, and is divided again.
        """
        orphaned = await self.orphaned_partitions()
        if not orphaned:
            return []
        served = self._served_partitions(self._read(PARTITIONS))
        members = [partition for partition, name in served if name == group.name]
        place, size = members.index(home) if home in members else 0, max(1, len(members))
        if size < group.size and time.monotonic() - self._began < GATHERING:
            place, size = group.place, group.size
        adopted: list[AdoptedRuns] = []
        for partition in orphaned:
            families = await self.families([partition])
            if len(families) <= TAKEN_WHOLE and lock_path(self.path, partition).exists():  # it has died just now
                adopted += await self._move([partition], None, home)
            elif part := [family for family in families if crc32(family.encode()) % size == place]:
                adopted += await self._move([partition], part, home)
        return adopted

    def should_share(self) -> bool:
        return False  # looking from time to time is cheap

    @property
    def is_late(self) -> bool:
        return self._is_late

    @property
    def min_record_version(self) -> int:
        return RECORDS  # owners of a file do not tell what they read

    async def rejoin(self) -> list[int]:
        epochs = dict(self._read("SELECT id, epoch FROM partitions"))
        self._release([id for id, epoch in self._epochs.items() if epochs.get(id) != epoch])
        self._is_late = False
        return list(self._epochs)

    async def servers(self) -> list[Server]:
        """Only those that serve: of others nothing is written down."""
        return [
            Server(f"the owner of partition {partition}", True, 1, 0)  # a lock lasts as long as its process
            for partition, _ in self._served_partitions(self._read(PARTITIONS))
        ]


def _bounds(family: RunId) -> tuple[str, str, str]:
    """A run and its descendants, as a text and a range of texts: "/" comes right behind "."."""
    return family, f"{family}.", f"{family}/"


@contextmanager
def _releasing(locks: list[PartitionLock]) -> Iterator[None]:
    """These locks are needed only until the transaction is over; what is taken out of the list stays."""
    try:
        yield
    finally:
        for lock in locks:
            lock.release()
