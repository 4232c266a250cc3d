"""The SQLite store passes the suite of all stores, and what is particular to one file on one disk."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from perdure.stores.errors import BadStoreUrl, StoreCorrupt, StoreMissing
from perdure.stores.protocol import RunFilter, Store
from perdure.stores.sqlite import database
from perdure.stores.sqlite.database import (
    FIRST_PAGES,
    WalPreallocation,
    migration_names,
    open_for_reading,
    open_for_writing,
    path_of,
)
from perdure.stores.sqlite.partition_locks import is_locked, lock_path, try_lock
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.store_suite import StoreSuite
from perdure.testing.transitions import created
from tests.stores import sqlite_schema


class TestSqliteStore(StoreSuite):
    def open(self, folder: Path) -> Store:
        return SqliteStore(folder / "store.db", lambda: self.now)

    async def take_over(self, late: Store, successor: Store) -> int:
        assert isinstance(late, SqliteStore)
        for partition in list(late._locks):
            late._locks.pop(partition).abandon()
        home = await successor.claim()
        await successor.move(None, home)
        return home


async def test_what_is_committed_at_once_is_committed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", lambda: 1)
    home = await store.claim()
    store._sync_cost = 0.0  # however busy the disk is just now
    assert store.commit_at_once([created("a", home)]) is not None
    await store.reopen()

    assert await store.history(created("a", home).run) == [(1, b"first")]
    await store.close()


async def test_committing_at_once_gives_way_to_another_writer(tmp_path: Path) -> None:
    """The event loop never waits for another process's lock."""
    store = SqliteStore(tmp_path / "store.db", lambda: 1)
    home = await store.claim()
    other = apsw.Connection(str(tmp_path / "store.db"))
    other.execute("BEGIN IMMEDIATE")

    assert store.commit_at_once([created("a", home)]) is None

    other.execute("ROLLBACK")
    store._sync_cost = 0.0  # however busy the disk is just now
    assert store.commit_at_once([created("a", home)]) is not None
    other.close()
    await store.close()


