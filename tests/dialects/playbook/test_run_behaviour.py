"""Behaviour that a scenario folder cannot show: waits, keys, cancellation, redelivery, control messages."""

from typing import Any

import pytest

from perdure.dialects.playbook.state import events as p
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Failed, Status, Succeeded
from perdure.kernel.tasks.crash_attribution import LossKind
from tests.dialects.playbook.world import START, Answer, World, playbook


def retrying(then: str, work: Any = None) -> World:
    text = playbook(
        "workflow: [{step: s, tool: {kind: work, name: t, spec: {policy: {rules: ["
        "{when: \"{{ outcome.status == 'error' }}\", then: " + then + "}]}}}}]"
    )
    return World(text, work={"work": work or (lambda _: Failed("server_error", "no"))})


def waits(world: World) -> list[float]:
    at = START
    results = []
    for event in world.events:
        if isinstance(event, e.TimerSet):
            results.append((event.due - at) / SECOND)
            at = event.due
    return results


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("{do: retry, attempts: 4, delay: 2}", [2, 2, 2]),
        ("{do: retry, attempts: 4, backoff: linear, delay: 2}", [2, 4, 6]),
        ("{do: retry, attempts: 4, backoff: exponential, delay: 2}", [2, 4, 8]),
        ("{do: retry, attempts: 4, backoff: exponential}", [1, 2, 4]),
        ("{do: retry, attempts: 3, delay: 1000}", [300, 300]),
        ("{do: retry, attempts: 3, delay: '{{ _attempt * 10 }}'}", [10, 20]),
        ("{do: retry}", []),
    ],
)
def test_waits_between_attempts(then: str, expected: list[float]) -> None:
    """PBK-087 PBK-085: no jitter, capped at 300 s; without a delay the next attempt begins at once."""
    world = retrying(then)

    world.run()

    assert waits(world) == expected


def test_the_key_of_a_task_run_is_stable_over_attempts_and_differs_between_visits_and_iterations() -> None:
    """PBK-195 PBK-086."""
    text = playbook("""
workflow:
  - step: s
    loop: {in: [1, 2], iterator: i}
    tool:
      kind: work
      name: t
      spec:
        policy:
          rules:
            - {when: "{{ outcome.status == 'error' }}", then: {do: retry}}
            - {when: "{{ iter.again is undefined }}", then: {do: jump, to: t, set_iter: {again: false}}}
            - else: {then: {do: continue}}
""")
    calls = []

    def work(_: Any) -> Any:
        calls.append(1)
        return Failed("timeout", "late") if len(calls) == 1 else 0

    world = World(text, work={"work": work})
    world.run()

    assert world.keys == ["r1/0/1", "r1/0/1", "r1/0/2", "r1/1/1", "r1/1/2"]


def test_a_lost_worker_costs_no_attempt_and_the_third_loss_is_an_outcome() -> None:
    """PBK-090 PBK-195 PBK-101."""
    text = playbook("workflow: [{step: s, tool: [{a: {kind: say}}, {b: {kind: hang}}]}]")
    world = World(text, work={"say": lambda _: 1, "hang": lambda _: Answer(after=SECOND * 10_000)})
    world.pass_time(1)
    (task,) = world.execution.state.tasks

    for delivery in (1, 2):
        world.tell(i.TaskLost(task, delivery, "the process is gone", LossKind.ALONE))
        assert world.execution.state.tasks[task].attempt == 1
    world.tell(i.TaskLost(task, 3, "the process is gone", LossKind.ALONE))

    view = world.show()
    assert view["failures"][0]["error"]["kind"] == "lease_lost"
    assert view["steps"]["s"]["task_attempts"] == {"a": 1, "b": 1}
    assert len([name for name, _ in world.performed if name == "say"]) == 1


def test_the_third_loss_is_no_business_of_rules() -> None:
    """PBK-195: then the step-run has failed; a rule that retries errors does not get back what kills its worker."""
    rules = (
        "[{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 9}}, {else: {then: {do: continue}}}]"
    )
    text = playbook(f"workflow: [{{step: s, tool: {{kind: hang, spec: {{policy: {{rules: {rules}}}}}}}}}]")
    world = World(text, work={"hang": lambda _: Answer(after=SECOND * 10_000)})
    world.pass_time(1)
    (task,) = world.execution.state.tasks

    for delivery in (1, 2, 3):
        world.tell(i.TaskLost(task, delivery, "the process is gone", LossKind.ALONE))

    assert world.show()["failures"][0]["error"]["kind"] == "lease_lost"


