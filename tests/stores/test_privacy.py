"""Other users of the machine see nothing: stores, logs, locks, copies and stored values belong to their owner alone."""

import asyncio
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.kernel.errors import PerdureError
from perdure.kernel.file_modes import folder_mode, private_mode
from perdure.services.story.engrams import storage
from perdure.stores.sqlite.partition_locks import try_lock


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in sorted(folder.iterdir())}


@pytest.fixture(autouse=True)
def usual_umask() -> Any:
    before = os.umask(0o022)
    yield
    os.umask(before)


async def test_every_file_of_a_store_is_private(tmp_path: Path) -> None:
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        permissions = modes(tmp_path)
        await engine.store.backup(str(tmp_path / "copy.db"))

    assert {"runs.db", "runs.db-wal", "runs.db-shm"} <= permissions.keys()
    assert any("-owner" in name for name in permissions)
    assert set(permissions.values()) == {"0o600"}
    assert modes(tmp_path)["copy.db"] == "0o600"


async def test_a_store_that_others_could_read_is_closed_to_them_when_it_is_opened(tmp_path: Path) -> None:
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db"):
        pass
    (tmp_path / "runs.db").chmod(0o644)

    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db"):
        assert set(modes(tmp_path).values()) == {"0o600"}


async def test_an_operator_shares_files_with_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_FILE_MODE", "0660")
    os.umask(0o007)

    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db"):
        assert set(modes(tmp_path).values()) == {"0o660"}


@pytest.mark.parametrize("text", ["0400", "abc", "0777", "600000", "-1"])
def test_a_mode_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(PerdureError, match="PERDURE_FILE_MODE"):
        private_mode(text)


def test_folders_can_be_entered_by_those_who_read() -> None:
    assert (folder_mode(0o600), folder_mode(0o660), folder_mode(0o640)) == (0o700, 0o770, 0o750)


def test_a_lock_file_cannot_be_opened_by_a_stranger(tmp_path: Path) -> None:
    lock = try_lock(tmp_path / "runs.db", 1)
    assert lock is not None
    assert set(modes(tmp_path).values()) == {"0o600"}
    lock.release()


def test_values_that_engrams_store_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_STORAGE_DIR", str(tmp_path))
    reference = storage.put({}, "default", "r1", "run-1", "key", {"a": 1})

    file = tmp_path / reference["$bubuStorageRef"]
    assert oct(stat.S_IMODE(file.stat().st_mode)) == "0o600"
    assert {
        oct(stat.S_IMODE(path.stat().st_mode)) for path in (file.parent, file.parent.parent, file.parent.parent.parent)
    } == {"0o700"}


def read_as_stranger(path: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["cat", path], user=65534, group=65534, extra_groups=[], capture_output=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_cannot_read_or_lock(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest" in str(folder):
            folder.chmod(folder.stat().st_mode | 0o055)
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db"):
        files = [str(path) for path in tmp_path.iterdir()]
        assert len(files) >= 4
        for path in files:
            seen = await asyncio.to_thread(read_as_stranger, path)
            assert b"Permission denied" in seen.stderr, seen
