"""A file that is taken away under a live process is noticed before anyone is told of a commit. Invariant 31."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from perdure.kernel.json_values.values import RunId
from perdure.stores.commit_types import Committed, Transition
from perdure.stores.errors import StoreMoved
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.transitions import created


def opened(path: Path) -> SqliteStore:
    return SqliteStore(path, lambda: 1)


async def prepared(path: Path) -> tuple[SqliteStore, int]:
    """A store in use, with two copies beside it: one as `backup` makes it, and one of the bare file."""
    store = opened(path)
    home = await store.claim()
    await store.commit([created("a", home)])
    await store.backup(str(path.with_name("copy.db")))
    store._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    shutil.copy(path, path.with_name("bare.db"))
    for number in range(40):
        await store.commit([created(f"run-{number}", home, row=b"x" * 5_000)])
    store._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    store.changed()
    return store, home


def delete(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replace(path: Path) -> None:
    path.with_name("copy.db").replace(path)


def write_over(path: Path) -> None:
    shutil.copyfile(path.with_name("copy.db"), path)


def write_an_older_file_over(path: Path) -> None:
    shutil.copyfile(path.with_name("bare.db"), path)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def delete_the_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def replace_the_log(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    shutil.copy(log, path.with_name("log"))
    path.with_name("log").replace(log)


HARMS = [delete, rename, replace, write_over, write_an_older_file_over, empty, delete_the_log, replace_the_log]


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
async def test_nothing_is_committed_into_a_file_that_nobody_finds(
    tmp_path: Path, harm: Callable[[Path], None], is_at_once: bool
) -> None:
    path = tmp_path / "runs.db"
    store, home = await prepared(path)
    harm(path)
    change = Transition(RunId("a"), home, 2, row=b"second")
    store._sync_cost = 0.0

    with pytest.raises(StoreMoved, match=str(path)):
        if is_at_once:
            store.commit_at_once([change])
        else:
            await store.commit([change])
    store.abandon()


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
async def test_an_idle_process_notices_too(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    path = tmp_path / "runs.db"
    store, _ = await prepared(path)
    assert store.changed() in (True, False)
    harm(path)

    with pytest.raises(StoreMoved):
        store.changed()
    store.abandon()


async def test_the_log_of_the_file_that_took_the_place_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store, _ = await prepared(path)
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    shutil.copy(tmp_path / "copy.db", path)
    other = opened(path)
    await other.commit([created("new", await other.claim())])
    with pytest.raises(StoreMoved):
        store.changed()
    await store.close()

    assert path.with_name("runs.db-wal").exists()
    assert await other.find(RunId("new")) is not None and other.changed() in (True, False)
    await other.close()
    assert apsw.Connection(str(path)).execute("PRAGMA integrity_check").get == "ok"


async def test_a_store_that_is_opened_anew_is_the_same_store(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store, _ = await prepared(path)
    replace(path)
    with pytest.raises(StoreMoved):
        await store.reopen()
    store.abandon()


async def test_what_sqlite_does_with_its_files_is_no_harm(tmp_path: Path) -> None:
    """Checkpoints of others, a copy of the file, VACUUM, a shell, and a new time of change."""
    path = tmp_path / "runs.db"
    store, home = await prepared(path)
    other = opened(path)
    shell = apsw.Connection(str(path))
    for number in range(20):
        at = 1 + number
        await other.set_limit(f"scope {number}", 1)
        match number % 5:
            case 0:
                shell.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            case 1:
                other._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            case 2:
                os.utime(path, ns=(at, at))
            case 3:
                shell.execute("VACUUM")
            case _:
                await store.backup(str(tmp_path / "again.db"))
        store.changed()
        seq = 2 + number
        assert isinstance(await store.commit([Transition(RunId("a"), home, seq, row=b"x")]), Committed)
    shell.close()
    await other.close()
    await store.close()