RESTART = playbook("""
workflow:
  - step: s
    spec: {policy: {lifecycle: {redelivery: restart}}}
    loop: {in: [7], iterator: n}
    tool:
      - a: {kind: say, key: "{{ _idempotency_key }}", spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {count: "{{ ctx.count | default(0) + 1 }}"}, set_iter: {seen: "{{ iter.seen | default(0) + 1 }}"}}}}]}}}
      - b: {kind: hang, seen: "{{ iter.seen }}", prev: "{{ _prev }}"}
""")  # noqa: E501


def test_a_lost_pipeline_may_begin_again() -> None:
    """PBK-195: `restart` runs from the first task, with fresh locals; what was applied to ctx stays."""
    work: Any = {"say": lambda arguments: arguments["key"], "hang": lambda _: Answer("end", after=SECOND * 100)}
    world = World(RESTART, work=work, crash=True)
    world.pass_time(1)
    (task,) = world.execution.state.tasks

    world.tell(i.TaskLost(task, 1, "the process is gone", LossKind.ALONE))
    world.tell(i.TaskResult(task, 1, 2, Succeeded(b'"too late"')))
    view = world.run()

    assert view["status"] == "success" and view["ctx"] == {"count": 2}
    assert view["result"]["results"] == ["end"]
    assert [name for name, _ in world.performed] == ["say", "hang", "say", "hang"]
    assert [arguments["seen"] for name, arguments in world.performed if name == "hang"] == [1, 1]
    keys = [arguments["key"] for name, arguments in world.performed if name == "say"]
    assert keys == ["run/r1/0/1", "run/r1/0/1"]  # the same work again, to whoever keeps account of it
    assert view["steps"]["s"]["task_runs"] == {"a": 2, "b": 2}


def test_a_pipeline_that_kills_its_worker_begins_three_times() -> None:
    """PBK-195: at most three charged losses."""
    work: Any = {"say": lambda arguments: arguments["key"], "hang": lambda _: Answer("end", after=SECOND * 100)}
    world = World(RESTART, work=work, crash=True)
    for _ in range(3):
        world.pass_time(1)
        (task,) = [number for number, task in world.execution.state.tasks.items() if not task.cancelling]
        assert not world.is_over
        world.tell(i.TaskLost(task, 1, "the process is gone", LossKind.ALONE))
    view = world.show()

    assert view["status"] == "failed" and view["failures"][0]["error"]["kind"] == "lease_lost"
    assert [name for name, _ in world.performed] == ["say", "hang"] * 3


def test_a_pipeline_that_begins_again_is_as_suspicious_as_it_was() -> None:
    """PBK-195, invariant 27: losses beside others are not charged, and not forgotten either."""
    work: Any = {"say": lambda arguments: arguments["key"], "hang": lambda _: Answer("end", after=SECOND * 100)}
    world = World(RESTART, work=work, crash=True)
    seen = []
    for _ in range(4):
        world.pass_time(1)
        ((number, task),) = [(n, task) for n, task in world.execution.state.tasks.items() if not task.cancelling]
        seen.append((task.suspicion, task.losses))
        world.tell(i.TaskLost(number, 1, "the process is gone", LossKind.BESIDE_OTHERS))

    assert seen == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert not world.is_over


def test_losses_beside_others_end_no_step() -> None:
    """PBK-195, PBK-240: the cap of three counts charged losses; `lease_epoch` counts all."""
    text = playbook("workflow: [{step: s, tool: {kind: hang}}]")
    world = World(text, work={"hang": lambda _: Answer("end", after=SECOND * 100)})
    world.pass_time(1)
    (task,) = world.execution.state.tasks
    for delivery in range(1, 8):
        world.tell(i.TaskLost(task, delivery, "the process is gone", LossKind.BESIDE_OTHERS))

    (thread,) = world.execution.body.threads.values()
    assert (thread.epoch, thread.charges) == (8, 0)
    assert world.run()["status"] == "success"


def test_a_charge_that_is_taken_back_does_not_count() -> None:
    """PBK-195, invariant 27: whoever had the task was only late."""
    text = playbook("workflow: [{step: s, tool: {kind: hang}}]")
    world = World(text, work={"hang": lambda _: Answer("end", after=SECOND * 100)})
    world.pass_time(1)
    (task,) = world.execution.state.tasks
    for delivery in range(1, 6):
        world.tell(i.TaskLost(task, delivery, "the process is gone", LossKind.ALONE))
        world.tell(i.Clear(task, delivery, outlived=False))

    assert world.run()["status"] == "success"


