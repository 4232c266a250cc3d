"""What was said to runs that nobody drives: acknowledged, shown, refused or declined, in real processes."""

from typing import Any

import pytest
from tests.cli.commandline import CommandLine

STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: deploy}
spec:
  STORY
  steps:
  - {name: g, type: gate, with: {WITH}}
  - {name: later, type: gate, needs: [g]}
"""

PLAYBOOK = """\
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: p, path: tests/p}
workflow:
  - step: go
    spec: {policy: {admit: {rules: [{when: "{{ ctx.approved }}", then: {allow: true}}]}}}
    tool: {kind: noop}
"""

DEADLY = """\
import os, signal
import perdure

@perdure.engram("deadly")
def deadly(inputs, context):
    os.kill(os.getpid(), signal.SIGKILL)
"""

AT_WORK = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: work}
spec:
  policy: {timeouts: {story: 700ms}}
  steps: [{name: a, ref: {name: deadly}}]
"""


def story(perdure: CommandLine, members: str = "", spec: str = "") -> str:
    """The id of a run at its gate, which nobody drives."""
    (perdure.folder / "story.yaml").write_text(STORY.replace("WITH", members).replace("STORY", spec))
    return perdure.here("run", "story.yaml", "--detach").out.strip()


def playbook(perdure: CommandLine) -> str:
    (perdure.folder / "book.yaml").write_text(PLAYBOOK)
    return perdure.here("run", "book.yaml", "--detach").out.strip()


def phases(perdure: CommandLine, run: str) -> dict[str, str]:
    steps: dict[str, Any] = perdure.here("show", run, "--json").json["status"]["stepStates"]
    return {name: state["phase"] for name, state in steps.items()}


def names(perdure: CommandLine, run: str) -> list[str]:
    return [event["event_type"] for event in perdure.here("history", run, "--json").json]


def test_a_decision_at_an_overdue_gate_is_acknowledged_and_counts(perdure: CommandLine) -> None:
    """STY-103."""
    run = story(perdure, "timeout: 10ms")
    done = perdure.here("approve", run, "g", "--by", "Ada", "--json")

    assert done.json == {"id": run, "recorded": True, "live": False, "decided": False, "remarks": []}
    assert "recorded; it takes effect when the run is resumed" in done.err
    perdure.here("resume", run)
    assert phases(perdure, run) == {"g": "Succeeded", "later": "Paused"}


def test_the_last_of_two_decisions_wins_and_says_whom_it_overrides(perdure: CommandLine) -> None:
    """STY-105."""
    run = story(perdure)
    perdure.here("approve", run, "g", "--by", "A")
    done = perdure.here("reject", run, "g", "--by", "B")

    assert "overrides gate 'g' approved by A, recorded at " in done.err
    assert "gate.decided" not in names(perdure, run)
    perdure.here("resume", run, code=3)
    assert phases(perdure, run)["g"] == "Failed"
    assert names(perdure, run).count("gate.decided") == 2


def test_what_is_not_decided_yet_is_in_every_look_but_not_in_the_history(perdure: CommandLine) -> None:
    run = playbook(perdure)
    before = names(perdure, run)
    perdure.here("patch", run, "--ctx", '{"approved": true}', "--by", "Ada")
    perdure.here("patch", run, "--ctx", '{"note": "x"}')

    shown = perdure.here("show", run, "--json").json
    assert shown["ctx"] == {"approved": True, "note": "x"}
    assert [message["by"] for message in shown["pending"] if message.get("kind") == "steer"] == ["Ada", None]
    assert "patch of ctx.approved at " in perdure.here("show", run).out
    (row,) = perdure.here("ps", "--json").json
    assert [message["kind"] for message in row["pending"]] == ["steer", "steer"]
    listed = perdure.here("ps")
    assert "interrupted  steer pending" in listed.out
    assert "patch of ctx.note at " in listed.err
    assert "takes effect when resumed" in perdure.here("status", run).out
    assert names(perdure, run) == before
    assert perdure.here("show", run, "--at", str(len(before)), "--json").json["ctx"] == {}
    perdure.here("resume", run)
    assert perdure.here("show", run, "--json").json["ctx"] == {"approved": True, "note": "x"}
    assert names(perdure, run).count("ctx.patched") == 2
    (row,) = perdure.here("ps", "--json").json
    assert row["pending"] == []


