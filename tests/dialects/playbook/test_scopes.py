"""What templates see at each place, and small rules of control that no scenario shows alone."""

from typing import Any

from perdure.dialects.playbook.state import events as p
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Failed
from tests.dialects.playbook.test_history import told
from tests.dialects.playbook.world import Answer, World, playbook

SAY: dict[str, Any] = {"say": lambda arguments: arguments.get("value")}


def test_the_event_that_arcs_see() -> None:
    """PBK-119 PBK-118 PBK-062."""
    text = playbook("""
workflow:
  - step: a
    next: {arcs: [{step: b, args: {n: 7}}]}
  - step: b
    tool: {kind: say, name: t, value: {x: 1}}
    next: {arcs: [{step: c, args: {event: "{{ event }}", own: "{{ args.n }}", hidden: "{{ iter is undefined and _prev is undefined and outcome is undefined and keychains is undefined }}"}}]}
  - step: c
    spec: {policy: {admit: {rules: [{when: "{{ args.own == 7 and event.step == 'b' and execution_id == 'run' }}", then: {allow: true}}]}}}
    tool: {kind: noop, result: "{{ args }}"}
""")  # fmt: skip  # noqa: E501

    seen = World(text, work=SAY).run()["result"]

    assert seen["hidden"] is True
    reference = seen["event"]["payload"].pop("reference")
    assert reference["kind"] == "result_ref" and reference["store"] == "eventlog"
    assert reference["ref"] == "noetl://execution/run/step/b/task/t/run/r2%2F1/attempt/1"
    assert seen["event"] == {
        "name": "step.done",
        "step": "b",
        "step_run_id": "r2",
        "status": "ok",
        "result": {"x": 1},
        "error": None,
        "args": {"n": 7},
        "attempt": 1,
        "timestamp": "2027-01-15T08:00:00.000000Z",
        "payload": {"result": {"x": 1}, "error": None, "stats": None},
    }


def test_the_outcome_that_rules_see() -> None:
    """PBK-074 PBK-076 PBK-080: helper maps of other kinds are harmless in guards."""
    text = playbook("""
workflow:
  - step: a
    tool:
      kind: say
      value: 5
      spec:
        policy:
          rules:
            - {when: "{{ outcome.pg.code == '40001' or outcome.http.status == 500 }}", then: {do: fail}}
            - else: {then: {do: continue, set_ctx: {o: "{{ outcome }}"}}}
""")

    outcome = World(text, work=SAY).run()["ctx"]["o"]

    assert outcome["status"] == "ok" and outcome["result"] == 5 and outcome["error"] is None
    assert outcome["meta"]["attempt"] == 1 and set(outcome) == {"status", "result", "error", "meta"}


def test_admission_rules_decide_top_to_bottom() -> None:
    """PBK-060."""
    text = playbook("""
workflow:
  - step: fork
    next: {spec: {mode: inclusive}, arcs: [{step: g, args: {n: 1}}, {step: g, args: {n: 2}}, {step: g, args: {n: 3}}]}
  - step: g
    spec:
      policy:
        admit:
          on_deny: discard
          rules:
            - {when: "{{ args.n == 1 }}", then: {allow: false}}
            - {when: "{{ args.n < 3 }}", then: {allow: true}}
            - else: {then: {allow: false}}
    tool: {kind: noop}
""")
    world = World(text)

    view = world.run()

    decisions = [(event.allow, event.rule) for event in world.events if isinstance(event, p.AdmissionJudged)]
    assert decisions == [(False, 0), (True, 1), (False, -1)]
    assert view["branches"] == {"total": 3, "normal": 1, "skipped": 2, "failed": 0, "stranded": 0, "aborted": 0}


def test_admission_is_not_revoked() -> None:
    """PBK-067: admitted while the run was paused, denied again before it started."""
    text = playbook("""
workflow:
  - step: s
    spec: {policy: {admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}}}
    tool: {kind: noop, result: ran}
""")
    world = World(text, crash=True)
    world.settle()
    world.tell(i.Steer("pause", b"{}"))
    world.patch({"go": True})
    world.patch({"go": False})

    world.tell(i.Steer("resume", b"{}"))

    assert world.show()["result"] == "ran"


def test_a_step_without_tool_needs_no_worker_and_nothing_depends_on_noop() -> None:
    """PBK-046 PBK-015 PBK-233 PBK-040 PBK-115."""
    world = World(playbook("workflow: [{step: a, next: {arcs: [{step: b}]}}, {step: b, next: {arcs: []}}]"))

    view = world.run()

    assert view["status"] == "success" and not any(isinstance(event, e.TaskScheduled) for event in world.events)
    assert [event["event_type"] for event in told(world)].count("next.evaluated") == 1


def test_noop_passes_on_or_gives_its_result() -> None:
    """PBK-093 PBK-070 PBK-071 PBK-073."""
    text = playbook(
        "workflow: [{step: a, tool: [{kind: noop}, {kind: say, value: 4}, {kind: noop}, "
        '{kind: noop, result: ["{{ _prev }}", "{{ results.task_0 }}"]}]}]'
    )

    assert World(text, work=SAY).run()["result"] == [4, None]