def test_the_idempotency_key_is_that_of_the_task_itself() -> None:
    """PBK-195: execution, step-run and task-run, the same for every attempt; providers are given the same key."""
    text = playbook("""
workflow:
  - step: first
    next: {arcs: [{step: s}]}
  - step: s
    tool:
      kind: work
      name: t
      key: "{{ _idempotency_key }}"
      spec:
        policy:
          rules:
            - {when: "{{ outcome.status == 'error' }}", then: {do: retry}}
            - {when: "{{ outcome.result < 2 }}", then: {do: jump, to: t}}
            - {else: {then: {do: continue}}}
""")
    answers: list[Any] = [Failed("timeout", "late"), 1, 2]
    world = World(text, work={"work": lambda _: answers.pop(0)})
    world.run()

    value = [arguments["key"] for _, arguments in world.performed]
    assert value == [world.execution.idempotency_key(key) for key in world.keys]
    assert value == ["run/r2/1", "run/r2/1", "run/r2/2"]


def test_an_iterations_idempotency_key_names_it() -> None:
    """PBK-195 PBK-106."""
    text = playbook("""
workflow:
  - step: s
    loop: {in: [a, b], iterator: n, spec: {mode: parallel}}
    tool: [{name: t, kind: work, key: "{{ _idempotency_key }}"}, {name: u, kind: work, key: "{{ _idempotency_key }}"}]
""")
    world = World(text, work={"work": lambda arguments: arguments["key"]})
    world.run()

    keys = sorted(arguments["key"] for _, arguments in world.performed)
    assert keys == ["run/r1/0/1", "run/r1/0/2", "run/r1/1/1", "run/r1/1/2"]
    assert keys == sorted(world.execution.idempotency_key(key) for key in world.keys)


@pytest.mark.parametrize("losses", [(1, 0, 1), (0, 2, 0), (2, 1, 0), (1, 1, 1), (0, 0, 3)])
def test_a_pipeline_bears_three_charges_in_all(losses: tuple[int, int, int]) -> None:
    """PBK-195: charges are the step-run's, whichever of its tasks lost its worker."""
    text = playbook("workflow: [{step: s, tool: [{name: a, kind: w}, {name: b, kind: w}, {name: c, kind: w}]}]")
    world = World(text, work={"w": lambda _: Answer(1, after=SECOND * 1000)}, crash=True)
    world.pass_time(1)
    for times in losses:
        if world.is_over:
            break
        (task,) = world.execution.state.tasks
        for delivery in range(1, times + 1):
            world.tell(i.TaskLost(task, delivery, "the process is gone", LossKind.ALONE))
        if not world.is_over:
            world.tell(i.TaskResult(task, 1, times + 1, Succeeded(b"1")))
    view = world.show()

    if sum(losses) < 3:
        assert view["status"] == "success"
    else:
        (failure,) = view["failures"]
        assert view["status"] == "failed" and failure["error"]["kind"] == "lease_lost"
        assert "lost 3 times" in failure["error"]["message"]
        assert "the process is gone" in failure["error"]["message"]


def test_each_iteration_has_its_own_charges() -> None:
    """PBK-195."""
    text = playbook("workflow: [{step: s, loop: {in: [1, 2, 3], iterator: n}, tool: {kind: w}}]")
    world = World(text, work={"w": lambda _: Answer(1, after=SECOND * 1000)}, crash=True)
    world.pass_time(1)
    for _ in range(3):
        (task,) = world.execution.state.tasks
        for delivery in (1, 2):
            world.tell(i.TaskLost(task, delivery, "the process is gone", LossKind.ALONE))
        world.tell(i.TaskResult(task, 1, 3, Succeeded(b"1")))

    assert world.show()["status"] == "success"


