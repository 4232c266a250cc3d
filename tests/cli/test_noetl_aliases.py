"""Words that users of NoETL are used to: understood, and answered as our own verbs answer (section 16)."""

from pathlib import Path
from typing import Any

import pytest
from tests.cli.commandline import CommandLine
from tests.dialects.playbook.world import playbook

from perdure.services.playbook.noetl_aliases import translate_arguments

SUMS = playbook("""
workload: {a: 1, b: {c: 2, d: 3}}
workflow:
  - {step: first, tool: {kind: noop, result: first}, next: {arcs: [{step: sum}]}}
  - {step: sum, tool: {kind: noop, result: ["{{ workload.a }}", "{{ workload.b.c }}", "{{ workload.b.d }}"]}}
""").replace("tests/test", "math/sums")

GATE = playbook("""
workflow:
  - {step: before, tool: {kind: noop, result: secret}, next: {arcs: [{step: release}]}}
  - step: release
    spec: {policy: {admit: {rules: [{when: "{{ ctx.approved }}", then: {allow: true}}]}}}
    tool: {kind: noop, result: released}
""")


@pytest.fixture
def perdure(tmp_path: Path) -> CommandLine:
    (tmp_path / "sums.yaml").write_text(SUMS)
    (tmp_path / "gate.yaml").write_text(GATE)
    return CommandLine(tmp_path)


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("validate a.yaml b.yaml", "check a.yaml b.yaml"),
        ("exec a.yaml --payload {}", "run a.yaml --payload {}"),
        ("executions --all", "ps --all"),
        ("events 06g --after-seq=3", "history 06g --after=3"),
        ("ctx set 06g a=1 b.c=x --by Ada", "patch 06g --set a=1 --set b.c=x --by Ada"),
        ("replay 06g --as-of 4", "show 06g --at 4"),
        ("replay 06g --with new.yaml", "replay 06g --with new.yaml"),
        ("cleanup", "prune --older-than 5m"),
        ("cleanup --older-than-minutes 30 --dry-run", "prune --older-than 30m --dry-run"),
        ("cleanup --older-than-minutes=1", "prune --older-than 1m"),
        ("register playbook a.yaml", "apply -f a.yaml"),
        ("register playbook --file a.yaml", "apply -f a.yaml"),
        ("catalog register a.yaml", "apply -f a.yaml"),
        ("catalog list", "get playbooks"),
        ("catalog list playbooks --json", "get playbooks --json"),
        ("catalog list --json", "get playbooks --json"),
        ("catalog get math/sums", "get playbook math/sums -o yaml"),
        ("catalog get playbook math/sums --json", "get playbook math/sums --json"),
        ("server start --port 0", "serve --port 0"),
        ("worker start --pool gpu", "worker --pool gpu"),
        ("run a.yaml", "run a.yaml"),
        ("signal ctx set", "signal ctx set"),
    ],
)
def test_a_habit_is_a_spelling_of_a_verb(command: str, meant: str) -> None:
    """PBK-234."""
    assert translate_arguments(command.split()) == meant.split()


def test_payload_is_overridden_by_set(perdure: CommandLine) -> None:
    """PBK-211: JSON where it can be read as such, else text; dots reach into maps."""
    payload = '{"a": 5, "b": {"c": 6}}'
    shown = perdure("exec", "sums.yaml", "--payload", payload, "--set", "b.c=seven", "--set", "a=8", "--json").json

    assert shown["result"] == [8, "seven", 3]


def test_a_run_may_begin_with_another_step_this_once(perdure: CommandLine) -> None:
    """PBK-054 PBK-007: under the same check as the document's own, and recorded."""
    shown = perdure.here("run", "sums.yaml", "-t", "sum", "-r", "local", "--json").json
    asked = perdure.here("events", shown["execution_id"], "--type", "playbook.request.evaluated", "--json").json

    assert list(shown["steps"]) == ["sum"]
    assert asked[0]["payload"]["entry"] == "sum"
    wrong = perdure("run", "sums.yaml", "--target", "sun", code=7)
    assert "there is no step 'sun'" in wrong.err and "did you mean 'sum'" in wrong.err
    assert "begins with a step" in perdure.here("run", perdure.drill({"return": 1}), "-t", "a", code=2).err


def test_a_dry_run_is_a_check(perdure: CommandLine) -> None:
    """PBK-034: nothing is stored."""
    (perdure.folder / "bad.yaml").write_text(SUMS.replace("tool:", "tol:"))

    assert perdure("run", "sums.yaml", "--dry-run").out == ""
    assert "waits for a patch from outside" in perdure.here("run", "gate.yaml", "--dry-run").out
    assert "'tol'" in perdure.here("run", "bad.yaml", "--dry-run", code=7).out
    assert "'tol'" in perdure.here("validate", "bad.yaml", "sums.yaml", code=7).out
    assert not list(perdure.folder.glob("*.db"))


def test_no_run_is_handed_to_a_server_that_is_not_there(perdure: CommandLine) -> None:
    assert "no server" in perdure.here("run", "sums.yaml", "-r", "distributed", code=2).err


