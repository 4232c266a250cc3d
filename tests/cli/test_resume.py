"""`resume`: takes up what nobody drives, follows what somebody does, and knows when only a person can help."""

import json
from typing import Any

import pytest
from tests.cli.commandline import CommandLine
from tests.dialects.flow.documents import flow

ASKS = ({"signal": "go", "save": "said"}, {"return": "$said"})


def test_a_run_that_waits_for_a_signal_is_named_and_left(perdure: CommandLine) -> None:
    child = {"drill": 1, "name": "kid", "steps": list(ASKS)}
    run = perdure.here("run", perdure.drill({"child": child}, name="parent"), "--detach").out.strip()
    done = perdure("resume")

    assert f"run {run} waits for child {run}.1, which waits for signal 'go'" in done.err
    assert "nothing more happens by itself" in done.err
    assert done.out == f"{run}  waiting\n"


def test_the_answer_of_one_run_is_that_of_run(perdure: CommandLine) -> None:
    good = perdure.here("run", perdure.drill({"return": 7}, name="good"), "--detach").out.strip()
    bad = perdure.here("run", perdure.drill({"sleep": "1ms"}, {"fail": "Bad"}, name="bad"), "--detach").out.strip()

    assert perdure("resume", good).out == "7\n"
    assert perdure("resume", bad, "--json", code=3).json["outcome"]["code"] == "Bad"


def test_everything_at_once_exits_with_the_first_bad_end(perdure: CommandLine) -> None:
    perdure.here("run", perdure.drill({"sleep": "1ms"}, {"return": 7}, name="good"), "--detach")
    perdure.here("run", perdure.drill({"sleep": "1ms"}, {"fail": "Bad"}, name="bad"), "--detach")
    rows = perdure("resume", "--json", code=3).json

    assert {row["name"]: row["status"] for row in rows} == {"good": "succeeded", "bad": "failed"}


def test_a_run_with_a_live_owner_is_followed_to_its_end(perdure: CommandLine) -> None:
    owner = perdure.start("run", perdure.drill(*ASKS))
    run = owner.run
    follower = perdure.start("resume", run)
    follower.hear("waits for signal 'go'")

    # It waits for a person, so it is not followed any further; the owner goes on.
    assert follower.end().code == 0
    perdure.here("signal", run, "go", '"done"')
    assert owner.end().out == "done\n"


def test_an_owner_that_dies_is_succeeded_by_who_follows(perdure: CommandLine) -> None:
    owner = perdure.start("run", perdure.drill({"signal": "go", "timeout": "1h"}, {"return": "mine now"}))
    run = owner.run
    follower = perdure.start("resume", run)
    follower.hear("waits for signal 'go'")
    owner.kill()
    perdure.here("signal", run, "go")

    assert follower.end().out == "mine now\n"


def test_resume_without_a_store_is_not_found_and_creates_none(perdure: CommandLine) -> None:
    assert "there is no file perdure.db" in perdure("resume", code=8).err
    assert list(perdure.folder.iterdir()) == []


def rounds(perdure: CommandLine, language: str) -> str:
    """A document with far more internal moves than a slice has."""
    if language == "drill":
        return perdure.drill({"repeat": 20_000, "do": [{"set": {"n": 1}}]}, {"return": "done"}, name="long")
    if language == "flow":
        steps: dict[str, Any] = {
            "begin": {"action": "Pass", "assign": {"n": 0}, "next": "look"},
            "look": {
                "action": "Match",
                "cases": [{"when": "{{ vars.n < 5000 }}", "next": "count"}],
                "default": {"next": "end"},
            },
            "count": {"action": "Pass", "assign": {"n": "{{ vars.n + 1.0 }}"}, "next": "look"},
            "end": {"action": "Return"},
        }
        document = flow(steps)
    else:
        loop = {"in": "{{ range(6000) | list }}", "iterator": "n"}
        document = {
            "apiVersion": "noetl.io/v10",
            "kind": "Playbook",
            "metadata": {"name": "rounds", "path": "rounds"},
            "workflow": [{"step": "each", "loop": loop, "tool": {"kind": "noop"}}],
        }
    (perdure.folder / "rounds.json").write_text(json.dumps(document))
    return "rounds.json"


@pytest.mark.parametrize("language", ["drill", "flow", "playbook"])
def test_resume_goes_on_as_long_as_the_run_has_moves_to_make(perdure: CommandLine, language: str) -> None:
    """Invariant 5: a run that gave way after a slice of work waits for nothing from outside."""
    run = perdure.here("run", rounds(perdure, language), "--detach").out.strip()
    done = perdure("resume", run)

    assert "waits for" not in done.err
    assert f"run {run} succeeded" in done.err
    assert perdure.row(run)["status"] == "succeeded"
