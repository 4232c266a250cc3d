"""Random Playbooks in random orders: every run ends or waits, whatever crashes, splits and cancels occur."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from perdure.dialects.playbook.state.body import TokenState
from perdure.kernel import inputs as i
from perdure.kernel.execution import Limits
from perdure.kernel.json_values import jsontext
from tests.dialects.playbook.cases import tools
from tests.dialects.playbook.world import World

NAMES = ("a", "b", "c", "d", "e")
KEYS = ("x", "y")


def document(random: Random) -> bytes:
    """Any shape the language has: JSON is YAML."""
    steps = [_step(random, name) for name in NAMES]
    for step in steps:
        sources = [item["step"] for item in steps if any(arc["step"] == step["step"] for arc in item["next"]["arcs"])]
        if random.random() < 0.4 and (branches := [name for name in sources if name != step["step"]]):
            mode: dict[str, Any] = random.choice([{"mode": "all"}, {"mode": "any"}, {"mode": "n", "n": len(branches)}])
            step["spec"]["join"] = {"from": branches, **mode}
    completion: dict[str, Any] = {
        "on_failure": random.choice(["fail_on_unhandled", "fail_on_any", "fail_fast", "partial", "ignore"]),
        "on_stranded": random.choice(["auto", "wait", "fail", "partial", "discard"]),
        "on_final_failure": random.choice(["fail", "partial"]),
    }
    if random.random() < 0.3:
        completion["wait_timeout_s"] = 30
    policy: dict[str, Any] = {"completion": completion, "limits": {"max_step_runs": 25, "max_task_visits": 6}}
    if random.random() < 0.3:
        policy["lifecycle"] = {"timeout_s": random.choice([1, 20])}
    spec: dict[str, Any] = {"policy": policy, "no_next_is_error": random.random() < 0.2}
    if random.random() < 0.4:
        spec["final_step"] = random.choice(NAMES)
    head = {"apiVersion": "noetl.io/v10", "kind": "Playbook", "metadata": {"name": "r", "path": "r"}}
    executor = {"requires": {"features": ["cursor"]}, "spec": spec}
    return jsontext.encode({**head, "executor": executor, "workflow": steps})


def _cursor_loop(random: Random) -> dict[str, Any]:
    """Rows come from the tool `postgres` of the cases."""
    rows = random.choice([0, 1, 5, "none"])  # the last one is not a number: the claim fails
    claim = f"claim {{{{ __frame_max_rows }}}} of {rows} for {{{{ __frame_key }}}}"
    frame = {"max_rows": 2, "process": random.choice(["row", "frame"])}
    spec = {"mode": "cursor", "max_in_flight": random.choice([1, 2]), "frame": frame}
    return {"cursor": {"kind": "postgres", "dsn": "none", "claim": claim}, "iterator": "item", "spec": spec}


def _step(random: Random, name: str) -> dict[str, Any]:
    step: dict[str, Any] = {"step": name, "spec": {"policy": {}}}
    if random.random() < 0.8:
        step["tool"] = [{f"t{n}": _task(random, n)} for n in range(random.randint(1, 3))]
        if random.random() < 0.4:
            mode = random.choice(["sequential", "parallel"])
            over: Any = random.choice([[1, 2, 3], [], "{{ ctx.x }}", "{{ range(5) }}"])
            step["loop"] = {"in": over, "iterator": "item", "spec": {"mode": mode, "max_in_flight": 2}}
            step["spec"]["policy"]["failure"] = {"mode": random.choice(["fail_fast", "best_effort"])}
            if random.random() < 0.3:
                step["spec"]["loop_mode"] = "fanout"
            elif random.random() < 0.3:
                step["loop"] = _cursor_loop(random)
    if random.random() < 0.3:
        rule = {"when": f"{{{{ {_condition(random)} }}}}", "then": {"allow": True}}
        step["spec"]["policy"]["admit"] = {"rules": [rule], "on_deny": random.choice(["pending", "discard"])}
    if random.random() < 0.2:
        step["spec"]["timeout"] = random.choice([1, 4])
    if random.random() < 0.2:
        step["spec"]["policy"]["lifecycle"] = {"deadline_s": random.choice([1, 4])}
    arcs = [_arc(random) for _ in range(random.randint(0, 3))]
    step["next"] = {"spec": {"mode": random.choice(["exclusive", "inclusive"])}, "arcs": arcs}
    return step


def _condition(random: Random) -> str:
    return random.choice(
        ["ctx.x", "ctx.y == 1", "ctx.x > 1", "args.n", "workload.w", "steps.a.runs == 1", "steps.b.status"]
    )


def _task(random: Random, position: int) -> dict[str, Any]:
    task: dict[str, Any] = random.choice(
        [
            {"kind": "noop"},
            {"kind": "noop", "result": "{{ ctx.x | default(2) }}"},
            {"kind": "say", "value": 1},
            {"kind": "fail"},
            {"kind": "slow", "seconds": 2, "value": 3},
            {"kind": "say", "value": "{{ ctx.nothing }}"},
        ]
    )
    task = dict(task)
    if random.random() < 0.6:
        task["spec"] = {"policy": {"rules": [_rule(random, position) for _ in range(random.randint(0, 2))]}}
    return task


def _rule(random: Random, position: int) -> dict[str, Any]:
    do = random.choice(["continue", "retry", "jump", "break", "fail"])
    then: dict[str, Any] = {"do": do}
    if do == "retry":
        then |= {"attempts": 2, "delay": random.choice([0, 1])}
    if do == "jump":
        then["to"] = f"t{random.randint(0, position)}"
    if random.random() < 0.5:
        then["set_ctx"] = {random.choice(KEYS): random.choice([1, 2, "{{ _attempt }}", [1, 2]])}
    when = random.choice(["outcome.status == 'ok'", "outcome.status == 'error'", "_attempt == 1", "outcome.result > 1"])
    return {"when": f"{{{{ {when} }}}}", "then": then}


def _arc(random: Random) -> dict[str, Any]:
    arc: dict[str, Any] = {"step": random.choice(NAMES)}
    if random.random() < 0.6:
        when = random.choice(["event.status == 'ok'", "event.name == 'step.failed'", "ctx.x", "event.result > 1"])
        arc["when"] = f"{{{{ {when} }}}}"
    if random.random() < 0.3:
        arc["args"] = {"n": random.choice([1, "{{ ctx.x }}"])}
    return arc


def assert_consistent(world: World) -> None:
    """Nothing is forgotten: what began has ended, and every branch is counted."""
    body, view = world.execution.body, world.show()
    names = Counter(world.names())
    assert view["branches"]["total"] == sum(n for name, n in view["branches"].items() if name != "total")
    assert names["StepStarted"] == names["StepEnded"] + names["RunWithdrawn"]
    assert names["NextEvaluated"] == names["StepEnded"]
    assert not (
        body.runs
        or body.threads
        or body.ready_threads
        or body.unevaluated
        or body.looping
        or body.closing
        or body.routing
    )
    assert not body.awaited and not body.attempt_bounds and not body.arriving and not body.incomplete_forks
    if world.is_over:
        assert not body.tokens and not body.readers and not body.pending
        assert all(not fork and not node.live and not node.held for fork, node in body.forks.items())
        assert view["status"] in ("success", "failed", "partial", "cancelled")
        assert names["WorkflowFinished"] == names["RunEnded"] == 1
    else:
        held = {number for number, token in body.tokens.items() if token.state is TokenState.HELD}
        assert view["status"] == "waiting" and body.pending and set(body.tokens) == set(body.pending) | held


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(120))
def test_a_random_playbook_ends_or_waits(seed: int) -> None:
    random = Random(seed)
    text = document(random)
    validated = World(text, work=tools()).dialect.parse(text)
    program, problems = validated.program, validated.problems
    assert program is not None, [problem.describe("random") for problem in problems]
    ways: list[dict[str, Any]] = [{}, {"seed": seed, "slots": 1}, {"crash": True, "limits": Limits(slice=1)}]

    ends = []
    for way in ways:
        world = World(text, {"w": seed % 2}, work=tools(), **way)
        world.settle()
        assert_consistent(world)
        if not world.is_over:
            world.patch({"x": 2, "y": 1})
            world.settle()
            assert_consistent(world)
        ends.append({name: value for name, value in world.show().items() if name != "order"})
    assert ends[0] == ends[2]  # neither crashes nor the size of commits change anything


@pytest.mark.parametrize("seed", range(40))
def test_a_random_playbook_can_be_cancelled_at_any_commit(seed: int) -> None:
    text = document(Random(seed))
    whole = World(text, work=tools(), seed=seed)
    whole.settle()
    for commits in range(1, len(whole.rows), max(1, len(whole.rows) // 5)):
        world = World(text, work=tools(), seed=seed, crash=True)
        while len(world.rows) < commits:
            world._next()
        if world.is_over:
            break

        world.tell(i.Cancel("stop"))

        assert world.show()["status"] == "cancelled"
        assert_consistent_after_cancel(world)


def assert_consistent_after_cancel(world: World) -> None:
    body = world.execution.body
    assert not (body.runs or body.threads or body.tokens or body.awaited or body.readers or body.incomplete_forks)
    assert all(not fork and not node.live and not node.held for fork, node in body.forks.items())
    assert not world.execution.state.timers and not world.execution.state.tasks
