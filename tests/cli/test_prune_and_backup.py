"""`prune` and `backup`: what an operator does to the store itself."""

import os
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine


def test_prune_counts_first_and_then_removes_only_what_has_ended(perdure: CommandLine) -> None:
    child = {"drill": 1, "name": "kid", "steps": []}
    perdure.here("run", perdure.drill({"child": child}, name="parent"))
    waiting = perdure.here("run", perdure.drill({"signal": "go"}), "--detach").out.strip()

    assert "0 runs removed" in perdure("prune", "--older-than", "1h").err
    assert perdure("prune", "--older-than", "0", "--dry-run", "--json").json["ripe"] == 2
    assert len(perdure.here("ps", "--json").json) == 3
    assert perdure("prune", "--older-than", "0", "--json").json["removed"] == 2
    assert [row["id"] for row in perdure.here("ps", "--json").json] == [waiting]


def test_a_backup_is_a_store_and_replaces_nothing_unasked(perdure: CommandLine) -> None:
    run = perdure.here("run", perdure.drill({"signal": "go"}, {"return": "copied"}), "--detach").out.strip()
    perdure("backup", "copy.db")

    assert "--force" in perdure("backup", "copy.db", code=9).err
    assert perdure("backup", "copy.db", "--force", "--json").json["file"] == "copy.db"
    assert not list(perdure.folder.glob("*.partial"))
    assert "no such folder" in perdure("backup", "nowhere/copy.db", code=8).err
    copy = ("--db", "sqlite:///copy.db")
    perdure.here("signal", run, "go", *copy)
    assert perdure.here("resume", run, *copy).out == "copied\n"
    assert perdure.row(run)["status"] == "running" or perdure.row(run)["status"] == "waiting"


@pytest.mark.parametrize("verb", [("show", "x"), ("history", "x"), ("prune", "--older-than", "1d")])
def test_a_verb_that_reads_needs_a_store_and_creates_none(perdure: CommandLine, verb: tuple[str, ...]) -> None:
    done = perdure.here(*verb, "--json", code=8)

    assert done.error["code"] == "STORE-MISSING"
    assert perdure.here("ps", "--json", code=8).json == []
    assert list(perdure.folder.iterdir()) == []


def test_a_file_that_is_no_store_is_left_alone(perdure: CommandLine) -> None:
    (perdure.folder / "notes.db").write_text("these are my notes, not a database\n" * 50)
    before = (perdure.folder / "notes.db").read_bytes()

    assert perdure.here("ps", "--db", "sqlite:///notes.db", "--json", code=1).error["code"] == "STORE-CORRUPT"
    perdure.here("run", perdure.drill({"return": 1}), "--db", "sqlite:///notes.db", code=1)
    assert (perdure.folder / "notes.db").read_bytes() == before


def test_a_folder_or_another_kind_of_address_is_no_store(perdure: CommandLine) -> None:
    (perdure.folder / "folder").mkdir()
    file = perdure.drill({"return": 1})

    assert "folder" in perdure.here("run", file, "--db", "sqlite:///folder", code=1).err
    assert perdure.here("run", file, "--db", "mysql://x", "--json", code=1).error["code"] == "STORE-URL"
    assert "is not a folder" in perdure.here("run", file, "--db", "sqlite:///no/where.db", code=8).err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_explained(perdure: CommandLine, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    done = perdure.here("run", perdure.drill({"return": 1}), "--db", f"sqlite:///{locked}/x.db", "--json", code=1)

    assert done.error["code"] == "STORE-READ-ONLY"


def test_an_age_without_a_unit_removes_nothing(perdure: CommandLine) -> None:
    perdure.here("run", perdure.drill({"return": 1}))
    done = perdure("prune", "--older-than", "30", code=2)

    assert "'30' has no unit (expected e.g. 30d)" in done.err
    assert len(perdure.here("ps", "--json").json) == 1