def test_status_says_how_a_run_stands_and_nothing_it_has_produced(perdure: CommandLine) -> None:
    """PBK-213."""
    run = perdure.here("run", "gate.yaml", "--wait-timeout", "300ms", "--json", code=6).json["execution_id"]
    stands = perdure("status", run, "--json").json

    assert stands["status"] == "waiting" and stands["current"] == [] and stands["failures"] == []
    (pending,) = stands["pending"]
    assert (pending["step"], pending["reads"]) == ("release", ["ctx.approved"])
    assert pending["reason"] == "no rule of its gate matches"
    assert stands["steps"]["before"]["done"] == 1
    assert stands["started_at"] and stands["ended_at"] is None and stands["live"] is False
    assert stands["last_seq"] == len(perdure.here("history", run, "--json").json)
    assert "secret" not in str(stands) and not {"result", "ctx", "order"} & set(stands)
    perdure.here("ctx", "set", run, "approved=true")
    perdure.here("resume", run)
    assert perdure.here("status", run, "--json").json["status"] == "success"
    assert "status: success" in perdure.here("status", run).out
    assert [row["id"] for row in perdure.here("executions", "--json").json] == [run]


def test_status_is_there_for_every_language(perdure: CommandLine) -> None:
    run = perdure.here("run", perdure.drill({"return": 1}), "--json").json["id"]
    stands = perdure.here("status", run, "--json").json

    assert stands["status"] == "succeeded" and stands["ended_at"]
    assert stands["last_seq"] == len(perdure.here("history", run, "--json").json)


def test_the_past_is_shown_by_number_id_and_time(perdure: CommandLine) -> None:
    """PBK-167."""
    run = perdure.here("run", "sums.yaml", "--json").json["execution_id"]
    events = perdure.here("events", run, "--json").json
    ended = next(event for event in events if event["event_type"] == "step.done")

    by_number: dict[str, Any] = perdure("replay", run, "--as-of", str(ended["seq"]), "--json").json
    by_id = perdure.here("replay", run, "--as-of", ended["event_id"], "--json").json
    by_time = perdure.here("show", run, "--at", events[-1]["timestamp"], "--json").json

    assert by_number == by_id and by_number["steps"]["first"]["done"] == 1 and "sum" not in by_number["steps"]
    assert by_time["status"] == "success"
    perdure.here("show", run, "--at", "2020-01-01T00:00:00Z", code=9)
    perdure.here("show", run, "--at", "other/3", code=2)
    perdure.here("show", run, "--at", "yesterdayish", code=2)


def test_what_is_registered_can_be_listed_read_and_run_in_each_version(perdure: CommandLine) -> None:
    """PBK-210: identical content is the same version, changed content the next one, invalid content nothing."""
    assert "created" in perdure("register", "playbook", "sums.yaml").out
    assert "unchanged" in perdure.here("register", "playbook", "sums.yaml").out
    (perdure.folder / "sums.yaml").write_text(SUMS.replace("a: 1", "a: 100"))
    assert "configured" in perdure.here("catalog", "register", "sums.yaml").out
    (perdure.folder / "sums.yaml").write_text(SUMS.replace("tool:", "tol:"))
    perdure.here("register", "playbook", "sums.yaml", code=7)
    (perdure.folder / "sums.yaml").unlink()

    assert "math/sums" in perdure.here("catalog", "list").out
    assert "a: 100" in perdure.here("catalog", "get", "math/sums").out
    assert perdure.here("run", "math/sums", "--json").json["result"][0] == 100
    assert perdure.here("exec", "math/sums@1", "--json").json["result"][0] == 1
    perdure.here("run", "math/nothing", code=8)


def test_old_runs_are_cleaned_up(perdure: CommandLine) -> None:
    perdure.here("run", "sums.yaml")

    assert "0 runs" in perdure.here("cleanup").err
    assert "1 run would be removed" in perdure.here("cleanup", "--older-than-minutes", "0", "--dry-run").err
    assert "1 run removed" in perdure.here("cleanup", "--older-than-minutes", "0").err


def test_cancel_takes_the_word_cascade(perdure: CommandLine) -> None:
    """PBK-190: children are always cancelled too."""
    run = perdure.here("run", "gate.yaml", "--detach").out.strip()
    perdure.here("cancel", run, "--cascade", "--reason", "enough")
    perdure.here("resume", run, code=4)

    (event,) = perdure.here("events", run, "--type", "execution.cancelled", "--json").json
    assert event["payload"]["reason"] == "enough"
    assert perdure.here("cancel", run, "--json").json["id"] == run  # twice is as once


def test_help_names_the_habits_in_one_paragraph(perdure: CommandLine) -> None:
    """PBK-234: the list of verbs stays ours."""
    usage = perdure("--help").out

    assert "NoETL commands are accepted" in usage
    assert not [line for line in usage.splitlines() if line.strip().startswith(("status ", "validate ", "exec "))]
    assert "without its results" in perdure("status", "--help").out