async def test_a_slow_disk_is_waited_for_in_the_thread(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", lambda: 1)
    home = await store.claim()
    store._sync_cost = 0.05

    assert store.commit_at_once([created("a", home)]) is None
    await store.close()


async def test_the_write_ahead_log_is_folded_in_and_does_not_grow_for_ever(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", lambda: 1)
    home = await store.claim()
    for number in range(60):
        await store.commit([created(f"run-{number}", home, row=b"x" * 1_000_000)])

    assert (tmp_path / "store.db-wal").stat().st_size < 40_000_000
    await store.close()


async def test_every_commit_is_synced(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", lambda: 1)

    assert store._connection.pragma("journal_mode") == "wal"
    assert store._connection.pragma("synchronous") == 2
    await store.close()


def test_a_lock_excludes_others_and_is_free_when_let_go(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    lock = try_lock(store, 1)
    assert lock is not None
    assert try_lock(store, 1) is None
    assert is_locked(store, 1)
    assert not is_locked(store, 2)
    lock.abandon()

    assert not is_locked(store, 1)
    again = try_lock(store, 1)
    assert again is not None
    again.release()
    assert not lock_path(store, 1).exists()


@pytest.mark.parametrize(
    ("url", "path"), [("sqlite:///runs.db", "runs.db"), ("sqlite:////var/runs.db", "/var/runs.db")]
)
def test_store_urls(url: str, path: str) -> None:
    assert path_of(url) == Path(path)


@pytest.mark.parametrize("url", ["runs.db", "sqlite:runs.db", "sqlite://runs.db", "sqlite:///", "mysql:///x"])
def test_bad_store_urls_are_explained(url: str) -> None:
    with pytest.raises(BadStoreUrl, match="not the address"):
        path_of(url)


def test_reading_what_is_not_there_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        open_for_reading(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


async def test_a_store_that_may_only_be_read_can_be_looked_at(tmp_path: Path) -> None:
    """`ps` and `show` work on a copy on a read-only disk; nothing beside the file is created."""
    path = tmp_path / "store.db"
    store = SqliteStore(path, lambda: 1)
    await store.commit([created("a", await store.claim())])
    await store.close()
    before = sorted(tmp_path.iterdir())
    looking = SqliteStore(path, lambda: 1, must_exist=True)

    assert await looking.find(created("a", 1).run) is not None
    assert looking._writing is None
    await looking.close()
    assert sorted(tmp_path.iterdir()) == before


async def test_an_empty_file_is_an_empty_store(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    store = SqliteStore(path, lambda: 1, must_exist=True)

    assert await store.search(RunFilter()) == []
    await store.close()


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match="not a folder"):
        SqliteStore(tmp_path / "no" / "store.db", lambda: 1)


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadStoreUrl, match="is a folder"):
        SqliteStore(tmp_path, lambda: 1)


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path, lambda: 1)
    home = await store.claim()
    for number in range(50):
        await store.commit([created(f"run-{number}", home, row=b"x" * 5000)])
    await store.close()
    content = bytearray(path.read_bytes())
    content[4096 : 4096 * 20] = b"\xff" * (4096 * 19)
    path.write_bytes(content)

    with pytest.raises(StoreCorrupt):
        damaged = SqliteStore(path, lambda: 1)
        try:
            for number in range(50):
                await damaged.history(created(f"run-{number}", home).run)
        finally:
            damaged.abandon()


def test_a_fresh_schema_is_what_the_migrations_give(tmp_path: Path) -> None:
    """A new file gets the finished schema at once, and nothing tells it from one that was brought up to date."""
    assert database._schema() == sqlite_schema.current(), "run `python -m tests.stores.sqlite_schema`"
    with closing(open_for_writing(tmp_path / "fresh.db")) as fresh, closing(sqlite_schema.migrated()) as migrated:
        assert fresh.pragma("user_version") == len(migration_names())
        assert fresh.pragma("freelist_count") == 0
        for name in ("user_version", "encoding", "auto_vacuum", "page_size", "page_count", "secure_delete"):
            assert fresh.pragma(name) == migrated.pragma(name), name
        made = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid"
        assert fresh.execute(made).fetchall() == migrated.execute(made).fetchall()
        assert sqlite_schema.rows_of(fresh) == sqlite_schema.rows_of(migrated)


def test_an_old_file_has_every_step_of_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each schema that was ever current is brought to the one of today, also where the finished one is behind."""
    for number, script in enumerate(database._migrations(), start=1):
        path = tmp_path / f"{number}.db"
        with closing(apsw.Connection(str(path))) as older:
            for earlier in (*database._migrations()[: number - 1], script):
                older.execute(earlier)
            older.pragma("user_version", number)
            older.pragma("application_id", database.APPLICATION_ID)
        with closing(open_for_writing(path)) as connection:
            made = set(connection.execute("SELECT name, sql FROM sqlite_schema"))
            assert made == set(sqlite_schema.migrated().execute("SELECT name, sql FROM sqlite_schema"))

    scripts = (*database._migrations(), "CREATE TABLE later (id INTEGER PRIMARY KEY) STRICT;")
    monkeypatch.setattr(database, "migration_names", lambda: (*migration_names(), "9999_later.sql"))
    monkeypatch.setattr(database, "_migrations", lambda: scripts)
    with closing(open_for_writing(tmp_path / "behind.db")) as connection:
        assert connection.pragma("user_version") == len(migration_names()) + 1
        assert connection.execute("SELECT count(*) FROM later").get == 0


async def test_opening_twice_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await SqliteStore(path, lambda: 1).close()
    before = path.read_bytes()
    await SqliteStore(path, lambda: 1).close()

    assert before == path.read_bytes()


def test_many_who_open_a_new_file_at_once_have_the_same_store(tmp_path: Path) -> None:
    for attempt in range(10):
        path = tmp_path / f"{attempt}.db"
        with ThreadPoolExecutor(8) as pool:
            connections = list(pool.map(open_for_writing, [path] * 8))
        versions = {connection.pragma("user_version") for connection in connections}
        modes = {connection.pragma("journal_mode") for connection in connections}
        for connection in connections:
            connection.close()
        assert (versions, modes) == ({len(migration_names())}, {"wal"})


async def test_a_store_that_nobody_follows_leaves_its_feed_alone(tmp_path: Path) -> None:
    """Even a statement that adds no row to the feed would count its numbers, and write that down."""
    store = SqliteStore(tmp_path / "runs.db", lambda: 1)
    await store.commit([created("run", await store.claim())])
    await store.close()

    with closing(apsw.Connection(str(tmp_path / "runs.db"))) as connection:
        assert connection.execute("SELECT count(*) FROM runs").get == 1
        assert connection.execute("SELECT count(*) FROM sqlite_sequence WHERE name = 'feed'").get == 0


async def test_a_busy_log_has_room_before_it_needs_it(tmp_path: Path) -> None:
    """A commit that makes the log longer takes twice the time of one that does not."""
    store = SqliteStore(tmp_path / "runs.db", lambda: 1)
    log = tmp_path / "runs.db-wal"
    sizes = set()
    for number in range(600):
        await store.set_limit(f"scope {number}", 1)
        sizes.add(log.stat().st_size)
    assert len(sizes) < FIRST_PAGES + 10, "only the first commits and a few extensions changed the file's length"
    await store.close()


async def test_a_log_with_room_behind_its_end_is_read_after_a_crash(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db", lambda: 1)
    for number in range(FIRST_PAGES * 2):
        await store.set_limit(f"scope {number}", 1)
    (tmp_path / "crashed").mkdir()
    for name in ("runs.db", "runs.db-wal"):
        shutil.copy(tmp_path / name, tmp_path / "crashed" / name)
    connection = apsw.Connection(str(tmp_path / "crashed" / "runs.db"))
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    assert connection.execute("SELECT count(*) FROM limits").get == FIRST_PAGES * 2
    connection.close()
    await store.close()


async def test_where_there_is_no_room_commits_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: WalPreallocation) -> None:
        raise apsw.FullError("no room")

    monkeypatch.setattr(WalPreallocation, "_make_room", full)
    store = SqliteStore(tmp_path / "runs.db", lambda: 1)
    for number in range(FIRST_PAGES * 2):
        await store.set_limit(f"scope {number}", 1)
    await store.close()

    connection = apsw.Connection(str(tmp_path / "runs.db"))
    assert connection.execute("SELECT count(*) FROM limits").get == FIRST_PAGES * 2
    connection.close()
