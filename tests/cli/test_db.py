"""`db`: what an operator asks of the store itself."""

import sqlite3
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine

from perdure.cli.verbs.db import ACTIONS

HERE = "sqlite:///perdure.db"


def waiting(perdure: CommandLine) -> str:
    return perdure.here("run", perdure.drill({"signal": "go"}, {"return": "moved"}), "--detach").out.strip()


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_explains_itself(perdure: CommandLine, action: str) -> None:
    text = perdure("db", action, "--help").out

    assert f"usage: perdure db {action}" in text and ACTIONS[action] in perdure("db", "--help").out
    assert f"perdure db {action}" in text.partition("examples:")[2]
    assert "--json" in text and "--db" in text and "exit codes:" in text


def test_words_that_are_missing_or_wrong_are_a_usage_error(perdure: CommandLine) -> None:
    assert "required: ACTION" in perdure("db", code=2).err
    assert "invalid choice: 'nonsense'" in perdure("db", "nonsense", code=2).err
    assert "required: TARGET" in perdure("db", "copy", HERE, code=2).err


def test_options_stand_before_or_behind_the_action(perdure: CommandLine) -> None:
    waiting(perdure)

    for words in (("--db", HERE, "--json", "status"), ("status", "--db", HERE, "--json")):
        assert perdure.here("db", *words).json["runs"]["open"] == 1


def test_status_tells_how_the_store_stands(perdure: CommandLine) -> None:
    run = waiting(perdure)
    perdure.here("run", perdure.drill({"sleep": "1h"}, name="nap"), "--detach")
    perdure.here("run", perdure.drill({"return": 1}, name="short"))
    perdure.here("signal", run, "go")
    answer = perdure("db", "status", "--json").json

    assert answer["schema"]["up_to_date"] and answer["schema"]["version"] == answer["schema"]["newest"]
    assert answer["owners"] == []
    counts = {"total": 3, "open": 2, "at_work": 0, "parked": 1, "overdue": 0, "stuck": 0, "unowned": 2, "ended": 1}
    assert {name: answer["runs"][name] for name in counts} == counts
    assert answer["inbox"]["letters"] == 1 and answer["inbox"]["oldest_seconds"] >= 0
    assert {table["name"] for table in answer["tables"]} >= {"runs", "log", "inbox"}
    text = perdure("db", "status").out
    assert "none: no engine is running" in text and "1 messages, the oldest" in text


def test_status_names_who_is_at_work(perdure: CommandLine) -> None:
    going = perdure.start("run", perdure.drill({"signal": "go"}))
    going.hear("run ")

    answer = perdure("db", "status", "--json").json
    assert [(owner["partitions"], owner["live"]) for owner in answer["owners"]] == [([1], True)]
    assert answer["runs"]["unowned"] == 0
    going.kill()
    assert perdure("db", "status", "--json").json["owners"] == []


def test_a_copy_carries_an_open_run_on(perdure: CommandLine) -> None:
    run = waiting(perdure)
    done = perdure("db", "copy", HERE, "sqlite:///new.db", "--json")

    assert done.json["open_runs"] == 1 and done.json["copied"]["runs"] == 1 and len(done.json["digest"]) == 64
    assert "do not run an engine on sqlite:///perdure.db any more" in done.err
    perdure.here("signal", run, "go", "--db", "sqlite:///new.db")
    assert perdure.here("resume", run, "--db", "sqlite:///new.db").out == "moved\n"


def test_a_copy_is_refused_with_what_to_do(perdure: CommandLine) -> None:
    going = perdure.start("run", perdure.drill({"signal": "go"}))
    going.hear("run ")
    busy = perdure("db", "copy", HERE, "sqlite:///new.db", "--json", code=9)
    assert busy.error["code"] == "STORE-IN-USE" and "Stop every engine" in busy.err
    going.kill()
    perdure("db", "copy", HERE, "sqlite:///new.db")
    again = perdure("db", "copy", HERE, "sqlite:///new.db", "--json", code=9)
    assert again.error["code"] == "STORE-NOT-EMPTY" and "does not exist yet" in again.err
    assert "into itself" in perdure("db", "copy", HERE, HERE, code=2).err
    assert "into itself" in perdure("db", "copy", HERE, f"sqlite:///{perdure.folder}/perdure.db", code=2).err
    missing = perdure("db", "copy", "sqlite:///none.db", "sqlite:///x.db", "--json", code=8)
    assert missing.error["code"] == "STORE-MISSING" and not (perdure.folder / "x.db").exists()
    assert perdure("db", "copy", "oracle://x", HERE, "--json", code=1).error["code"] == "STORE-URL"


