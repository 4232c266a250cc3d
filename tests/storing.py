"""Which stores the tests run on: the one place that opens the store under test.

    @pytest.mark.every_store                  on SQLite and PostgreSQL 18, and in turns on PostgreSQL 15
    @pytest.mark.every_store(postgres18=5)    at one commit in five on PostgreSQL 18 (see `tests/sampling.py`)
    PERDURE_TEST_STORE=postgres15             those tests on that store alone

A new SQLite file of a world is the copy of an empty one: that takes half as long as its schema. Tests of the store
itself create theirs. On PostgreSQL every folder of a test has a database of its own. There are only a few, used again
and again: emptying one takes milliseconds, creating one takes long.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
import pytest

from perdure.kernel.json_values.values import Instant
from perdure.stores.protocol import Store
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.opening import sqlite_path, worlds_on
from tests.postgres import OLDEST_SHARE, as_url

if TYPE_CHECKING:
    from perdure.stores.postgres.store import PostgresStore
    from tests.postgres import Server

SQLITE = "sqlite"
EVERY = {SQLITE: 1, "postgres15": OLDEST_SHARE, "postgres18": 1}  # at one commit in so many
__all__ = ["EVERY", "SQLITE", "Databases", "chosen", "open_file", "worlds_on"]

CHOSEN = "PERDURE_TEST_STORE"

IN_USE_AT_ONCE = 3  # folders of one test


def chosen(**shares: int) -> list[Any]:
    """Parameters of a test: the stores, each with its share of commits."""
    named = os.environ.get(CHOSEN)
    if named is None:
        return [
            pytest.param(store, marks=pytest.mark.sampled(shares.get(store, share))) for store, share in EVERY.items()
        ]
    if named not in EVERY:
        raise pytest.UsageError(f"{CHOSEN}={named}: one of {', '.join(EVERY)}")
    return [pytest.param(named)]


def open_file(folder: Path, now: Callable[[], Instant]) -> Store:
    """The SQLite store of a world."""
    path = sqlite_path(folder)
    if not path.exists():
        path.touch(0o600)
        path.write_bytes(_empty_file())
    return SqliteStore(path, now)


@cache
def _empty_file() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        SqliteStore(path, lambda: 0).abandon()
        return path.read_bytes()


def _mortal_store(url: str, now: Callable[[], Instant]) -> "PostgresStore":
    """A store of which is known when its process has died."""
    from perdure.stores.postgres.store import PostgresStore

    class MortalStore(PostgresStore):
        is_dead = False

        def abandon(self) -> None:
            super().abandon()
            self.is_dead = True

    return MortalStore(url, now)


# Databases that are used again and again.


@dataclass
class _Database:
    url: str
    connection: "psycopg.Connection[Any]"  # kept: a new one costs the server ten times what emptying does
    folder: Path | None = None
    opened: list[Any] = field(default_factory=list)

    def renew(self, folder: Path) -> None:
        """Empty it for another folder."""
        self.folder = folder
        self.opened.clear()
        self._execute("SELECT fresh.restore()")

    def bury(self) -> None:
        """Stores that were abandoned are dead processes: their leases are over, nobody has to wait for that."""
        dead = [store._database.token for store in self.opened if store.is_dead]
        self.opened = [store for store in self.opened if not store.is_dead]
        if dead:
            self._execute("UPDATE perdure.servers SET until = 0 WHERE token = ANY(%s)", dead)

    def _execute(self, statement: LiteralString, *values: Any) -> None:
        try:
            self.connection.execute(statement, values)
        except psycopg.OperationalError:  # a test has ended all connections
            self.connection.close()
            self.connection = psycopg.connect(self.url, autocommit=True)
            self.connection.execute(statement, values)


class Databases:
    """Of one server and one worker of the test session."""

    def __init__(self, server: "Server", stack: ExitStack) -> None:
        self._server = server
        self._stack = stack
        self._made: list[_Database] = []  # the one used longest ago first
        self._gone: set[Path] = set()

    def open(self, folder: Path, now: Callable[[], Instant]) -> Store:
        database = self._of(folder)
        database.bury()
        opened = _mortal_store(database.url, now)
        database.opened.append(opened)
        return opened

    def _of(self, folder: Path) -> _Database:
        assert folder not in self._gone, f"{folder}: more than {IN_USE_AT_ONCE} folders in use at once"
        slot = next((candidate for candidate in self._made if candidate.folder == folder), None)
        if slot is None:
            slot = self._free()
            slot.renew(folder)
        self._made.remove(slot)
        self._made.append(slot)
        return slot

    def _free(self) -> _Database:
        free = next((candidate for candidate in self._made if candidate.folder is None), None)
        if free is None and len(self._made) < IN_USE_AT_ONCE:
            free = self._make()
        if free is None:
            free = self._made[0]
            assert free.folder is not None
            self._gone.add(free.folder)
        return free

    def _make(self) -> _Database:
        from perdure.stores.postgres.store import PostgresStore

        url = as_url(self._stack.enter_context(self._server.database()))
        PostgresStore(url, lambda: 0).abandon()  # it has made the schema
        made = _Database(url, psycopg.connect(url, autocommit=True))
        made.connection.execute(_REMEMBER)
        self._stack.callback(lambda: made.connection.close())
        self._made.append(made)
        return made

    def forget(self) -> None:
        """The test is over."""
        for made in self._made:
            made.folder = None
        self._gone.clear()


_REMEMBER = """
CREATE SCHEMA fresh;

DO $$
DECLARE one text;
BEGIN
    FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = 'perdure' LOOP
        EXECUTE format('CREATE TABLE fresh.%1$I AS SELECT * FROM perdure.%1$I', one);
    END LOOP;
END $$;

CREATE FUNCTION fresh.restore() RETURNS void LANGUAGE plpgsql AS $$
DECLARE one text;
BEGIN
    SET LOCAL session_replication_role = replica;  -- no foreign keys on the way
    FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = 'perdure' LOOP
        EXECUTE format('DELETE FROM perdure.%I', one);
        EXECUTE format('INSERT INTO perdure.%1$I OVERRIDING SYSTEM VALUE SELECT * FROM fresh.%1$I', one);
    END LOOP;
END $$;
"""
