"""A small disk: the log takes no more of it than it needs, and a full one is told with advice that helps."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.kernel.outcomes import Status
from perdure.stores.errors import StoreFull
from perdure.stores.protocol import Committed, Filter, Summary, Unknown
from perdure.stores.sqlite.runway import FIRST_PAGES, FOLDED_AT, FRAME_BYTES, Runway
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.transitions import created


@pytest.mark.parametrize(
    ("megabytes", "pages"), [(100_000, FOLDED_AT), (8, 8_000_000 // 4 // FRAME_BYTES), (0, FIRST_PAGES)]
)
def test_a_log_is_folded_in_sooner_where_little_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int, pages: int
) -> None:
    _has_free(monkeypatch, megabytes)
    assert Runway(tmp_path / "runs.db", None).folded_at == pages


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
        found = list(real(path))
        found[1], found[4] = 1_000, megabytes * 1_000  # the size of a piece, and how many are free
        return os.statvfs_result(found)

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
    subprocess.run(["umount", str(folder)], check=True)


def _give(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


async def test_a_full_disk_is_told_and_with_a_little_room_prune_makes_more(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "runs.db", lambda: 1_000)
    home = await store.claim()
    over = Summary(Status.SUCCEEDED, False, None, 10)
    written = 0
    answer = await store.commit([created("run-0", home, over, row=b"x" * 9_000)])
    while isinstance(answer, Committed):
        written += 1
        answer = await store.commit([created(f"run-{written}", home, over, row=b"x" * 9_000)])
    assert isinstance(answer, Unknown) and isinstance(answer.error, StoreFull)
    assert "prune" not in answer.error.advice, "it needs room to write as well"
    assert written > 100, "the log has not taken most of the disk"
    await store.reopen()
    assert len(await store.search(Filter())) == written, "what was acknowledged is there"

    _give(small_disk, "3400k")
    while await store.prune(100, 100):
        pass
    assert await store.search(Filter()) == []
    for number in range(written):
        assert isinstance(await store.commit([created(f"again-{number}", home, over, row=b"x" * 9_000)]), Committed)
    await store.close()
