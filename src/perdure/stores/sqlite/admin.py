"""Administration of one SQLite file: its schema, its figures, a snapshot of it, and import into a new one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from perdure.kernel.json_values.values import Instant
from perdure.stores.admin import (
    OrphanRow,
    Owner,
    RunCounts,
    Schema,
    StoreImport,
    StoreSnapshot,
    StoreStatistics,
    TableSize,
)
from perdure.stores.errors import StoreInUse, StoreNotEmpty
from perdure.stores.record_export import COUNTED, WRONG_COUNTS, RecordExport
from perdure.stores.records import Record
from perdure.stores.sqlite.database import (
    explained,
    migration_names,
    needs_migration,
    open_for_reading,
    open_for_writing,
)
from perdure.stores.sqlite.partition_locks import is_locked
from perdure.stores.sqlite.record_import import RecordImport

FILLED = ("runs", "log", "programs", "resources", "inbox", "limits", "permits", "tasks", "memories")


class SqliteAdmin:
    def __init__(self, path: Path, now: Callable[[], Instant]) -> None:
        self.path = path
        self.address = f"sqlite:///{path}"
        self.identity = str(path.resolve())
        self._now = now

    def schema(self) -> Schema:
        names = list(migration_names())
        if not self.path.exists():
            return Schema(0, len(names), names)
        with explained(self.path), _closing(open_for_reading(self.path)) as connection:
            return _schema(connection)

    def migrate(self) -> None:
        open_for_writing(self.path).close()

    def statistics(self, with_tables: bool = True) -> StoreStatistics:
        with explained(self.path), _closing(self._open()) as connection:
            connection.execute("BEGIN")
            figures = self._figures(connection)
            if with_tables:  # every page of the file is looked at
                figures.tables = _tables(connection)
            return figures

    def _figures(self, connection: apsw.Connection) -> StoreStatistics:
        def one(query: str) -> tuple[Any, ...]:
            row: tuple[Any, ...] = next(connection.execute(query))
            return row

        now = self._now()
        figures = StoreStatistics(f"SQLite {apsw.sqlite_lib_version()}", _schema(connection), now)
        beside = [self.path.with_name(self.path.name + end) for end in ("", "-wal")]
        figures.bytes = sum(path.stat().st_size for path in beside if path.exists())
        figures.owners = self._owners(connection)
        figures.runs = self._runs(connection, now, {id for owner in figures.owners for id in owner.partitions})
        figures.messages, figures.oldest_message = one("SELECT count(*), min(at) FROM inbox")
        figures.permits_held, figures.permits_waiting = one(
            "SELECT count(*) FILTER (WHERE granted = 1), count(*) FILTER (WHERE granted = 0) FROM permits"
        )
        figures.tasks_ready, figures.tasks_leased = one(
            "SELECT count(*) FILTER (WHERE state = 'ready'), count(*) FILTER (WHERE state = 'leased') FROM tasks"
        )
        (figures.resources,) = one("SELECT count(*) FROM resources")
        return figures

    def _owners(self, connection: apsw.Connection) -> list[Owner]:
        """A lock of the operating system says that there is one, not who."""
        epochs = dict(connection.execute("SELECT id, epoch FROM partitions ORDER BY id"))
        return [
            Owner("a process on this machine", [id], True, is_locked(self.path, id, by_server=True), epoch)
            for id, epoch in epochs.items()
            if is_locked(self.path, id)
        ]

    def _runs(self, connection: apsw.Connection, now: Instant, owned: set[int]) -> RunCounts:
        counts = RunCounts()
        kept = connection.execute("SELECT status, sum(number) FROM run_counts GROUP BY status ORDER BY status")
        counts.by_status = {status: number for status, number in kept if number}
        counts.open, counts.at_work, counts.parked, counts.overdue = next(
            connection.execute(
                "SELECT count(*), count(*) FILTER (WHERE has_work = 1),"
                " count(*) FILTER (WHERE has_work = 0 AND coalesce(due, on_wall) IS NOT NULL),"
                " count(*) FILTER (WHERE has_work = 0 AND due <= ?) FROM runs WHERE ended_at IS NULL",
                (now,),
            )
        )
        counts.stuck = connection.execute("SELECT count(*) FROM runs WHERE stuck IS NOT NULL").get
        counts.total = sum(counts.by_status.values())
        counts.ended = counts.total - counts.open
        counts.unowned = sum(
            count
            for partition, count in connection.execute(
                "SELECT partition, count(*) FROM runs WHERE ended_at IS NULL GROUP BY partition"
            )
            if partition not in owned
        )
        return counts

    def recount(self) -> int:
        self._open().close()  # which makes no file
        with explained(self.path), _closing(open_for_writing(self.path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            wrong = len(list(connection.execute(WRONG_COUNTS)))
            if wrong:
                connection.execute("DELETE FROM run_counts")
                connection.execute(f"INSERT INTO run_counts {COUNTED}")
            connection.execute("COMMIT")
        return wrong

    @contextmanager
    def snapshot(self) -> Iterator[StoreSnapshot]:
        with explained(self.path), _closing(self._open()) as connection:
            connection.execute("BEGIN")
            yield _Snapshot(connection)

    @contextmanager
    def exclusive(self) -> Iterator[StoreSnapshot]:
        """The write lock of the file keeps everybody from writing, engines that want to begin too."""
        with explained(self.path), _closing(self._open()) as connection:
            connection.pragma("query_only", False)  # which would take no lock
            connection.execute("BEGIN IMMEDIATE")  # on a file that may only be read this takes none, and needs none
            self._refuse_live(connection)
            yield _Snapshot(connection)

    @contextmanager
    def import_into(self) -> Iterator[StoreImport]:
        """One transaction: nothing is to be seen before it is whole, and nothing is left when it breaks off."""
        with explained(self.path), _closing(open_for_writing(self.path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._refuse_live(connection)
            for table in FILLED:
                if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").get is not None:
                    raise StoreNotEmpty(f"{self.path} is not empty: it has the table {table}")
            yield _Import(connection)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _open(self) -> apsw.Connection:
        connection = open_for_reading(self.path)
        if needs_migration(connection):
            connection.close()
            self.migrate()
            connection = open_for_reading(self.path)
        return connection

    def _refuse_live(self, connection: apsw.Connection) -> None:
        owned = [id for owner in self._owners(connection) for id in owner.partitions]
        if owned:
            raise StoreInUse(f"{self.path} is in use: a live engine owns runs in it", partitions=owned)


class _Snapshot(RecordExport):
    last_version = "SELECT last FROM catalog_version"

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def select(self, query: str, at_once: int = 500) -> Iterator[tuple[Any, ...]]:
        return iter(self._connection.execute(query))

    def program(self, digest: bytes) -> tuple[str, bytes] | None:
        row: tuple[str, bytes] | None = self._connection.execute(
            "SELECT language, text FROM programs WHERE digest = ?", (digest,)
        ).get
        return row

    def orphan_rows(self, limit: int) -> Iterator[OrphanRow]:
        for (message,) in self._connection.execute(f"PRAGMA integrity_check({limit})"):
            if message != "ok":
                yield OrphanRow("store", None, message)
        yield from super().orphan_rows(limit)


class _Import(_Snapshot):
    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self.import_batch = RecordImport(connection).import_batch

    def as_stored(self, batch: Sequence[Record]) -> Sequence[Record]:
        return batch


def _schema(connection: apsw.Connection) -> Schema:
    names = list(migration_names())
    version: int = connection.pragma("user_version")
    return Schema(version, len(names), names[version:])


def _tables(connection: apsw.Connection) -> list[TableSize]:
    sizes = dict[str, int]()
    of_table = dict(connection.execute("SELECT name, tbl_name FROM sqlite_schema"))
    for name, size in connection.execute("SELECT name, pgsize FROM dbstat WHERE aggregate = TRUE"):
        table = of_table.get(name, name)
        sizes[table] = sizes.get(table, 0) + size
    tables = [table for table in sizes if not table.startswith("sqlite_")]
    return sorted(
        (TableSize(table, connection.execute(f"SELECT count(*) FROM {table}").get, sizes[table]) for table in tables),
        key=lambda table: -table.bytes,
    )


@contextmanager
def _closing(connection: apsw.Connection) -> Iterator[apsw.Connection]:
    try:
        yield connection
    finally:
        connection.close(True)  # which rolls back what was not committed
