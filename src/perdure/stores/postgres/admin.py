"""Administration of one database: its schema, its figures, a snapshot of it, and import into an empty one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from perdure.kernel.json_values.values import Instant
from perdure.stores.admin import Owner, RunCounts, Schema, StoreImport, StoreSnapshot, StoreStatistics, TableSize
from perdure.stores.errors import StoreInUse, StoreNewer, StoreNotEmpty
from perdure.stores.postgres.database import Database, PostgresSettings, migration_names
from perdure.stores.postgres.record_import import RecordImport, storable_record
from perdure.stores.postgres.session import ConnectionLost
from perdure.stores.record_export import COUNTED, WRONG_COUNTS, RecordExport
from perdure.stores.records import Record

# Whole tables are read here, by plans that the settings of our other sessions rule out.
_SETTINGS = """
RESET plan_cache_mode; RESET enable_seqscan; RESET enable_hashjoin; RESET enable_mergejoin;
SET idle_in_transaction_session_timeout = 0;
SET lock_timeout = '10s'
"""
FILLED = ("runs", "log", "programs", "resources", "inbox", "limits", "permits", "tasks", "memories")
WRITTEN = f"servers, partitions, editions, large_values, snapshots, stream_rows, task_logs, {', '.join(FILLED)}"

Connection = psycopg.Connection[Any]


class PostgresAdmin:
    def __init__(self, url: str) -> None:
        self._database = Database(url, PostgresSettings())
        self.address = self._database.address
        parameters = conninfo_to_dict(url)
        self.identity = "postgresql " + " ".join(str(parameters.get(name, "")) for name in ("host", "port", "dbname"))

    def schema(self) -> Schema:
        with self._connected() as connection:
            return self._schema(connection)

    def _schema(self, connection: Connection) -> Schema:
        names = migration_names()
        version, compatible = 0, 0
        if _one(connection, "SELECT to_regclass('perdure.schema')")[0] is not None:
            rows = connection.execute("SELECT version, compatible FROM perdure.schema").fetchall()
            version, compatible = rows[0] if rows else (0, 0)
        if compatible > len(names):
            raise StoreNewer(
                f"{self.address} has schema {version}, which needs a Perdure that knows schema {compatible};"
                f" this one knows schemas up to {len(names)}",
                hint="Upgrade Perdure, or choose another database with --db. Nothing was touched.",
            )
        return Schema(version, len(names), names[version:])

    def migrate(self) -> None:
        session = self._database.connect("care")
        try:
            self._database.migrate(session)
            self._database.refuse_foreign(session)
        except (psycopg.Error, ConnectionLost) as error:
            raise self._database.explain(error) from None
        finally:
            session.close()

    # Figures.

    def statistics(self, with_tables: bool = True) -> StoreStatistics:  # the database knows their sizes
        with self._opened() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return self._figures(connection)

    def _figures(self, connection: Connection) -> StoreStatistics:
        (version,) = _one(connection, "SELECT current_setting('server_version')")
        now = _now(connection)
        figures = StoreStatistics(f"PostgreSQL {version.split()[0]}", self._schema(connection), now)
        figures.owners = _owners(connection, now)
        figures.runs = _runs(connection, now)
        figures.messages, figures.oldest_message = _one(connection, "SELECT count(*), min(at) FROM inbox")
        figures.permits_held, figures.permits_waiting = _one(
            connection, "SELECT count(*) FILTER (WHERE granted), count(*) FILTER (WHERE NOT granted) FROM permits"
        )
        figures.tasks_ready, figures.tasks_leased = _one(
            connection,
            "SELECT count(*) FILTER (WHERE state = 'ready'), count(*) FILTER (WHERE state = 'leased') FROM tasks",
        )
        (figures.resources,) = _one(connection, "SELECT count(*) FROM resources")
        figures.tables = _tables(connection)
        figures.bytes = sum(table.bytes for table in figures.tables)
        figures.connections = _one(
            connection,
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),"
            " current_setting('max_connections')::int",
        )
        return figures

    def recount(self) -> int:
        with self._opened() as connection:
            connection.execute("BEGIN")
            connection.execute("LOCK TABLE runs IN SHARE ROW EXCLUSIVE MODE")
            wrong = len(connection.execute(WRONG_COUNTS).fetchall())
            if wrong:
                connection.execute("DELETE FROM run_count_changes")
                connection.execute("DELETE FROM run_count_sums")
                connection.execute(f"INSERT INTO run_count_sums {COUNTED}")
            connection.execute("COMMIT")
        return wrong

    # All of it.

    @contextmanager
    def snapshot(self) -> Iterator[StoreSnapshot]:
        with self._opened() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield _Snapshot(connection)

    @contextmanager
    def exclusive(self) -> Iterator[StoreSnapshot]:
        """Locks on the tables keep everybody from writing, engines that want to begin too."""
        with self._opened() as connection:
            self._refuse_live(connection)  # before anybody has to wait for our locks
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            self._lock(connection, "SHARE")
            self._refuse_live(connection)
            yield _Snapshot(connection)

    @contextmanager
    def import_into(self) -> Iterator[StoreImport]:
        """One transaction: nothing is to be seen before it is whole, and nothing is left when it breaks off."""
        self.migrate()
        with self._opened() as connection:
            self._refuse_live(connection)
            connection.execute("BEGIN")
            self._lock(connection, "SHARE ROW EXCLUSIVE")
            self._refuse_live(connection)
            for table in FILLED:
                if _one(connection, f"SELECT EXISTS (SELECT 1 FROM {table})")[0]:
                    raise StoreNotEmpty(f"{self.address} is not empty: it has the table {table}")
            yield _Import(connection)
            connection.execute("COMMIT")
            connection.execute(f"ANALYZE {WRITTEN}")

    def _lock(self, connection: Connection, mode: str) -> None:
        try:
            connection.execute(f"LOCK TABLE {WRITTEN} IN {mode} MODE")
        except errors.LockNotAvailable:
            raise StoreInUse(
                f"{self.address} is in use: another session has been writing for 10 s",
                hint="Find it in pg_stat_activity (an engine, a dump, an open psql) and end it, then try again.",
            ) from None

    def _refuse_live(self, connection: Connection) -> None:
        now = _now(connection)
        live = connection.execute("SELECT name, until - %s FROM servers WHERE until >= %s", (now, now)).fetchall()
        if live:
            names = ", ".join(f"{name} (its lease lasts {remaining / 1e6:.1f} s more)" for name, remaining in live)
            raise StoreInUse(
                f"{self.address} is in use: {len(live)} live engine{'' if len(live) == 1 else 's'}: {names}",
                hint="Stop every engine on the store; one that was killed counts as running until its lease is over.",
            )

    # Connections.

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        session = self._database.connect("care")
        try:
            session.execute(_SETTINGS)
            yield session.connection
        except (psycopg.Error, ConnectionLost) as error:
            raise self._database.explain(error) from error
        finally:
            session.close()  # which rolls back what was not committed

    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        """With a store in it that this program can work with."""
        session = self._database.connect("care")
        try:
            self._database.refuse_foreign(session)
        except (psycopg.Error, ConnectionLost) as error:
            raise self._database.explain(error) from None
        finally:
            session.close()
        with self._connected() as connection:
            yield connection


class _Snapshot(RecordExport):
    last_version = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM resource_versions"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers = count()

    def select(self, query: str, at_once: int = 500) -> Iterator[tuple[Any, ...]]:
        with self._connection.cursor(f"care_{next(self._numbers)}", binary=True) as cursor:
            cursor.itersize = at_once
            yield from cursor.execute(query)

    def program(self, digest: bytes) -> tuple[str, bytes] | None:
        stored = self._connection.execute(
            "SELECT language, text FROM programs WHERE digest = %s", (digest,), binary=True
        )
        row: tuple[str, bytes] | None = stored.fetchone()
        return row


class _Import(_Snapshot):
    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.import_batch = RecordImport(connection).import_batch

    def as_stored(self, batch: Sequence[Record]) -> Sequence[Record]:
        return [storable_record(record) for record in batch]


def _one(connection: Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row


def _owners(connection: Connection, now: Instant) -> list[Owner]:
    rows = connection.execute(
        "SELECT name, role = 'serve', epoch, until, coalesce((SELECT array_agg(p.id ORDER BY p.id) FROM partitions p"
        " WHERE p.owner = servers.id), '{}') FROM servers ORDER BY servers.id"
    )
    return [
        Owner(name, partitions, until >= now, serves=serves, epoch=epoch, left=until - now)
        for name, serves, epoch, until, partitions in rows
    ]


def _runs(connection: Connection, now: Instant) -> RunCounts:
    counts = RunCounts()
    kept = "SELECT status, sum(number)::bigint FROM run_counts GROUP BY status HAVING sum(number) <> 0 ORDER BY status"
    counts.by_status = dict(connection.execute(kept).fetchall())
    counts.open, counts.at_work, counts.parked, counts.overdue = _one(
        connection,
        "SELECT count(*), count(*) FILTER (WHERE has_work),"
        " count(*) FILTER (WHERE NOT has_work AND coalesce(due, on_wall) IS NOT NULL),"
        f" count(*) FILTER (WHERE NOT has_work AND due <= {now:d}) FROM runs WHERE ended_at IS NULL",
    )
    (counts.stuck,) = _one(connection, "SELECT count(*) FROM runs WHERE stuck IS NOT NULL")
    counts.total = sum(counts.by_status.values())
    counts.ended = counts.total - counts.open
    (counts.unowned,) = _one(
        connection,
        "SELECT count(*) FROM runs WHERE ended_at IS NULL AND partition NOT IN (SELECT p.id FROM partitions p"
        f" JOIN servers s ON s.id = p.owner WHERE s.until >= {now:d})",
    )
    return counts


def _tables(connection: Connection) -> list[TableSize]:
    rows = connection.execute(
        "SELECT s.relname, greatest(s.n_live_tup, c.reltuples)::bigint, pg_total_relation_size(s.relid), s.n_dead_tup,"
        " (extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum)) * 1000000)::bigint"
        " FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid WHERE s.schemaname = 'perdure' ORDER BY 3 DESC"
    )
    return [TableSize(*row) for row in rows]


def _now(connection: Connection) -> Instant:
    """The store's clock; one whose schema is older has only the database's."""
    (has_clock,) = _one(connection, "SELECT to_regprocedure('perdure.instant()') IS NOT NULL")
    now = "perdure.instant()" if has_clock else "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    (at,) = _one(connection, f"SELECT {now}")
    return int(at)
