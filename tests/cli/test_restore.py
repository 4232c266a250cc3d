"""`restore`: a backup in the place of the store, whole or not at all, and never under anybody."""

import json
import signal
from pathlib import Path

import apsw
import pytest
from tests.cli.commandline import CommandLine


def _runs(perdure: CommandLine) -> set[str]:
    return {row["name"] for row in perdure.here("ps", "--all", "--json").json}


def _prepared(perdure: CommandLine) -> None:
    """A store with two runs, and a backup from before the second."""
    perdure.here("run", perdure.drill({"return": 1}, name="first"))
    perdure.here("backup", "monday.db")
    perdure.here("run", perdure.drill({"return": 2}, name="second"))


def test_a_backup_takes_the_place_of_the_store(perdure: CommandLine) -> None:
    _prepared(perdure)
    assert _runs(perdure) == {"first", "second"}
    done = perdure("restore", "monday.db", "--json")

    assert done.json["bytes"] == (perdure.folder / "perdure.db").stat().st_size
    assert _runs(perdure) == {"first"}
    assert perdure.here("db", "validate").code == 0
    assert perdure.here("run", "second.json").code == 0
    assert not list(perdure.folder.glob("*.partial*"))


def test_a_restored_store_has_the_names_of_its_runs(perdure: CommandLine) -> None:
    """STY-284."""
    story = {
        "apiVersion": "bubustack.io/v1alpha1",
        "kind": "Story",
        "metadata": {"name": "s"},
        "spec": {"steps": [{"name": "c", "type": "condition"}]},
    }
    (perdure.folder / "s.yaml").write_text(json.dumps(story))
    perdure.here("run", "s.yaml", "--token", "one")
    perdure.here("backup", "monday.db")
    perdure.here("run", "s.yaml", "--token", "two")
    perdure("restore", "monday.db")

    with apsw.Connection(str(perdure.folder / "perdure.db")) as store:
        names = list(store.execute("SELECT language, namespace, name, run FROM names"))
        assert names == list(
            store.execute("SELECT language, 'default', labels ->> '$.\"bubustack.io/storyrun\"', id FROM runs")
        )
        assert len(names) == 1
    store.close()


def test_what_a_killed_process_left_in_the_log_does_not_come_back(perdure: CommandLine) -> None:
    """A log that stayed behind would be read into the file that took the place."""
    _prepared(perdure)
    running = perdure.start("run", perdure.drill({"sleep": "1h"}, name="third"))
    assert running.run
    running.kill()
    assert (perdure.folder / "perdure.db-wal").stat().st_size > 0
    perdure("restore", "monday.db")

    assert not (perdure.folder / "perdure.db-wal").exists()
    assert _runs(perdure) == {"first"}
    assert perdure.here("db", "validate").code == 0


def test_a_store_that_somebody_works_on_is_not_replaced(perdure: CommandLine) -> None:
    _prepared(perdure)
    before = (perdure.folder / "perdure.db").stat().st_ino
    server = perdure.start("serve")
    server.hear("serving ")
    assert "a live engine owns runs" in perdure("restore", "monday.db", code=9).err
    server.send(signal.SIGTERM)
    assert server.end().code == 0
    looking = apsw.Connection(str(perdure.folder / "perdure.db"))
    assert looking.execute("SELECT count(*) FROM runs").get == 2
    assert "a process has it open" in perdure("restore", "monday.db", code=9).err
    looking.close()

    assert (perdure.folder / "perdure.db").stat().st_ino == before and _runs(perdure) == {"first", "second"}
    assert not list(perdure.folder.glob("*.partial*"))


def test_a_damaged_or_missing_store_is_replaced(perdure: CommandLine) -> None:
    _prepared(perdure)
    store = perdure.folder / "perdure.db"
    store.write_bytes(b"nonsense" * 4_096)
    store.with_name("perdure.db-wal").write_bytes(b"more of it")
    perdure("restore", "monday.db")
    assert _runs(perdure) == {"first"}
    store.unlink()
    perdure("restore", "monday.db")
    assert _runs(perdure) == {"first"}


@pytest.mark.parametrize(
    ("what", "code"), [("missing", 8), ("text", 1), ("foreign", 1), ("empty", 1), ("damaged", 1), ("itself", 1)]
)
def test_what_is_not_a_whole_store_is_not_restored(perdure: CommandLine, what: str, code: int) -> None:
    _prepared(perdure)
    file = perdure.folder / "perdure.db" if what == "itself" else _unfit(perdure.folder, what)
    before = (perdure.folder / "perdure.db").read_bytes()
    perdure("restore", str(file), code=code)

    assert (perdure.folder / "perdure.db").read_bytes() == before
    assert _runs(perdure) == {"first", "second"}


def _unfit(folder: Path, what: str) -> Path:
    file = folder / "unfit.db"
    if what == "text":
        file.write_text("some notes " * 1_000)
    elif what == "foreign":
        apsw.Connection(str(file)).execute("CREATE TABLE theirs (x)")
    elif what == "empty":
        file.touch()
    elif what == "damaged":
        content = bytearray((folder / "monday.db").read_bytes())
        content[8_192 : 8_192 * 4] = b"\xff" * (8_192 * 3)
        file.write_bytes(content)
    return file


def test_a_database_server_has_tools_of_its_own(perdure: CommandLine) -> None:
    _prepared(perdure)
    assert "pg_restore" in perdure("restore", "monday.db", "--db", "postgresql://nobody@localhost/none", code=1).err
