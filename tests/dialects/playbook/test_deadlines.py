"""`deadline_s` counts from the token and holds wherever the token or its step-run waits (PBK-193)."""

from typing import Any

import pytest

from perdure.kernel import inputs as i
from perdure.kernel.graphs.net import Defect, DefectKind
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Failed
from tests.analysis.plays import findings_of
from tests.dialects.playbook.test_history import told
from tests.dialects.playbook.world import Answer, World, playbook

GATE = 'admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}'
TIMED_OUT = "\"{{ event.name == 'step.failed' and event.error.kind == 'timeout' }}\""


def gated(rest: str = "", head: str = "") -> str:
    return playbook(f"""
{head}
workflow:
  - step: approve
    spec: {{policy: {{lifecycle: {{deadline_s: 10}}, {GATE}}}}}
    tool: {{kind: work}}
    next: {{arcs: [{{step: late, when: {TIMED_OUT}}}]}}
  - {{step: late, tool: {{kind: noop, result: late}}}}
{rest}
""")


def start(text: str, work: Any = lambda _: 1, **options: Any) -> World:
    return World(text, work={"work": work}, crash=True, **options)


def test_a_token_at_a_gate_ends_at_its_deadline_and_its_arcs_are_evaluated() -> None:
    """The run waits for nothing else: the deadline ends the wait, too."""
    world = start(gated())
    assert world.pass_time(9)["status"] == "waiting"

    view = world.pass_time(1)

    assert (view["status"], view["steps"]["late"]["done"]) == ("success", 1)
    (failure,) = view["failures"]
    assert (failure["step"], failure["handled"], failure["error"]["code"]) == ("approve", True, "STEP_TIMEOUT")
    assert [event["event_type"] for event in told(world) if event.get("step") == "approve"] == [
        *("token.created", "policy.admit.evaluated", "token.pending"),
        *("step.scheduled", "step.started", "step.failed", "next.evaluated"),
    ]
    assert not world.execution.state.timers


def test_a_token_at_a_gate_ends_while_other_branches_run() -> None:
    text = playbook(f"""
workflow:
  - step: fork
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: approve}}, {{step: slow}}]}}
  - step: approve
    spec: {{policy: {{lifecycle: {{deadline_s: 10}}, {GATE}}}}}
    next: {{arcs: [{{step: late, when: {TIMED_OUT}}}]}}
  - {{step: late, tool: {{kind: noop}}}}
  - {{step: slow, tool: {{kind: work}}}}
""")
    world = start(text, lambda _: Answer(after=SECOND * 60))

    view = world.pass_time(10)

    assert (view["status"], view["steps"]["late"]["done"]) == ("running", 1)
    assert world.run()["status"] == "success"


def test_an_admitted_token_has_the_rest_of_its_time() -> None:
    world = start(gated(), lambda _: Answer(after=SECOND * 60))
    world.pass_time(7)
    world.patch({"go": False})  # evaluated again, and denied again: the deadline stays
    world.patch({"go": True})

    assert world.pass_time(2)["status"] == "running"
    assert world.pass_time(1)["status"] == "success"
    assert world.cancelled


def test_a_token_that_cannot_start_while_the_run_is_paused_is_too_late_afterwards() -> None:
    """Nothing is handed to a worker only to be cancelled."""
    calls: list[Any] = []
    world = start(gated(), calls.append)
    world.pass_time(1)
    world.tell(i.Steer("pause", b"{}"))
    world.patch({"go": True})
    world.pass_time(20)

    world.tell(i.Steer("resume", b"{}"))

    assert world.run()["failures"][0]["error"]["message"] == "step 'approve' did not start in time"
    assert calls == []


def test_a_gate_in_front_of_the_final_step_has_its_deadline() -> None:
    text = playbook(f"""
executor: {{spec: {{final_step: report}}}}
workflow:
  - {{step: s, tool: {{kind: work}}}}
  - {{step: report, spec: {{policy: {{lifecycle: {{deadline_s: 10}}, {GATE}}}}}, tool: {{kind: noop}}}}
""")
    world = start(text)
    assert world.pass_time(9)["status"] == "waiting"

    assert (world.pass_time(1)["status"], world.show()["code"]) == ("failed", "FINAL_STEP_FAILED")


JOIN = playbook(f"""
workflow:
  - step: fork
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: a, args: {{n: 1}}}}, {{step: b}}]}}
  - {{step: a, next: {{arcs: [{{step: join, args: {{n: "{{{{ args.n }}}}"}}}}]}}}}
  - {{step: b, tool: {{kind: work}}, next: {{arcs: [{{step: join}}]}}}}
  - step: join
    spec: {{join: {{from: [a, b]}}, policy: {{lifecycle: {{deadline_s: 10}}}}}}
    tool: {{kind: noop, result: "{{{{ args.branches }}}}"}}
    next: {{arcs: [{{step: late, when: {TIMED_OUT}, args: {{came: "{{{{ args.branches }}}}"}}}}]}}
  - {{step: late, tool: {{kind: noop, result: "{{{{ args.came }}}}"}}}}
""")


