"""Store administration: the contract for figures, schema, copies and backups of a whole store.

It is separate from `protocol`: an engine needs none of it, and administration needs none of the engine's methods. Its
methods block.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.errors import CopyDiffers
from perdure.stores.records import Record, RecordDigest, RunRecord


class Schema(msgspec.Struct, frozen=True):
    """Which schema a store has, and which ones this Perdure would bring it to."""

    version: int  # 0: there is none yet
    newest: int
    missing: Sequence[str] = ()  # migrations by name, in order


class Owner(msgspec.Struct, frozen=True):
    """A process that owns partitions, or owned them last."""

    name: str
    partitions: Sequence[int]
    is_live: bool
    serves: bool | None = None  # None: the store does not tell
    epoch: int | None = None
    left: Instant | None = None  # microseconds until its lease is over; negative: it is


class RunCounts(msgspec.Struct):
    by_status: dict[str, int] = {}
    total: int = 0
    open: int = 0
    at_work: int = 0  # open work in an owner's process
    parked: int = 0  # on disk until a due time
    overdue: int = 0  # and that has come
    stuck: int = 0
    ended: int = 0
    unowned: int = 0  # open, in a partition without a live owner


class TableSize(msgspec.Struct, frozen=True):
    name: str
    rows: int
    bytes: int  # with indexes
    dead: int | None = None  # rows that wait for vacuum
    vacuumed: Instant | None = None  # microseconds ago


class StoreStatistics(msgspec.Struct):
    """Figures of a store. They are counted by the database, cheaply enough for a monitor."""

    kind: str  # SQLite 3.45, PostgreSQL 18.1
    schema: Schema
    now: Instant
    bytes: int = 0
    owners: list[Owner] = []
    runs: RunCounts = msgspec.field(default_factory=RunCounts)
    messages: int = 0
    oldest_message: Instant | None = None
    permits_held: int = 0
    permits_waiting: int = 0
    tasks_ready: int = 0
    tasks_leased: int = 0
    resources: int = 0
    tables: list[TableSize] = []
    connections: tuple[int, int] | None = None  # used and allowed, of the server


class OrphanRow(msgspec.Struct, frozen=True):
    """Something that belongs to nothing."""

    what: str  # one of `records.KINDS`, or "store"
    run: RunId | None
    message: str


class StoreSnapshot(Protocol):
    """A store as it was at one moment."""

    def dump(self) -> Iterator[Sequence[Record]]:
        """Everything, in the order and the batches that `records` describes."""

    def program(self, digest: bytes) -> tuple[str, bytes] | None:
        """Language and text of a pinned document."""

    def orphan_rows(self, limit: int) -> Iterator[OrphanRow]:
        """What belongs to nothing: rows of runs that are not there, permits of runs that have ended."""


class StoreImport(StoreSnapshot, Protocol):
    def as_stored(self, batch: Sequence[Record]) -> Sequence[Record]:
        """The same records as this store will have them: not every database can hold every text."""

    def import_batch(self, batch: Sequence[Record]) -> None:
        """Take in what another store's `dump` gave, batch by batch in its order."""


class StoreAdmin(Protocol):
    address: str  # without a password
    identity: str  # equal for two addresses of one store, as far as that can be seen

    def schema(self) -> Schema: ...

    def migrate(self) -> None:
        """Bring the schema up to date; it is safe to do so twice, or beside others who do."""

    def statistics(self, with_tables: bool = True) -> StoreStatistics:
        """Without the sizes of tables it costs the same however many runs have ended."""

    def recount(self) -> int:
        """Count the runs again, and tell how many of the counts that are kept with them were wrong."""

    def snapshot(self) -> AbstractContextManager[StoreSnapshot]:
        """The store as it is now, whatever others write meanwhile."""

    def exclusive(self) -> AbstractContextManager[StoreSnapshot]:
        """The same, and nobody can write until it is over; `StoreInUse` when somebody owns runs just now."""

    def import_into(self) -> AbstractContextManager[StoreImport]:
        """An empty store that takes things in: all of them when the block ends well, else none.

        `StoreNotEmpty`, `StoreInUse`.
        """


# From one store into another, whatever they are: all of it, proven to be the same, or nothing.


class CopyResult(msgspec.Struct, frozen=True):
    tally: RecordDigest
    open_runs: int


def copy_store(
    source: StoreAdmin,
    target: StoreAdmin,
    on_progress: Callable[[str, RecordDigest], None] = lambda stage, so_far: None,
) -> CopyResult:
    """Copy everything but caches, and compare what has arrived before anybody can see it."""
    expected, stored = RecordDigest(), RecordDigest()
    open_runs = 0
    with source.exclusive() as reading, target.import_into() as filling:
        for batch in _counted(map(filling.as_stored, reading.dump()), expected):
            filling.import_batch(batch)
            open_runs += sum(isinstance(record, RunRecord) and record.ended_at is None for record in batch)
            on_progress("copied", expected)
        for _ in _counted(filling.dump(), stored):
            on_progress("compared", stored)
        differences = expected.differences(stored)
        if differences:
            description = ", ".join(
                f"{name} ({stored.counts[name]} of {expected.counts[name]})" for name in differences
            )
            raise CopyDiffers(f"the copy in {target.address} differs from {source.address}: {description}")
    return CopyResult(expected, open_runs)


def _counted(batches: Iterator[Sequence[Record]], tally: RecordDigest) -> Iterator[Sequence[Record]]:
    for batch in batches:
        tally.update(batch)
        yield batch
