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

    shown = perdure.here("show", run, "--json").json

    assert shown["status"] == "success" and shown["result"] == "released by Ada"
    assert shown["ctx"] == {"approved": True, "who": {"name": "Ada"}}
    perdure.here("patch", run, "--ctx", '{"x": 1}', code=9)


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

    shown = perdure.here("run", "book.yaml", "--json", code=code).json

    assert shown["status"] == status


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

    shown = perdure.here("run", "book.yaml", "--apply", "kid.yaml", "--json").json

    assert shown["result"]["result"] == 2 and shown["result"]["status"] == "success"
