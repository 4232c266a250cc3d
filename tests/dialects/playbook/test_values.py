"""Values of every size: recorded once, visible to templates, limited where the language limits them."""

from typing import Any

import pytest

from perdure.kernel import events as e
from tests.dialects.playbook.world import World, playbook

BIG = "x" * 200_000


def test_large_values_pass_through_templates_and_stay_out_of_the_log() -> None:
    """PBK-168 PBK-170 PBK-231."""
    text = playbook("""
workflow:
  - step: a
    tool:
      - {name: one, kind: say, value: "{{ workload.big }}", spec: {result: {inline_max_bytes: 300000}}}
      - {name: two, kind: noop}
      - {name: three, kind: say, value: {n: "{{ _prev | length }}", m: "{{ results.one | length }}"}}
    next: {arcs: [{step: b, args: {big: "{{ workload.big }}", n: "{{ event.result }}"}}]}
  - step: b
    spec: {result: {inline_max_bytes: 500000}}
    loop: {in: "{{ [args.big, args.big] }}", iterator: part, spec: {mode: parallel}}
    tool: {kind: say, value: "{{ iter.part }}{{ iter.index }}"}
    next: {arcs: [{step: c, when: "{{ event.result.results[1] | length == 200001 }}"}]}
  - {step: c, tool: {kind: noop, result: "{{ steps.a.result }}"}}
""")
    world = World(text, {"big": BIG}, work={"say": lambda arguments: arguments["value"]}, crash=True)

    view = world.run()

    assert view["status"] == "success" and view["result"] == {"n": 200_000, "m": 200_000}
    assert max(len(row) for row in world.rows) < 4_096


def test_args_beyond_the_limit_end_the_branch() -> None:
    """PBK-121 PBK-231."""
    text = playbook("""
executor: {spec: {policy: {limits: {max_payload_bytes: 1000}}}}
workflow:
  - {step: a, next: {arcs: [{step: b, args: {small: 1, big: "{{ workload.big }}"}}]}}
  - {step: b, tool: {kind: noop}}
""")

    view = World(text, {"big": BIG}).run()

    assert view["code"] == "ARGS_TOO_LARGE"
    message = view["failures"][0]["error"]["message"]
    assert "'big'" in message and "reference" in message


@pytest.mark.parametrize(("size", "count", "code"), [(70_000, 1, "CTX_VALUE_TOO_LARGE"), (60_000, 20, "CTX_TOO_LARGE")])
def test_ctx_is_bounded(size: int, count: int, code: str) -> None:
    """PBK-155."""
    keys = ", ".join(f'k{n}: "{{{{ workload.x }}}}"' for n in range(count))
    then = f"{{do: continue, set_ctx: {{{keys}}}}}"
    rules = f"[{{else: {{then: {then}}}}}]"
    text = playbook(f"workflow: [{{step: a, tool: {{kind: say, spec: {{policy: {{rules: {rules}}}}}}}}}]")

    view = World(text, {"x": "x" * size}, work={"say": lambda _: 1}, crash=True).run()

    assert view["status"] == "failed"
    assert view["failures"][0]["error"]["code"] == code


def test_overwriting_a_key_again_and_again_is_no_growth() -> None:
    """PBK-155: what counts is what `ctx` holds, not what was written."""
    text = playbook("""
workflow:
  - step: a
    loop: {in: "{{ range(40) }}", iterator: i}
    tool:
      kind: noop
      spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {k: "{{ workload.x }}", d.e: "{{ iter.i }}"}}}}]}}
""")

    view = World(text, {"x": "x" * 60_000}, crash=True).run()

    assert view["status"] == "success" and view["ctx"]["d"] == {"e": 39}


def test_names_of_maps_are_data() -> None:
    """PBK-147."""
    text = playbook('workflow: [{step: a, tool: {kind: noop, result: "{{ workload.items + [workload.values] }}"}}]')

    assert World(text, {"items": [1], "values": 2}).run()["result"] == [1, 2]


def loop_of(count: int) -> World:
    text = playbook("""
workflow:
  - step: s
    loop: {in: "{{ workload.all }}", iterator: i, spec: {mode: parallel, max_in_flight: 20}}
    tool: {kind: say, value: "{{ iter.i.n }}"}
    next: {arcs: [{step: b, when: "{{ event.result.stats.total > 0 }}"}]}
  - {step: b, tool: {kind: noop}}
""")
    items = [{"n": n, "padding": "x" * 20} for n in range(count)]
    return World(text, {"all": items}, work={"say": lambda arguments: arguments["value"]})


def test_a_wide_loop_costs_the_same_per_iteration_and_stays_bounded_in_flight() -> None:
    """PBK-108: linear in moves, events and bytes; the collection is carried once."""
    cost: dict[int, Any] = {}
    for count in (200, 2_000):
        world = loop_of(count)
        most = 0
        while not world.is_over:
            world._next()
            most = max(most, len(world.execution.state.tasks))
        size = sum(len(row) for row in world.rows) + sum(len(value) for value in world.values.values())
        cost[count] = (world.moves / count, len(world.events) / count, size / count)
        assert most == 20

    assert all(large < small * 1.2 for small, large in zip(cost[200], cost[2_000], strict=True)), cost


def test_python_code_is_sent_only_the_scopes_it_reads() -> None:
    """PBK-094: a loop does not carry its workload once per element."""
    text = playbook("""
workflow:
  - step: s
    tool:
      - {name: none, kind: python, args: {x: 1}, code: "result = x"}
      - {name: one, kind: python, code: "result = context['ctx']"}
      - {name: all, kind: python, code: "result = dict(context)"}
      - {name: token, kind: python, code: "result = args"}
""")
    world = World(text, {"w": 1}, work={"playbook.python": lambda _: None})

    world.run()

    sent = [set(arguments.get("snapshot", ())) for _, arguments in world.performed]
    everything = {"workload", "ctx", "iter", "args", "execution_id", "_prev", "results"}
    assert sent == [set(), {"ctx"}, everything, set()]
    assert [("token_args" in arguments) for _, arguments in world.performed] == [False, False, False, True]
    assert all(isinstance(event.arguments, bytes) for event in world.events if isinstance(event, e.TaskScheduled))