def test_a_steps_time_limit_is_not_one_of_its_tasks() -> None:
    """PBK-193 PBK-036: it bounds the step-run; the executor's and the task's own bound one attempt."""
    text = playbook("""
executor: {spec: {timeout: 30}}
workflow:
  - step: s
    spec: {timeout: 20}
    tool: [{name: a, kind: work}, {name: b, kind: work, spec: {timeout: 5}}]
""")
    world = World(text, work={"work": lambda _: 1})
    world.run()

    tasks = [event for event in world.events if isinstance(event, e.TaskScheduled)]
    assert [task.deadline is not None and (task.deadline - START) // SECOND for task in tasks] == [30, 5]


def test_a_cancel_stops_everything_at_once_and_tells_the_workers() -> None:
    """PBK-190 PBK-191: no routing and no final step follow; a second cancel is refused with the status."""
    text = playbook("""
executor: {spec: {final_step: report}}
workflow:
  - step: fork
    next: {spec: {mode: inclusive}, arcs: [{step: slow}, {step: slow}, {step: gate}]}
  - {step: slow, tool: {kind: hang}, next: {arcs: [{step: gate}]}}
  - {step: gate, spec: {policy: {admit: {rules: [{when: "{{ ctx.x }}", then: {allow: true}}]}}}, tool: {kind: noop}}
  - {step: report, tool: {kind: noop}}
""")
    world = World(text, work={"hang": lambda _: Answer(after=SECOND * 10_000)}, crash=True)
    world.pass_time(1)

    world.tell(i.Cancel("enough", "Ada"))

    view = world.show()
    assert view["status"] == "cancelled" and world.execution.state.status is Status.CANCELLED
    assert view["branches"] == {"total": 3, "normal": 0, "skipped": 0, "failed": 0, "stranded": 0, "aborted": 3}
    assert len(world.cancelled) == 2
    assert "report" not in view["steps"]
    events = len(world.events)
    world.tell(i.Cancel("again"))  # twice is as once
    assert len(world.events) == events and world.show() == view


def test_a_step_timeout_tells_its_workers_and_hears_nothing_more_of_them() -> None:
    """PBK-193."""
    text = playbook("workflow: [{step: s, spec: {timeout: 5s}, tool: {kind: hang}}]")
    world = World(text, work={"hang": lambda _: Answer(after=SECOND * 60)}, crash=True)

    view = world.run()

    assert world.cancelled and view["failures"][0]["error"]["kind"] == "timeout"


def test_a_deadline_counts_from_the_token() -> None:
    """PBK-193: a step that was held at its gate has less time left."""
    text = playbook("""
workflow:
  - step: s
    spec:
      policy:
        lifecycle: {deadline_s: 10}
        admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}
    tool: {kind: hang}
""")
    world = World(text, work={"hang": lambda _: Answer(after=SECOND * 60)})
    world.pass_time(7)
    world.patch({"go": True})
    world.pass_time(2)
    assert not world.is_over

    assert world.pass_time(2)["status"] == "failed"


GATE = playbook("""
workflow:
  - step: s
    spec: {policy: {admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}}}
    tool: {kind: noop}
""")


def test_a_waiting_run_says_what_it_waits_for_and_costs_nothing() -> None:
    """PBK-230 PBK-213: waiting holds no task and no timer; status names tokens and what they read."""
    world = World(GATE, crash=True)

    view = world.settle()

    assert view["status"] == "waiting"
    assert view["pending"] == [
        {
            "step": "s",
            "token_id": "t1",
            "reads": ["ctx.go"],
            "reason": "no rule of its gate matches",
            "decision": {"allow": False, "matched_rule_index": None, "guard_errors": []},
        }
    ]
    assert not world.execution.state.tasks and not world.execution.state.timers


def test_a_gate_is_asked_again_only_for_what_it_reads_and_told_only_when_the_answer_changes() -> None:
    """PBK-064 PBK-066."""
    world = World(GATE)
    world.settle()

    world.patch({"other": 1})
    world.patch({"go": False})
    world.patch({"go": 1})

    decisions = [event for event in world.events if isinstance(event, p.AdmissionJudged)]
    unchanged = [event for event in world.events if isinstance(event, p.AdmissionUnchanged)]
    assert [event.allow for event in decisions] == [False, True] and len(unchanged) == 1
    assert world.is_over


def test_a_patch_opens_its_gate_in_the_same_commit() -> None:
    """PBK-064."""
    world = World(GATE)
    world.settle()
    before = len(world.rows)

    world.patch({"go": True})

    assert len(world.rows) == before + 1 and world.is_over


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"ctx": {}}, "a patch is"),
        ({"workload": {"x": 1}, "ctx": {"x": 1}}, "ctx only"),
        ({"ctx": {"a..b": 1}}, "must not be empty"),
        ({"ctx": {"n": 1, "n.x": 1}}, "is not a map"),
        ([1], "a patch is"),
    ],
)
def test_a_patch_that_cannot_be_applied_is_refused_at_the_door(body: Any, reason: str) -> None:
    """PBK-156 PBK-152."""
    world = World(GATE)
    world.settle()

    answer = world.tell(i.Steer("patch", jsontext.encode(body)))

    assert isinstance(answer, i.Refused) and reason in answer.reason
    assert world.show()["ctx"] == {}


def test_other_words_of_operators_are_refused_with_a_reason() -> None:
    world = World(GATE)
    world.settle()

    assert "patch its ctx" in world.tell(i.Signal("go")).reason
    assert "does not support 'dance'" in world.tell(i.Steer("dance")).reason
    assert "not paused" in world.tell(i.Steer("resume")).reason
    world.tell(i.Steer("pause", b"{}"))
    assert world.show()["status"] == "paused"
    assert "already paused" in world.tell(i.Steer("pause", b"{}")).reason
    world.tell(i.Cancel("x"))
    assert "already been cancelled" in world.tell(i.Steer("patch", b'{"ctx": {"a": 1}}')).reason