def test_a_cancel_that_waits_is_shown_and_refuses_what_comes_behind_it(perdure: CommandLine) -> None:
    run = story(perdure)
    perdure.here("cancel", run)
    again = perdure.here("cancel", run)

    assert "waits already" in again.err
    shown = perdure.here("show", run)
    assert "cancel requested at " in shown.out and "takes effect when resumed" in shown.out
    assert "perdure approve" not in shown.out, "nobody is advised to do what would be refused"
    refused = perdure.here("approve", run, "g", code=9)
    assert "a cancel was requested at " in refused.err
    assert perdure.here("signal", run, "g.x", "1", "--json", code=9).error["code"] == "CONFLICT"
    perdure.here("resume", run, code=4)
    assert phases(perdure, run)["g"] == "Canceled"
    assert "input.declined" not in names(perdure, run)


def test_a_bound_that_has_passed_refuses_and_is_named(perdure: CommandLine) -> None:
    run = story(perdure, "timeout: 1h", "policy: {timeouts: {story: 1ms}}")
    refused = perdure.here("approve", run, "g", code=9)

    assert "StoryRun exceeded timeout of 1ms (at " in refused.err
    assert "perdure approve" not in perdure.here("show", run).out
    perdure.here("cancel", run)


def test_a_bound_that_has_passed_is_in_the_list_as_in_the_run(perdure: CommandLine) -> None:
    """Invariant 8: nobody has said a word, nobody drives the run. Where no bound has passed a gate still waits."""
    waiting = story(perdure, "timeout: 1ms")
    over = story(perdure, "timeout: 1h", "policy: {timeouts: {story: 1ms}}")
    listed = {row["id"]: row for row in perdure.here("ps", "--json").json}

    assert [message["kind"] for message in listed[over]["pending"]] == ["deadline"]
    assert listed[over]["pending"] == perdure.here("show", over, "--json").json["pending"]
    assert (listed[waiting]["status"], listed[waiting]["pending"]) == ("waiting", [])
    assert "interrupted  deadline pending" in perdure.here("ps").out


def test_a_bound_of_a_run_that_was_at_work_when_its_process_died_is_in_the_list(perdure: CommandLine) -> None:
    """Invariant 8: the row says before when nothing is due, also while there is work."""
    (perdure.folder / "work.py").write_text(DEADLY)
    (perdure.folder / "work.yaml").write_text(AT_WORK)
    perdure("run", "work.yaml", "--load", "work.py", code=-9)
    (row,) = perdure.here("ps", "--json").json
    while not (pending := perdure.here("show", row["id"], "--json").json.get("pending")):
        pass
    (row,) = perdure.here("ps", "--json").json

    assert row["pending"] == pending
    assert [message["kind"] for message in pending] == ["deadline"]


def test_a_gate_that_is_not_reached_takes_the_decision(perdure: CommandLine) -> None:
    run = story(perdure)

    assert "applies when gate 'later' is reached" in perdure.here("approve", run, "later").err
    perdure.here("approve", run, "g")
    perdure.here("resume", run)
    assert phases(perdure, run) == {"g": "Succeeded", "later": "Succeeded"}
    ended = perdure.here("approve", run, "g", code=9)
    assert "the run has already succeeded (at " in ended.err
    assert "there is nothing to stop" in perdure.here("cancel", run).err


def test_a_live_owner_answers_the_sender(perdure: CommandLine) -> None:
    (perdure.folder / "story.yaml").write_text(STORY.replace("WITH", "").replace("STORY", ""))
    live = perdure.start("run", "story.yaml")
    run = live.run
    live.hear("waits for a decision at gate 'g'")
    done = perdure("approve", run, "g", "--by", "Ada", "--json")

    assert done.json["live"]
    live.hear("gate 'later'")
    assert phases(perdure, run)["g"] == "Succeeded"
    refused = perdure("reject", run, "g", code=9)
    assert "gate 'g' has already ended as Succeeded (Approved by Ada)" in refused.err
    assert perdure("cancel", run, "--json").json["live"]
    assert live.end().code == 4