def test_tokens_that_a_join_holds_end_at_the_deadline_of_the_oldest_one() -> None:
    """What has arrived is in the arguments of the step that failed; what arrives afterwards is too late."""
    world = start(JOIN, lambda _: Answer(after=SECOND * 30))

    view = world.pass_time(10)

    assert (view["status"], view["steps"]["late"]["done"]) == ("running", 1) and "joins" not in view
    view = world.run()
    assert (view["status"], view["result"]) == ("success", {"a": {"n": 1}})
    assert view["steps"]["join"]["failed"] == 1
    assert [event["payload"]["reason"] for event in told(world) if event["event_type"] == "token.discarded"] == [
        "join_satisfied"
    ]
    assert not world.execution.state.timers


def test_a_join_that_completes_in_time_leaves_no_timer() -> None:
    world = start(JOIN, lambda _: Answer(after=SECOND * 5))

    view = world.run()

    assert (view["status"], view["steps"]["join"]["done"]) == ("success", 1)
    assert not world.execution.body.token_bounds


@pytest.mark.parametrize(
    ("step", "answer"),
    [
        ("loop: {in: [1, 2, 3], iterator: x}\n    tool: {kind: work}", Answer(after=SECOND * 4)),
        (
            "loop: {in: [1, 2, 3], iterator: x, spec: {mode: parallel}}\n    tool: {kind: work}",
            Answer(after=SECOND * 60),
        ),
        (
            "tool: {kind: work, spec: {policy: {rules: [{else: {then: {do: retry, attempts: 9, delay: 300}}}]}}}",
            Failed("server_error", "no"),
        ),
    ],
    ids=["between-iterations", "iterations-in-flight", "retry-delay"],
)
def test_a_step_run_ends_at_its_deadline_wherever_it_waits(step: str, answer: Any) -> None:
    text = playbook(f"workflow:\n  - step: s\n    spec: {{policy: {{lifecycle: {{deadline_s: 10}}}}}}\n    {step}")
    world = start(text, lambda _: answer)
    assert not world.pass_time(9)["failures"]

    view = world.pass_time(1)

    assert (view["status"], view["failures"][0]["error"]["kind"]) == ("failed", "timeout")
    assert not world.execution.state.timers


@pytest.mark.parametrize(
    ("head", "message", "status"),
    [
        ("", i.Cancel("enough"), "cancelled"),
        ("executor: {spec: {policy: {completion: {on_stranded: fail}}}}", None, "failed"),
        ("executor: {spec: {policy: {lifecycle: {timeout_s: 5}}}}", None, "failed"),
    ],
    ids=["cancelled", "not-awaited", "execution-ends-first"],
)
def test_a_token_that_ends_otherwise_leaves_no_deadline(head: str, message: Any, status: str) -> None:
    world = start(gated(head=head))
    world.pass_time(1)
    if message is not None:
        world.tell(message)
    world.pass_time(6)

    assert world.show()["status"] == status
    assert not world.execution.body.token_bounds and not world.execution.state.timers


def test_after_a_redrive_the_gate_decides_again_and_the_deadline_begins_anew() -> None:
    world = start(
        playbook(f"""
workflow:
  - {{step: approve, spec: {{policy: {{lifecycle: {{deadline_s: 10}}, {GATE}}}}}, tool: {{kind: work}}}}
""")
    )
    assert world.pass_time(10)["status"] == "failed"

    world.tell(i.Reopen())

    assert world.pass_time(9)["status"] == "waiting"
    world.patch({"go": True})
    assert world.run()["status"] == "success"


def test_after_a_redrive_a_join_waits_again_for_the_branches_that_were_late() -> None:
    text = playbook("""
executor: {spec: {policy: {completion: {on_failure: fail_fast}}}}
workflow:
  - step: fork
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
  - {step: a, next: {arcs: [{step: join}]}}
  - {step: b, tool: {kind: work}, next: {arcs: [{step: join}]}}
  - step: join
    spec: {join: {from: [a, b]}, policy: {lifecycle: {deadline_s: 10}}}
    tool: {kind: noop, result: "{{ args.branches }}"}
""")
    world = start(text, lambda _: Answer(after=SECOND * 12))
    assert world.run()["status"] == "failed"

    world.tell(i.Reopen())

    view = world.run()
    assert (view["status"], view["result"]) == ("success", {"a": {}, "b": {}})
    assert view["steps"]["join"]["runs"] == 1


def test_the_analysis_knows_that_a_deadline_ends_a_wait() -> None:
    """Nobody has to be told of a wait without a limit, and the step behind the timeout can be reached."""
    without = gated().replace("lifecycle: {deadline_s: 10}, ", "")

    assert [finding.kind for finding in findings(gated())] == []
    assert {finding.kind for finding in findings(without)} == {DefectKind.NO_SENDER}
    assert DefectKind.DEAD_STEP not in {finding.kind for finding in findings(JOIN)}


def findings(text: str) -> list[Defect]:
    dialect = World(text, work={"work": lambda _: 1}).dialect
    parsed = dialect.parse(text.encode())
    assert parsed.program is not None, parsed.problems
    return findings_of(dialect, parsed.program)