def test_a_pause_lets_running_work_end_and_keeps_its_routing_for_later() -> None:
    """PBK-192."""
    text = playbook(
        "workflow: [{step: a, tool: {kind: say}, next: {arcs: [{step: b}]}}, {step: b, tool: {kind: noop}}]"
    )
    world = World(text, work={"say": lambda _: Answer(1, after=SECOND)}, crash=True)
    world.pass_time(0.5)
    world.tell(i.Steer("pause", b"{}"))

    view = world.settle()

    assert view["status"] == "paused" and view["steps"]["a"]["done"] == 1 and "b" not in view["steps"]
    world.tell(i.Steer("resume", b"{}"))
    assert world.show()["status"] == "success"


def test_concurrent_writers_of_one_key_are_flagged() -> None:
    """PBK-154: last writer wins, and the event says that they disagreed."""
    text = playbook("""
workflow:
  - step: fork
    next: {spec: {mode: inclusive}, arcs: [{step: w, args: {n: 1}}, {step: w, args: {n: 2}}]}
  - step: w
    tool: {kind: say, value: 1, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {k: "{{ args.n }}"}}}}]}}}
""")
    world = World(text, work={"say": lambda _: 1})

    world.run()

    conflicts = [event.conflicts for event in world.events if isinstance(event, p.OutcomeJudged)]
    assert conflicts == [(), ("k",)]


def test_the_order_of_a_step_run_is_the_languages() -> None:
    """PBK-165 PBK-048."""
    text = playbook(
        "workflow: [{step: a, tool: {kind: say}, next: {arcs: [{step: b}]}}, {step: b, tool: {kind: noop}}]"
    )
    world = World(text, work={"say": lambda _: 1}, slots=1)

    view = world.run()

    own = [name for name in world.names() if name in {kind.__name__ for kind in p.OWN_EVENTS}]
    item = ["StepStarted", "AttemptStarted", "AttemptEnded", "OutcomeJudged", "StepEnded", "NextEvaluated"]
    assert own == ["WorkflowStarted", *item, *item, "WorkflowFinished"]
    sequence = [seq for _, _, seq in view["order"]]
    assert sequence == sorted(set(sequence))


@pytest.mark.parametrize(
    ("options", "workload", "code"),
    [
        ({"entry_step": "zzz"}, None, "UNKNOWN_STEP"),
        ({}, [1], "PAYLOAD_INVALID"),
        ({"ctx": 3}, None, "PAYLOAD_INVALID"),
        ({"ctx": {"x": "y" * 70_000}}, None, "PAYLOAD_INVALID"),
    ],
)
def test_a_request_that_cannot_be_met_fails_before_any_token_exists(options: Any, workload: Any, code: str) -> None:
    """PBK-054 PBK-011 PBK-155."""
    view = World(GATE, workload, options=options, crash=True).run()

    assert view["status"] == "failed" and view["code"] == code and view["branches"]["total"] == 0


def test_a_request_may_choose_the_entry_and_seed_ctx() -> None:
    """PBK-054 PBK-146."""
    text = playbook('workflow: [{step: a, tool: {kind: noop}}, {step: b, tool: {kind: noop, result: "{{ ctx.x }}"}}]')

    view = World(text, options={"entry_step": "b", "ctx": {"x": 10.0}}).run()

    assert view["result"] == 10.0 and list(view["steps"]) == ["b"]


@pytest.mark.parametrize("feature", ["result_storage", "references", "join", "keychain", "loop"])
def test_features_that_are_there_are_not_missing(feature: str) -> None:
    """PBK-008."""
    requires = f"executor: {{requires: {{features: [{feature}]}}}}"

    assert World(playbook(f"{requires}\nworkflow: [{{step: a, tool: {{kind: noop}}}}]")).run()["status"] == "success"


def test_what_the_executor_lacks_is_listed() -> None:
    """PBK-008."""
    requires = "executor: {requires: {tools: [http, postgres, snowflake], features: [joins]}}"
    world = World(playbook(f"{requires}\nworkflow: [{{step: a, tool: {{kind: noop}}}}]"))

    view = world.run()

    assert view["code"] == "REQUIREMENTS_MISSING"
    assert world.execution.state.outcome == Failed(
        "REQUIREMENTS_MISSING", "this executor lacks: tool snowflake, feature joins", retryable=False
    )
