"""`show` and `history`: a run now, then, and event by event."""

import json
from typing import Any

from tests.cli.commandline import CommandLine, strict_json


def test_an_open_run_says_what_it_waits_for(perdure: CommandLine) -> None:
    call = {"call": "shell", "with": {"argv": ["true"]}}
    file = perdure.drill(call, {"signal": "go", "timeout": "2h"}, name="patient")
    run = perdure.here("run", file, "--wait-timeout", "300ms", "--label", "team=blue", code=6).err.split()[1]
    done = perdure("show", run[:20])

    assert f"run       {run}\n" in done.out
    assert "status    waiting, interrupted" in done.out
    assert "why       It waits for signal 'go', at most 1 h 59 m more; no process runs it now." in done.out
    assert f"do        perdure resume {run}\n" in done.out
    assert "1 task done" in done.out
    assert "team=blue" in done.out


def test_the_past_can_be_shown(perdure: CommandLine) -> None:
    run = perdure.here("run", perdure.drill({"call": "echo"}, {"return": "end"}), "--json").json["id"]
    events = perdure.here("history", run, "--json").json
    scheduled = next(event["seq"] for event in events if event["event"] == "TaskScheduled")
    then = perdure("show", run, "--at", str(scheduled), "--json").json

    assert then["status"] == "running"
    assert list(then["open"]["tasks"].values()) == ["echo"]
    page = perdure("show", run, "--at", str(scheduled)).out  # ANA-030: what is said is about then, not about now
    assert "before that)" in page and "\nat " in page and "interrupted" not in page and "ago" not in page
    assert 'result    "end"' in perdure("show", run).out
    assert "there is no event 999" in perdure("show", run, "--at", "999", code=8).err
    assert "there is no event 0; the first event of a run is 1" in perdure("show", run, "--at", "0", code=8).err


def test_the_past_is_found_by_number_by_id_and_by_time_and_has_a_checksum(perdure: CommandLine) -> None:
    """PBK-167."""
    run = perdure.here("run", perdure.drill({"call": "echo"}, {"return": "end"}), "--json").json["id"]
    last = perdure.here("history", run, "--json").json[-1]

    def at(*when: str) -> Any:
        return perdure.here("show", run, *when, "--checksum", "--json").json

    now = at()
    assert now == at("--at", str(last["seq"])) == at("--at", f"{run}/{last['seq']}") == at("--at", last["at"])
    assert now["checksum"] != at("--at", "1")["checksum"]
    assert now["checksum"] in perdure("show", run, "--checksum").out
    assert "had not started" in perdure("show", run, "--at", "2001-01-01", code=9).err
    assert "yesterday" in perdure("show", run, "--at", "yesterday", code=2).err


def test_a_failure_is_shown_with_its_details(perdure: CommandLine) -> None:
    file = perdure.drill({"call": "shell", "with": {"script": "echo oops >&2; exit 4"}})
    run = perdure.here("run", file, "--json", code=3).json["id"]
    output = perdure("show", run).out

    assert "status    failed" in output
    assert "error     Provider.Call.Shell.Exit4" in output
    assert "oops" in output


def test_a_history_is_one_line_per_event_cut_unless_asked_otherwise(perdure: CommandLine) -> None:
    long = "x" * 500
    run = perdure.here("run", perdure.drill({"set": {"long": long}}, {"return": 1}), "--json").json["id"]
    events = perdure.here("history", run, "--json").json
    lines = perdure("history", run).out.splitlines()

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len(lines) == len(events)
    assert "RunStarted" in lines[0] and "RunEnded" in lines[-1]
    assert max(map(len, lines)) <= 160
    assert long in perdure.here("history", run, "--full").out


def test_a_history_can_be_followed_to_its_end_as_one_json_value(perdure: CommandLine) -> None:
    live = perdure.start("run", perdure.drill({"signal": "go"}))
    run = live.run
    follower = perdure.start("history", run, "--follow", "--json")
    assert follower.process.stdout is not None
    first = follower.process.stdout.readline()
    perdure.here("signal", run, "go")
    done = follower.end()

    assert '"RunStarted"' in first
    assert strict_json(first + done.out)[-1]["event"] == "RunEnded"
    assert live.end().code == 0


def test_a_timer_on_the_last_day_there_is_can_be_looked_at_everywhere(perdure: CommandLine) -> None:
    step = {"action": "Sleep", "until": "9999-12-31T23:59:59Z", "next": "b"}
    flow = {"entrypoint": "a", "steps": {"a": step, "b": {"action": "Return"}}}
    (perdure.folder / "flow.json").write_text(json.dumps({"$schema": "https://mwl.dev/v0.1/flow/schema.json", **flow}))
    waiting = perdure.start("run", "flow.json")
    run = waiting.run
    waiting.hear("waits for the time set in step 'a'")
    waiting.kill()

    for verb in ("show", "history"):
        assert perdure(verb, run, TZ="Asia/Tokyo").code == 0
