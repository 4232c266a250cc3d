"""`cancel`, `redrive`, `signal`, `delete`, `pause` and `unpause` of several runs, and of all that a filter matches."""

import os
import pty
import subprocess
import time

import pytest
from tests.cli.commandline import PATIENCE, PERDURE, CommandLine


def started(perdure: CommandLine, count: int, *words: str) -> list[str]:
    file = perdure.drill({"signal": "go"}, {"return": 1}, name="order")
    return [perdure.here("run", file, "--detach", *words).out.strip() for _ in range(count)]


def statuses(perdure: CommandLine) -> dict[str, str]:
    return {row["id"]: row["status"] for row in perdure.here("ps", "--json").json}


def test_several_runs_are_named_and_the_exit_code_is_the_worst(perdure: CommandLine) -> None:
    first, second, ended = started(perdure, 3)
    perdure.here("cancel", ended)
    perdure.here("resume", ended, code=4)
    paused = perdure("pause", first, second, "--json")
    assert paused.json == {"count": 2, "ids": [first, second], "failed": [], "dry_run": False}

    done = perdure("pause", first, "nobody", "--reason", "again", code=9)
    assert "there is no run 'nobody'" in done.err and "paused already" in done.err
    assert perdure.here("unpause", second, "nobody", code=8).err.count("run") > 1
    assert statuses(perdure) == {first: "paused", second: "waiting", ended: "cancelled"}


def test_a_filter_lists_counts_and_needs_a_yes_in_a_pipe(perdure: CommandLine) -> None:
    red = started(perdure, 2, "--label", "team=red")
    (blue,) = started(perdure, 1, "--label", "team=blue")

    dry = perdure("cancel", "--label", "team=red", "--dry-run")
    assert sorted(dry.out.split()) == sorted(red) and "2 runs would be cancelled" in dry.err
    asked = perdure("cancel", "--label", "team=red", code=2)
    assert "2 runs would be cancelled; nothing was changed" in asked.err and "--yes" in asked.err
    assert set(statuses(perdure).values()) <= {"waiting", "running"}

    done = perdure("cancel", "--label", "team=red", "--yes")
    assert "2 runs: asked to stop" in done.err and "perdure resume" in done.err
    assert statuses(perdure)[blue] in ("waiting", "running")
    assert perdure.here("cancel", "--label", "team=red", "--yes", "--json").json["count"] == 2
    perdure.here("resume", *red, code=4)
    for run in red:
        events = [event["event"] for event in perdure.here("history", run, "--raw", "--json").json]
        assert events.count("CancelRequested") == 1
    nobody = perdure.here("cancel", "--label", "team=red", "--yes", "--json").json
    assert nobody == {"count": 0, "ids": [], "failed": [], "dry_run": False}, "they have ended"


def test_no_run_no_filter_and_both_are_usage_errors(perdure: CommandLine) -> None:
    (run,) = started(perdure, 1)
    assert "`perdure cancel --all` means all" in perdure.here("cancel", "--yes", code=2).err
    assert "not both" in perdure.here("cancel", run, "--all", code=2).err
    assert "perdure delete run" in perdure.here("delete", "--status", "failed", code=2).err


@pytest.mark.parametrize("name", ["", " ", "…"])
def test_a_blank_name_is_not_taken_for_the_beginning_of_the_only_run(perdure: CommandLine, name: str) -> None:
    (run,) = started(perdure, 1)
    for words in (
        ["cancel", name],
        ["cancel", run, name],
        ["delete", "run", name],
        ["delete", f"run/{name}"],
        ["pause", name, "--dry-run"],
        ["signal", name, "go"],
        ["resume", name],
        ["show", name],
        ["wait", name],
        ["diff", run, name],
        ["fork", name],
        ["why", name, "a"],
    ):
        assert perdure.here(*words, code=2).err.startswith(("perdure: ", "usage: ")), words
    assert f"{name!r} names no run" in perdure.here("cancel", name, code=2).err
    assert set(statuses(perdure)) == {run}
    assert [event["event"] for event in perdure.here("history", run, "--raw", "--json").json].count("MessageSent") == 0
    assert "which runs?" in perdure.here("cancel", "--name", name.strip("… "), "--yes", code=2).err


def test_a_signal_reaches_all_that_match_or_are_named(perdure: CommandLine) -> None:
    first, second, third = started(perdure, 3)
    assert perdure.here("signal", f"{first},{second}", "go", "17", "--json").json["ids"] == [first, second]
    assert perdure("signal", "--name", "order", "--yes", "go", "--key", "k").code == 0
    perdure.here("resume")
    assert set(statuses(perdure).values()) == {"succeeded"}
    assert perdure.here("signal", third, code=2).err.startswith("perdure: expected RUN NAME [VALUE]")


def test_failed_runs_are_redriven_once_under_a_key_and_then_deleted(perdure: CommandLine) -> None:
    file = perdure.drill({"fail": "Bad.Luck"}, name="unlucky")
    runs = [perdure.here("run", file, code=3).err.split("run ")[1].split()[0] for _ in range(2)]
    words = ("redrive", "--name", "unlucky", "--key", "ticket-17", "--yes", "--json")
    assert sorted(perdure(*words).json["ids"]) == sorted(runs)
    perdure.here("resume", code=3)
    perdure.here(*words)
    assert set(statuses(perdure).values()) == {"failed"}, "the key was used: nothing is reopened again"

    assert sorted(perdure.here("delete", "run", "--name", "unlucky", "--dry-run").out.split()) == sorted(runs)
    assert "2 runs: deleted" in perdure("delete", "runs", "--status", "failed", "--yes").err
    assert statuses(perdure) == {}
    perdure.here("delete", f"run/{runs[0]}", code=8)


def test_an_open_run_is_not_deleted(perdure: CommandLine) -> None:
    (run,) = started(perdure, 1)
    assert "has not ended" in perdure.here("delete", "run", run, code=9).err
    assert list(statuses(perdure)) == [run]


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2)])
def test_in_a_terminal_the_user_is_asked(perdure: CommandLine, answer: str, code: int) -> None:
    runs = started(perdure, 2)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PERDURE, "pause", "--all"], cwd=perdure.folder, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        seen, until = "", time.monotonic() + PATIENCE
        while "[y/N]" not in seen and time.monotonic() < until:
            seen += os.read(ours, 4096).decode()
        assert "pause 2 runs, of which" in seen
        os.write(ours, f"{answer}\n".encode())
        assert process.wait(PATIENCE) == code
        os.close(ours)
    assert (set(statuses(perdure).values()) == {"paused"}) is (answer == "y")
    assert len(runs) == 2