def test_counts_that_somebody_made_wrong_are_reported_and_made_anew(perdure: CommandLine) -> None:
    """SRV-013."""
    waiting(perdure)
    perdure.here("run", perdure.drill({"return": 1}, name="short"))
    assert perdure("db", "recount", "--json").json["repaired"] == 0
    with sqlite3.connect(perdure.folder / "perdure.db") as store:
        store.execute("UPDATE run_counts SET number = number + 5 WHERE status = 'succeeded'")
        store.execute("DELETE FROM run_counts WHERE status = 'waiting'")

    (first, second) = perdure("db", "validate", "--json", code=7).json["findings"]
    assert "6 succeeded runs of namespace default" in first["message"] and "there are 1" in first["message"]
    assert "0 waiting runs" in second["message"] and "perdure db recount" in second["message"]
    assert "2 counts were wrong" in perdure("db", "recount").err
    perdure("db", "validate")
    assert perdure("db", "status", "--json").json["runs"]["by_status"] == {"succeeded": 1, "waiting": 1}


def test_validate_reads_everything_and_tells_what_is_wrong(perdure: CommandLine) -> None:
    run = waiting(perdure)
    fine = perdure("db", "validate", "--json")
    assert fine.json["ok"] and fine.json["runs"] == 1 and fine.json["findings"] == []
    with sqlite3.connect(perdure.folder / "perdure.db") as connection:
        connection.execute("DELETE FROM log")
    connection.close()

    broken = perdure("db", "validate", "--json", code=7)
    assert broken.json["findings"] == [{"what": "runs", "run": run, "message": "it has no history at all"}]
    assert f"runs: {run}: it has no history at all" in perdure("db", "validate", code=7).out


def test_migrate_says_what_it_would_do_and_does_it(perdure: CommandLine) -> None:
    before = perdure("db", "migrate", "--dry-run", "--json").json
    assert (before["from"], before["applied"]) == (0, False) and "0001_first.sql" in before["migrations"]
    assert list(perdure.folder.iterdir()) == []

    assert perdure("db", "migrate", "--json").json["to"] == before["newest"]
    assert "there is nothing to do" in perdure("db", "migrate").err


def test_an_older_file_is_brought_up_to_date(perdure: CommandLine, tmp_path: Path) -> None:
    from importlib.resources import files

    script = (files("perdure.stores.sqlite") / "migrations" / "0001_first.sql").read_text()
    with sqlite3.connect(tmp_path / "perdure.db") as connection:
        connection.executescript(f"{script}; PRAGMA user_version = 1; PRAGMA application_id = {0x50455244};")
    connection.close()

    assert "would apply 0002_catalog.sql" in perdure("db", "migrate", "--dry-run").err
    assert "schema 1 is now" in perdure("db", "migrate").err
    perdure("db", "validate")


def test_a_newer_file_is_refused(perdure: CommandLine) -> None:
    waiting(perdure)
    with sqlite3.connect(perdure.folder / "perdure.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    for action in (("status",), ("validate",), ("migrate",), ("copy", HERE, "sqlite:///new.db")):
        done = perdure.here("db", *action, "--json", code=1)
        assert done.error["code"] == "STORE-NEWER", action


@pytest.mark.parametrize("action", ["status", "validate"])
def test_looking_needs_a_store_and_creates_none(perdure: CommandLine, action: str) -> None:
    assert perdure.here("db", action, "--json", code=8).error["code"] == "STORE-MISSING"
    assert list(perdure.folder.iterdir()) == []
