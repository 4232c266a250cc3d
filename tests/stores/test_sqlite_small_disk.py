"""A small disk: the log takes no more of it than it needs, and a full one is told with advice that helps."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import Committed, CommitUnknown, RunSummary
from perdure.stores.errors import StoreFull
from perdure.stores.protocol import RunFilter
from perdure.stores.sqlite.database import FIRST_PAGES, FOLDED_AT, FRAME_BYTES, WalPreallocation
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.transitions import created


@pytest.mark.parametrize(
    ("megabytes", "pages"), [(100_000, FOLDED_AT), (8, 8_000_000 // 4 // FRAME_BYTES), (0, FIRST_PAGES)]
)
def test_a_log_is_folded_in_sooner_where_little_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int, pages: int
) -> None:
    _has_free(monkeypatch, megabytes)
    assert WalPreallocation(tmp_path / "runs.db", None).folded_at == pages


async def test_the_log_takes_a_part_of_what_is_free_and_no_room_beyond_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _has_free(monkeypatch, 2)
    store = SqliteStore(tmp_path / "runs.db", lambda: 1)
    log = tmp_path / "runs.db-wal"
    longest = 0
    for number in range(600):
        await store.set_limit(f"scope {number}", 1)
        longest = max(longest, log.stat().st_size)

    assert longest < 2_000_000 // 4 + 20 * FRAME_BYTES
    await store.close()


def _has_free(monkeypatch: pytest.MonkeyPatch, megabytes: int) -> None:
    real = os.statvfs

    def small(path: str) -> os.statvfs_result:
        statistics = list(real(path))
        statistics[1], statistics[4] = 1_000, megabytes * 1_000  # the size of a piece, and how many are free
        return os.statvfs_result(statistics)

    monkeypatch.setattr(os, "statvfs", small)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real one of three megabytes, where this user may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def filled(store: SqliteStore) -> int:
    """Runs until there is no room; how many."""
    home = await store.claim()
    over = RunSummary(Status.SUCCEEDED, False, None, 10)
    for number in count():
        answer = await store.commit([created(f"run-{number}", home, over, row=b"x" * 9_000)])
        if not isinstance(answer, Committed):
            assert isinstance(answer, CommitUnknown) and isinstance(answer.error, StoreFull)
            return number
    raise AssertionError


def take_the_rest(disk: Path) -> None:
    """Somebody else writes until nothing at all is free."""
    with (disk / "other").open("ab", buffering=0) as other, suppress(OSError):
        while True:
            other.write(b"x" * 512)
    assert os.statvfs(disk).f_bavail == 0


async def test_prune_makes_room_where_nothing_at_all_is_free(small_disk: Path) -> None:
    """What is removed is used again, by the same process."""
    (small_disk / "other").touch()
    store = SqliteStore(small_disk / "runs.db", lambda: 1_000)
    written = await filled(store)
    assert written > 100, "the log has not taken most of the disk"
    await store.reopen()
    assert len(await store.search(RunFilter())) == written, "what was acknowledged is there"
    take_the_rest(small_disk)
    with pytest.raises(StoreFull) as full:
        await store.set_limit("scope", 1)
    assert "prune" in full.value.advice

    while await store.prune(100, 100):
        pass
    assert await store.search(RunFilter()) == []
    home, over = 1, RunSummary(Status.SUCCEEDED, False, None, 10)
    for number in range(written // 2):
        answer = await store.commit([created(f"again-{number}", home, over, row=b"x" * 9_000)])
        assert isinstance(answer, Committed)
    await store.close()


FILLING = """
import asyncio, os, sys
from pathlib import Path
from perdure.stores.sqlite.store import SqliteStore
from tests.stores.test_sqlite_small_disk import filled

async def fill(disk):
    store = SqliteStore(disk / "runs.db")
    print(await filled(store), flush=True)
    if sys.argv[2]:
        os.kill(os.getpid(), 9)
    await store.close()

asyncio.run(fill(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "closed in order"])
def test_another_process_prunes_where_nothing_at_all_is_free(small_disk: Path, is_killed: bool) -> None:
    """The log keeps its room when the process that met the full disk is gone."""
    (small_disk / "other").touch()
    ended = subprocess.run([sys.executable, "-c", FILLING, str(small_disk), "kill" if is_killed else ""], stdout=-1)
    assert ended.returncode == (-9 if is_killed else 0)
    written = int(ended.stdout)
    take_the_rest(small_disk)
    url = f"sqlite:///{small_disk}/runs.db"
    pruned = subprocess.run(
        [sys.executable, "-m", "perdure", "prune", "--older-than", "0s", "--db", url, "--json"], capture_output=True
    )

    assert pruned.returncode == 0, pruned.stderr.decode()
    assert json.loads(pruned.stdout)["removed"] == written
    resumed = subprocess.run([sys.executable, "-m", "perdure", "resume", "--all", "--db", url], capture_output=True)
    assert b"Traceback" not in resumed.stderr


async def test_a_store_that_cannot_even_be_opened_says_that_the_disk_is_full(small_disk: Path) -> None:
    """Closed while there was room: SQLite has nothing beside its file, and cannot make it."""
    (small_disk / "other").touch()
    store = SqliteStore(small_disk / "runs.db", lambda: 1_000)
    await store.claim()
    await store.close()
    take_the_rest(small_disk)

    with pytest.raises(StoreFull):
        SqliteStore(small_disk / "runs.db", lambda: 1_000)
