"""Other users see nothing: not by being the first to create a file of the store where everybody may create some."""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.server.data_folder import DataFolderUnsafe, data_folder
from perdure.services.story.engrams.storage import FOLDER
from perdure.services.story.streams.recording import PacketRecorder
from perdure.stores.errors import StoreReadOnly
from perdure.stores.sqlite import file_permissions
from perdure.stores.sqlite.file_permissions import make_private
from perdure.stores.sqlite.partition_locks import try_lock
from perdure.streams.inlet import Counters
from perdure.streams.stream_messages import make_message
from tests.cli.commandline import CommandLine

STRANGER = 65534
FLOW = '{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": {"a": {"action": "Return"}}}'

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """As the folder for temporary files."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def line(shared: Path) -> Iterator[CommandLine]:
    line = CommandLine(shared)
    yield line
    line.end_all()


def plant(path: Path, target: Path | None = None) -> None:
    if target is None:
        path.touch()
        path.chmod(0o666)
    else:
        path.symlink_to(target)
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


@needs_root
@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal", "-owner1"])
async def test_a_file_of_another_user_is_not_written_to(shared: Path, end: str) -> None:
    plant(shared / f"runs.db{end}")

    with pytest.raises(StoreReadOnly, match="belongs to another user"):
        async with perdure.Engine(f"sqlite:///{shared}/runs.db"):
            pass

    assert (shared / f"runs.db{end}").stat().st_size == 0


@needs_root
def test_the_command_line_says_so(line: CommandLine) -> None:
    plant(line.folder / "perdure.db")
    (line.folder / "flow.json").write_text(FLOW)

    done = line("run", "flow.json", code=None)

    assert done.code != 0 and "perdure.db belongs to another user" in done.err
    assert (line.folder / "perdure.db").stat().st_size == 0


@needs_root
def test_a_link_of_another_user_is_not_followed(line: CommandLine, tmp_path: Path) -> None:
    plant(line.folder / "perdure.db", tmp_path / "elsewhere.db")
    (line.folder / "flow.json").write_text(FLOW)

    done = line("run", "flow.json", code=None)

    assert done.code != 0 and "belongs to another user" in done.err
    assert not (tmp_path / "elsewhere.db").exists()


@needs_root
def test_a_link_of_another_user_is_no_data_folder(tmp_path: Path, shared: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    plant(shared / "runs.db-server", own)

    with pytest.raises(DataFolderUnsafe, match="is a link of another user"):
        data_folder(None, f"sqlite:///{shared}/runs.db")

    (shared / "mine").symlink_to(own)
    assert data_folder(str(shared / "mine"), "").is_dir(), "a link of one's own is"


def test_folders_above_a_private_one_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the data of a server, and of recorded packets: their names say which runs there are."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "storage"))
    before = os.umask(0)
    try:
        data_folder(str(tmp_path / "state" / "perdure" / "data"), "")
        recorder = PacketRecorder(
            {"hear": {"mode": "payload"}}, {"namespace": "default", "name": "calls"}, lambda it: it
        )
        recorder.add("hear", make_message("1", 0, payload={}), Counters())
        recorder.write()
    finally:
        os.umask(before)

    made = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()}
    assert len(made) == 8 and set(made.values()) == {0o700}, made


@needs_root
def test_a_copy_does_not_go_into_a_file_of_another_user(tmp_path: Path, shared: Path) -> None:
    async def copy() -> None:
        async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
            plant(shared / "copy.db")
            with pytest.raises(StoreReadOnly, match="belongs to another user"):
                await engine.store.backup(str(shared / "copy.db"))

    asyncio.run(copy())
    assert (shared / "copy.db").stat().st_size == 0


@needs_root
def test_a_lock_that_another_user_holds_does_not_freeze_a_store(shared: Path) -> None:
    plant(shared / "runs.db-owner7")

    with (shared / "runs.db-owner7").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreReadOnly, match="belongs to another user"):
            try_lock(shared / "runs.db", 7)


@needs_root
def test_where_not_everybody_writes_files_of_others_are_taken(tmp_path: Path) -> None:
    """Servers of several users that share a group."""
    plant(tmp_path / "runs.db")

    make_private(tmp_path / "runs.db")

    assert (tmp_path / "runs.db").stat().st_uid == STRANGER


@pytest.mark.parametrize("name", ["runs.db", "link.db", "missing.db"])
def test_own_files_are_taken_anywhere(shared: Path, name: str) -> None:
    (shared / "runs.db").touch()
    (shared / "link.db").symlink_to(shared / "runs.db")

    make_private(shared / name)

    assert (shared / name).stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_created_at_that_moment_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first look and the creation another user may have been faster."""
    looks: list[bool] = []
    monkeypatch.setattr(file_permissions, "refuse_planted_store", lambda path: looks.append(path.exists()))

    def beaten(path: Path, *_: object) -> int:
        path.write_bytes(b"")
        raise FileExistsError

    monkeypatch.setattr(os, "open", beaten)
    make_private(tmp_path / "copy.db")

    assert looks == [False, True]


@needs_root
def test_a_capsule_is_not_written_to_a_file_of_another_user(shared: Path, line: CommandLine) -> None:
    """Whoever guessed the name of the file that is written first could read the run."""
    (shared / "flow.json").write_text(FLOW)
    line("run", "flow.json", code=0)
    plant(shared / "run.perdure.partial")
    line("export", "@latest", "--file", "run.perdure", code=0)
    written = (shared / "run.perdure").stat()
    assert (written.st_uid, written.st_mode & 0o777) == (os.geteuid(), 0o600)
