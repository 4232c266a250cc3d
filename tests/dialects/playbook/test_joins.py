"""Joins: in views of a run, in its history, and what they cost (PBK-130)."""

from typing import Any

from perdure.dialects.playbook import Playbook
from tests.dialects.playbook.test_history import told
from tests.dialects.playbook.world import World, playbook

JOIN = playbook("""
workflow:
  - step: fork
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
  - {step: a, tool: {kind: say}, next: {arcs: [{step: join}]}}
  - step: b
    spec: {policy: {admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}}}
    tool: {kind: say}
    next: {arcs: [{step: join}]}
  - {step: join, spec: {join: {from: [a, b]}}, tool: {kind: noop, result: joined}}
""")
SAY: Any = {"say": lambda _: 1}


def test_a_join_that_holds_tokens_is_shown_and_told() -> None:
    """PBK-130 PBK-213 PBK-232."""
    world = World(JOIN, work=SAY, crash=True)

    view = world.settle()

    assert view["status"] == "waiting"
    assert view["joins"] == [{"step": "join", "fork": "r1", "need": 2, "arrived": ["a"], "missing": ["b"]}]
    assert [pending["step"] for pending in view["pending"]] == ["b"]

    world.patch({"go": True})
    world.settle()

    assert "joins" not in world.show()
    held = [event for event in told(world) if event["payload"].get("reason") == "join"]
    created = [event for event in told(world) if event["event_type"] == "token.created" and event["step"] == "join"]
    assert [event["event_type"] for event in held] == ["token.pending"] * 2
    assert created[-1]["payload"]["joined"] == [event["token_id"] for event in created[:-1]]
    assert created[-1]["payload"]["args"] == {"branches": {"a": {}, "b": {}}}


def rounds(count: int, mode: str) -> World:
    """A circle of forks: `any` leaves something behind in each round, so that forks are nested ever deeper."""
    return World(
        playbook(f"""
executor: {{spec: {{policy: {{limits: {{max_step_runs: 100000}}}}}}}}
workflow:
  - step: fork
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: a, args: {{n: "{{{{ args.n | default(0) }}}}"}}}}, {{step: b}}, {{step: aside}}]}}
  - {{step: a, next: {{arcs: [{{step: join, args: {{n: "{{{{ args.n }}}}"}}}}]}}}}
  - {{step: b, next: {{arcs: [{{step: join}}]}}}}
  - {{step: aside, tool: {{kind: say}}}}
  - step: join
    spec: {{join: {{from: [a, b], mode: {mode}}}}}
    next: {{arcs: [{{step: fork, when: "{{{{ args.branches.a.n < {count} }}}}", args: {{n: "{{{{ args.branches.a.n + 1 }}}}"}}}}]}}
"""),  # noqa: E501
        work=SAY,
    )


def test_deep_nesting_costs_the_same_per_round() -> None:
    """PBK-130: moves and bytes per round do not grow with the depth of forks, and nothing stays behind."""
    for mode in ("all", "any"):
        cost = {}
        for count in (50, 500):
            world = rounds(count, mode)
            assert world.run()["steps"]["join"]["runs"] == count + 1
            assert list(world.execution.body.forks) == [0]
            cost[count] = (world.moves / count, sum(len(row) for row in world.rows) / count)

        assert all(large < small * 1.2 for small, large in zip(cost[50], cost[500], strict=True)), cost


def test_an_arc_that_passes_a_join_by_is_warned_of() -> None:
    """PBK-130."""
    text = JOIN.replace("from: [a, b]", "from: [a]")

    (problem,) = [item for item in Playbook(SAY.__contains__).parse(text.encode()).problems if item.code == "PBK-130"]

    assert "tokens from 'b' do not wait here" in problem.message


def test_a_branch_that_never_delivers_is_only_advice() -> None:
    """PBK-130: the join fails when it comes to that; `check` says so before."""
    text = playbook("""
workflow:
  - {step: a, next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: j}]}}
  - {step: b, tool: {kind: noop}}
  - {step: j, spec: {join: {from: [a, b]}}, tool: {kind: noop}}
""")
    validated = Playbook(lambda name: True).parse(text.encode())

    assert not validated.has_errors
    assert [item.path for item in validated.problems if item.code == "PBK-130"] == ["workflow[2].spec.join.from[1]"]