def test_tasks_of_one_pipeline_never_overlap_and_iterations_have_ids() -> None:
    """PBK-047 PBK-102 PBK-106 PBK-164."""
    text = playbook(
        "workflow: [{step: a, loop: {in: [1, 2], iterator: i, spec: {mode: parallel}}, "
        "tool: [{x: {kind: say}}, {y: {kind: say}}]}]"
    )
    world = World(text, work=SAY, seed=5)
    world.run()

    open_in: dict[str, int] = {}
    for event in told(world):
        if event["event_type"] in ("task.started", "task.done"):
            change = 1 if event["event_type"] == "task.started" else -1
            open_in[event["iteration_id"]] = open_in.get(event["iteration_id"], 0) + change
            assert open_in[event["iteration_id"]] in (0, 1)
    assert set(open_in) == {"r1/0", "r1/1"}


def test_patches_and_routing_are_told_with_their_facts() -> None:
    """PBK-153 PBK-123 PBK-041."""
    text = playbook("""
workflow:
  - step: a
    tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {k: 1}}}}]}}}
    next: {arcs: [{step: b, when: "{{ event.result.x > 1 }}"}, {step: b, when: true, args: {z: 1}}]}
  - {step: b, next: {arcs: []}}
""")
    world = World(text)
    world.run()

    events = {event["event_type"]: event for event in told(world)}
    assert events["ctx.patched"]["payload"]["values"] == {"k": 1}
    assert events["ctx.patched"]["step_run_id"] == "r1"
    arcs = events["next.evaluated"]["payload"]["arcs"]
    assert [arc["matched"] for arc in arcs] == [False, True] and arcs[0]["error"]
    assert events["next.evaluated"]["payload"]["tokens"] == ["t2"]
    created = events["token.created"]["payload"]
    assert (created["step"], created["args"], created["parent_step_run_id"], created["source_arc"]) == (
        *("b", {"z": 1}, "r1"),
        1,
    )


def test_statuses_of_a_run_that_goes_on() -> None:
    """PBK-137 PBK-127 PBK-213."""
    text = playbook("workflow: [{step: a, tool: {kind: slow}}]")
    world = World(text, work={"slow": lambda _: Answer(1, after=SECOND * 5)})
    assert world.show()["status"] == "pending"

    assert world.pass_time(1)["status"] == "running"
    assert world.show()["current"] == [{"step": "a", "step_run_id": "r1"}]
    assert world.pass_time(5)["status"] == "success"


def test_any_cut_of_the_log_can_be_shown() -> None:
    """PBK-167 PBK-043."""
    from perdure.kernel.codec import decode_turns
    from perdure.kernel.execution import Execution
    from perdure.kernel.json_values.values import RunId

    text = playbook(
        "workflow: [{step: a, tool: {kind: say, value: 1}, next: {arcs: [{step: b}]}}, {step: b, tool: {kind: say}}]"
    )
    world = World(text, work=SAY)
    world.run()
    turns = [turn for row in world.rows for turn in decode_turns(world.dialect, row)]

    seen = []
    for cut in range(1, len(world.events) + 1):
        execution = Execution(RunId("run"), world.dialect, world.dialect.load(world.text))
        left = cut
        for at, events in turns:
            execution.fold([(at, events[:left])])
            left = max(0, left - len(events))
        seen.append(world.dialect.show(execution, world.values)["status"])

    assert seen[0] == "pending" and seen[-1] == "success" and set(seen) == {"pending", "running", "success"}


CALLS_ITSELF = playbook("workflow: [{step: a, tool: {kind: playbook, path: again}}]")


def test_children_that_call_themselves_end_at_a_depth() -> None:
    """PBK-204 PBK-201."""
    world = World(CALLS_ITSELF, children={"again": CALLS_ITSELF.replace("tests/test", "again")})

    view = world.run()

    assert view["status"] == "failed" and view["failures"][0]["error"]["kind"] == "child_failed"


def test_a_child_that_takes_too_long_is_cancelled_and_the_rules_decide() -> None:
    """PBK-193 PBK-202."""
    child = playbook("workflow: [{step: c, tool: {kind: hang}}]").replace("tests/test", "kid")
    text = playbook("""
workflow:
  - step: a
    tool:
      kind: playbook
      path: kid
      spec:
        timeout: 30
        policy: {rules: [{when: "{{ outcome.error.kind == 'timeout' }}", then: {do: break, set_ctx: {late: true}}}]}
""")
    world = World(text, work={"hang": lambda _: Failed("x")}, children={"kid": child}, crash=True)
    world.work.clear()  # nobody performs the child's task: it waits

    view = world.settle()

    assert view["status"] == "success" and view["ctx"] == {"late": True}
    assert any(isinstance(event, e.ChildCancelRequested) for event in world.events)


def test_a_call_that_is_tried_again_stops_the_earlier_child_first() -> None:
    """PBK-204: two children of one call never work side by side unasked."""
    child = playbook("workflow: [{step: c, tool: {kind: hang}}]").replace("tests/test", "kid")
    text = playbook("""
workflow:
  - step: a
    tool:
      kind: playbook
      path: kid
      spec: {timeout: 30, policy: {rules: [{when: "{{ outcome.error.kind == 'timeout' }}", then: {do: retry, attempts: 3}}]}}
""")  # noqa: E501
    world = World(text, work={"hang": lambda _: Failed("x")}, children={"kid": child}, crash=True)
    world.work.clear()

    view = world.settle()

    events = [event for event in world.events if isinstance(event, e.ChildStarted | e.ChildCancelRequested)]
    assert view["status"] == "failed" and len({event.child for event in events}) == 3
    assert [type(event).__name__ for event in events] == ["ChildStarted", "ChildCancelRequested"] * 3
    assert [event.child for event in events[::2]] == [event.child for event in events[1::2]]
