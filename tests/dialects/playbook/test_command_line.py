"""Playbooks from the command line: exit codes, the one JSON object, and patches from another process."""

from pathlib import Path

import pytest

from tests.cli.commandline import CommandLine
from tests.dialects.playbook.world import playbook

GATE = playbook("""
workflow:
  - step: release
    spec: {policy: {admit: {rules: [{when: "{{ ctx.approved and ctx.who.name }}", then: {allow: true}}]}}}
    tool: {kind: noop, result: "released by {{ ctx.who.name }}"}
""")


@pytest.fixture
def perdure(tmp_path: Path) -> CommandLine:
    (tmp_path / "gate.yaml").write_text(GATE)
    return CommandLine(tmp_path)


def test_a_gate_is_opened_from_another_process(perdure: CommandLine) -> None:
    """PBK-156 PBK-230 PBK-213 PBK-234."""
    run = perdure.here("run", "gate.yaml", "--detach").out.strip()
    perdure.here("patch", run, "--set", "approved=true", "--set", "who.name=Ada", "--by", "Ada", "--reason", "checked")
    perdure.here("resume", run)

    view = perdure.here("show", run, "--json").json

    assert view["status"] == "success" and view["result"] == "released by Ada"
    assert view["ctx"] == {"approved": True, "who": {"name": "Ada"}}
    perdure.here("patch", run, "--ctx", '{"x": 1}', code=9)
    assert "succeeded" in perdure.here("cancel", run, code=9).err


def test_cancelling_twice_is_as_once_and_a_patch_is_a_map(perdure: CommandLine) -> None:
    """PBK-190 PBK-156."""
    run = perdure.here("run", "gate.yaml", "--detach").out.strip()
    for words in ("[1]", "1", "{}"):
        assert "approved" in perdure.here("patch", run, "--ctx", words, code=2).err
    perdure.here("cancel", run)
    perdure.here("resume", run, code=4)

    assert perdure.here("cancel", run, "--json").json["id"] == run
    assert perdure.here("show", run, "--json").json["status"] == "cancelled"


@pytest.mark.parametrize(
    ("tool", "policy", "code", "status"),
    [
        ("{kind: noop}", "fail_on_unhandled", 0, "success"),
        ("{kind: shell, cmds: exit 3}", "fail_on_unhandled", 3, "failed"),
        ("{kind: shell, cmds: exit 3}", "partial", 0, "partial"),
    ],
)
def test_exit_codes_follow_the_status(perdure: CommandLine, tool: str, policy: str, code: int, status: str) -> None:
    """PBK-213 PBK-137."""
    text = playbook(f"""
executor: {{spec: {{policy: {{completion: {{on_failure: {policy}}}}}}}}}
workflow:
  - {{step: fork, next: {{spec: {{mode: inclusive}}, arcs: [{{step: a}}, {{step: b}}]}}}}
  - {{step: a, tool: {tool}}}
  - {{step: b, tool: {{kind: noop}}}}
""")
    (perdure.folder / "book.yaml").write_text(text)

    view = perdure.here("run", "book.yaml", "--json", code=code).json

    assert view["status"] == status


def test_an_invalid_document_is_refused_before_anything_is_stored(perdure: CommandLine) -> None:
    """PBK-034."""
    (perdure.folder / "bad.yaml").write_text(GATE.replace("tool:", "tol:"))

    assert "did you mean 'tool'" in perdure.here("check", "bad.yaml", code=7).out
    perdure.here("run", "bad.yaml", code=7)
    assert not list(perdure.folder.glob("*.db"))


def test_children_come_from_what_is_applied(perdure: CommandLine) -> None:
    """PBK-200."""
    child = playbook('workflow: [{step: c, tool: {kind: noop, result: "{{ workload.n + 1 }}"}}]')
    (perdure.folder / "kid.yaml").write_text(child.replace("tests/test", "kid"))
    (perdure.folder / "book.yaml").write_text(
        playbook("workflow: [{step: a, tool: {kind: playbook, path: kid, args: {n: 1}}}]")
    )

    view = perdure.here("run", "book.yaml", "--apply", "kid.yaml", "--json").json

    assert view["result"]["result"] == 2 and view["result"]["status"] == "success"