@pytest.mark.parametrize("late", [True, False], ids=["before it is reached", "at the gate"])
def test_a_patch_of_a_gate_is_merged_into_what_is_there(perdure: CommandLine, late: bool) -> None:
    """STY-105: it touches nothing that it does not name."""
    run = story(perdure)
    step = "later" if late else "g"
    name = perdure.here("show", run, "--json").json["metadata"]["name"]

    def patch(members: str) -> None:
        gates = f'{{"status": {{"gates": {{"{step}": {members}}}}}}}'
        perdure.here("patch", "storyrun", name, "--subresource", "status", "-p", gates)

    patch('{"message": "looked at", "updatedBy": "Ada"}')
    shown = perdure.here("show", run, "--json").json["status"]["gates"][step]
    assert (shown["state"], shown["message"], shown["updatedBy"]) == ("Pending", "looked at", "Ada")
    patch('{"state": "Approved"}')
    patch('{"message": null}')
    shown = perdure.here("show", run, "--json").json["status"]["gates"][step]
    assert (shown["state"], shown.get("message"), shown["updatedBy"]) == ("Approved", None, "Ada")


def test_a_run_that_was_told_something_is_not_deleted(perdure: CommandLine) -> None:
    """Invariant 26."""
    run = story(perdure)
    perdure.here("cancel", run)
    perdure.here("resume", run, code=4)
    name = perdure.here("show", run, "--json").json["metadata"]["name"]
    perdure.here("redrive", run)

    refused = perdure.here("delete", "storyrun", name, code=9)
    assert "is not decided yet" in refused.err
    assert perdure.here("prune", "--older-than", "0s", "--json").json["removed"] == 0
    perdure.here("resume", run)
    assert phases(perdure, run)["g"] == "Paused"


FAMILY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: outer}
spec:
  steps:
  - {name: sub, type: executeStory, with: {storyRef: {name: inner}, waitForCompletion: false}}
  - {name: g, type: gate}
---
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: inner}
spec:
  steps:
  - {name: w, type: gate}
  finally:
  - {name: z, type: sleep, with: {duration: 200ms}}
"""


def test_a_cascade_leaves_no_child_running_without_an_owner(perdure: CommandLine) -> None:
    """Nobody waits for the child; the process stays until it has stopped and cleaned up."""
    (perdure.folder / "family.yaml").write_text(FAMILY)
    perdure.here("apply", "-f", "family.yaml")
    live = perdure.start("run", "outer")
    run = live.run
    live.hear("waits for a decision at gate 'g'")
    perdure("cancel", run, "--cascade")
    live.end()

    assert {run["status"] for run in perdure.here("ps", "--all", "--json").json} == {"cancelled"}


def test_a_cascade_reaches_children_that_have_not_begun(perdure: CommandLine) -> None:
    (perdure.folder / "family.yaml").write_text(FAMILY)
    perdure.here("apply", "-f", "family.yaml")
    run = perdure.here("run", "outer", "--detach").out.strip()
    perdure.here("cancel", run, "--cascade")
    perdure("resume", run, code=4)

    statuses = [run["status"] for run in perdure.here("ps", "--all", "--json").json]
    assert statuses == ["cancelled", "cancelled"]


def test_a_cascade_below_a_run_that_has_ended_names_those_that_nobody_drives(perdure: CommandLine) -> None:
    (perdure.folder / "family.yaml").write_text(FAMILY.replace("  - {name: g, type: gate}\n", "", 1))
    perdure.here("apply", "-f", "family.yaml")
    run = perdure("run", "outer", "--json").json["metadata"]["uid"]
    done = perdure.here("cancel", run, "--cascade")

    assert "1 run below it is asked too" in done.err
    assert f"stop them with: perdure resume {run}.1" in done.err
    perdure("resume", f"{run}.1", code=4)
    statuses = {run["id"]: run["status"] for run in perdure.here("ps", "--all", "--json").json}
    assert statuses == {run: "succeeded", f"{run}.1": "cancelled"}
