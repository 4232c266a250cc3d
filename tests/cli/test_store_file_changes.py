"""What happens to the file under a live process: taken away, locked by a stranger, brought back from a backup."""

import signal
import time
from pathlib import Path

import apsw
import pytest
from tests.cli.commandline import CommandLine


def _wait_until_held(perdure: CommandLine) -> str:
    """A run whose task ends when somebody makes a file."""
    script = "while [ ! -e go ]; do sleep 0.05; done"
    return perdure.drill({"call": "shell", "with": {"script": script}}, {"return": "end"}, name="held")


@pytest.mark.parametrize("harm", ["delete", "replace"])
def test_nothing_is_called_succeeded_that_is_not_on_disk(perdure: CommandLine, harm: str) -> None:
    """Invariant 31: the process stops with an error instead."""
    perdure.here("run", perdure.drill({"return": 1}))
    perdure.here("backup", "copy.db")
    running = perdure.start("run", _wait_until_held(perdure))
    run = running.run
    while perdure.row(run)["status"] != "running":
        time.sleep(0.02)
    if harm == "delete":
        (perdure.folder / "perdure.db").unlink()
    else:
        (perdure.folder / "copy.db").replace(perdure.folder / "perdure.db")
    (perdure.folder / "go").touch()
    done = running.end()

    assert done.code == 1
    assert "succeeded" not in done.err and "end" not in done.out
    assert "while it was in use" in done.err and "perdure restore" in done.err


def test_a_server_that_has_nothing_to_do_stops_when_its_file_is_gone(perdure: CommandLine) -> None:
    server = perdure.start("serve")
    server.hear("serving ")
    (perdure.folder / "perdure.db").unlink()
    done = server.end()

    assert done.code == 1 and "was deleted while it was in use" in done.err


def test_a_server_outlives_a_stranger_who_keeps_the_file_locked(perdure: CommandLine) -> None:
    """STORE-LOCKED is waited for: while nobody can write, and with the work that came meanwhile."""
    server = perdure.start("serve", "-v")
    server.hear("serving ")
    run = perdure.here("run", _wait_until_held(perdure), "--detach").out.strip()
    while not perdure.row(run)["live"]:
        time.sleep(0.02)
    stranger = apsw.Connection(str(perdure.folder / "perdure.db"))
    stranger.set_busy_timeout(5_000)
    stranger.execute("BEGIN EXCLUSIVE")
    (perdure.folder / "go").touch()
    server.hear("STORE-LOCKED")
    assert server.process.poll() is None
    stranger.execute("ROLLBACK")

    assert "RunEnded" in perdure.here("history", run, "--follow").out
    server.send(signal.SIGTERM)
    assert server.end().code == 0


def test_a_server_that_waits_for_a_stranger_can_be_stopped(perdure: CommandLine) -> None:
    perdure.here("run", perdure.drill({"return": 1}))
    stranger = apsw.Connection(str(perdure.folder / "perdure.db"))
    stranger.execute("BEGIN IMMEDIATE")
    server = perdure.start("serve", "--grace", "1s")
    server.hear("STORE-LOCKED")
    server.send(signal.SIGTERM)
    assert server.end().code == 0
    stranger.close()


def test_other_commands_name_the_lock(perdure: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = perdure.here("run", perdure.drill({"signal": "go"}), "--detach").out.strip()
    stranger = apsw.Connection(str(perdure.folder / "perdure.db"))
    stranger.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("perdure.stores.sqlite.store.BUSY_MILLISECONDS", 100)
    for words in (["run", "drill.json"], ["signal", run, "go"], ["cancel", run]):
        assert "keeps the file locked" in perdure.here(*words, code=1).err
    stranger.close()


def locks(folder: Path) -> list[Path]:
    return list(folder.glob("*-owner*"))


def test_a_lock_file_that_is_removed_under_a_server_comes_back(perdure: CommandLine) -> None:
    server = perdure.start("serve")
    server.hear("serving ")
    run = perdure.here("run", _wait_until_held(perdure), "--detach").out.strip()
    while len(lock_files := locks(perdure.folder)) > 1 or not perdure.row(run)["live"]:
        time.sleep(0.02)
    lock_files[0].unlink()
    while not locks(perdure.folder):
        time.sleep(0.02)
    (perdure.folder / "go").touch()
    output = perdure.here("history", run, "--follow").out

    assert "RunEnded" in output and "TaskRedelivered" not in output
    server.kill()