def test_a_history_is_told_in_the_names_of_the_language(perdure: CommandLine) -> None:
    """PBK-160 PBK-161: gap-free numbers, one envelope per event; --raw has what the kernel recorded."""
    run = perdure.here("run", "gate.yaml", "--detach").out.strip()
    perdure.here("patch", run, "--ctx", '{"approved": true, "who": {"name": "Ada"}}')
    perdure.here("resume", run)

    output = perdure("history", run, "--json").json
    lines = perdure.here("history", run).out.splitlines()

    assert [event["seq"] for event in output] == list(range(1, len(output) + 1))
    assert (
        output[0]["event_type"] == "playbook.execution.requested" and output[-1]["event_type"] == "playbook.processed"
    )
    assert all(event["execution_id"] == run for event in output)
    assert len(lines) == len(output) and "token.pending" in "".join(lines)
    raw = perdure.here("history", run, "--raw", "--json").json
    assert raw[0]["event"] == "RunStarted" and raw[-1]["event"] == "RunEnded"
    followed = perdure.here("history", run, "--follow", "--json").json
    assert followed == output
    chosen = perdure.here("history", run, "--type", "step.done", "--after", "3", "--json").json
    assert [event["event_type"] for event in chosen] == ["step.done"]


def test_the_past_is_shown_by_the_numbers_of_the_history(perdure: CommandLine) -> None:
    """PBK-167: a cut of the history gives the state after that event."""
    run = perdure.here("run", "gate.yaml", "--detach").out.strip()
    perdure.here("patch", run, "--set", "approved=1", "--set", "who.name=Ada")
    perdure.here("resume", run)
    answer = perdure.here("history", run, "--json").json
    at = {event["event_type"]: str(event["seq"]) for event in answer}

    before = perdure.here("show", run, "--at", at["token.pending"], "--json").json
    after = perdure.here("show", run, "--at", at["ctx.patched"], "--json").json

    assert before["ctx"] == {} and before["status"] == "running" and before["pending"]
    assert after["ctx"] == {"approved": 1, "who": {"name": "Ada"}}
    assert f"the run has events 1 to {len(answer)}" in perdure.here("show", run, "--at", "999", code=8).err
    forked = perdure.here("fork", run, "--at", at["token.pending"], "--detach").out.strip()
    assert perdure.here("show", forked, "--json").json["ctx"] == {}


def test_scripts_are_found_beside_the_document(perdure: CommandLine) -> None:
    """PBK-094: also when the command is given in another folder, and after a restart in a third."""
    books = perdure.folder / "books"
    books.mkdir()
    (books / "calc.py").write_text("result = x + 1")
    (books / "book.yaml").write_text(
        playbook("workflow: [{step: a, tool: {kind: python, script: {uri: calc.py}, args: {x: 1}}}]")
    )

    assert perdure.here("run", "books/book.yaml", "--json").json["result"] == 2
    run = perdure.here("run", "books/book.yaml", "--detach").out.strip()
    perdure.here("resume", run)
    assert perdure.here("show", run, "--json").json["result"] == 2


def test_a_large_result_is_shown_by_reference_and_read_on_demand(perdure: CommandLine) -> None:
    """PBK-174 PBK-175 PBK-172."""
    text = playbook("""
workflow:
  - {step: a, tool: {kind: noop, result: "{{ 'x' * 70000 }}", spec: {result: {store: {scope: step}}}}, next: {arcs: [{step: b, args: {ref: "{{ event.result.ref }}"}}]}}
  - {step: b, tool: {kind: noop, result: {text: "{{ 'y' * 70000 }}", a: "{{ args.ref }}"}, spec: {result: {select: [{path: $.a, as: a}]}}}}
""")  # noqa: E501
    (perdure.folder / "large.yaml").write_text(text)

    view = perdure.here("run", "large.yaml", "--json").json

    reference, run = view["result"], view["execution_id"]
    assert reference["kind"] == "result_ref" and reference["ref"].startswith(f"noetl://execution/{run}/")
    body = perdure.here("result", "get", reference["ref"]).json
    assert body["text"] == "y" * 70_000 and body == perdure.here("result", "get", run).json
    gone = perdure.here("result", "get", reference["extracted"]["a"], "--json", code=8)
    assert gone.error["code"] == "REFERENCE-NOT-AVAILABLE"
    assert "does not name the execution" in perdure.here("result", "get", "s3://bucket/x", code=2).err


def test_what_an_executor_lacks_refuses_the_request(perdure: CommandLine) -> None:
    """PBK-008: the request, not the registration; nothing is stored."""
    requires = "executor: {requires: {tools: [noop, snowflake], features: [joins]}}"
    text = playbook(f"{requires}\nworkflow: [{{step: a, tool: {{kind: noop}}}}]")
    (perdure.folder / "book.yaml").write_text(text)
    perdure.here("check", "book.yaml")

    refused = perdure.here("run", "book.yaml", "--json", code=10)

    assert refused.error["code"] == "START-REFUSED"
    assert "tool snowflake, feature joins" in refused.error["message"]
    assert perdure.here("ps", "--json").json == []
