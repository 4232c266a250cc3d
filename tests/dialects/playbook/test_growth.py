"""Invariant 25, growth: of a key of `ctx` that grows only the addition is recorded; views have the whole (PBK-153)."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from perdure.dialects.playbook.state import events as p
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.turn import Turn
from tests.dialects.playbook.world import START, World

HEAD = "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: growing, path: growing}\n"


def collecting(rounds: int, assigned: str, then: str = "") -> str:
    """A step that comes back to itself, and sets `ctx.ids` in a rule of its task each time."""
    return f"""{HEAD}
workflow:
  - step: again
    tool:
      - one:
          kind: noop
          result: "{"x" * 60}"
          spec: {{policy: {{rules: [{{else: {{then: {{do: continue, set_ctx: {{
            n: "{{{{ ctx.n | default(0) + 1 }}}}", ids: {jsontext.encode(assigned).decode()}}}}}}}}}]}}}}
    next: {{arcs: [{{step: again, when: "{{{{ ctx.n < {rounds} }}}}"}}, {{step: last}}]}}
  - step: last
    tool: {{kind: noop, result: "{{{{ ctx.ids | length }}}}"}}
"""


def patches(world: World) -> list[dict[str, bytes]]:
    return [dict(event.set_ctx) for event in world.events if isinstance(event, p.OutcomeJudged) and event.set_ctx]


def ctx(world: World) -> Any:
    return world.life.execution.body.ctx.data


@pytest.mark.parametrize(
    ("assigned", "added", "each"),
    [
        ("{{ (ctx.ids | default([])) + [outcome.result] }}", ["x" * 60], "list"),
        ("{{ ctx.get('ids', []) + [outcome.result] + [1] }}", ["x" * 60, 1], "list"),
        ("{{ (ctx['ids'] | default('')) ~ outcome.result }}", "x" * 60, "text"),
    ],
)
def test_what_is_added_is_recorded(assigned: str, added: Any, each: str) -> None:
    world = World(collecting(20, assigned), crash=True)

    assert world.run()["status"] == "success"
    assert ctx(world)["ids"] == added * 20
    assert [jsontext.decode(item["ids"]) for item in patches(world)[5:]] == [added] * 15
    assert sum(isinstance(event, p.CtxGrows) for event in world.events) >= 15


@pytest.mark.parametrize("assigned", ["{{ [outcome.result] + ctx.get('ids', []) }}", "{{ ctx.get('ids', [])[:3] }}"])
def test_what_does_not_grow_at_its_end_is_recorded_whole(assigned: str) -> None:
    world = World(collecting(9, assigned), crash=True)

    assert world.run()["status"] == "success"
    assert not any(isinstance(event, p.CtxGrows) for event in world.events)


def test_the_history_tells_the_whole_key() -> None:
    """PBK-153"""
    world = World(collecting(9, "{{ ctx.get('ids', []) + [ctx.n | default(0)] + [outcome.result] }}"))
    world.run()
    turns = [turn for row in world.rows for turn in decode_turns(world.dialect, row)]

    events = [item for item in world.dialect.history(RunId("run"), turns) if item["event_type"] == "ctx.patched"]

    assert [len(item["payload"]["values"]["ids"]) for item in events if "ids" in item["payload"]["values"]] == [
        2 * rounds for rounds in range(1, 10)
    ]


def test_a_step_of_a_ctx_that_grows_writes_less_than_twice_what_is_added() -> None:
    """PBK-155: within its 64 KiB, at any length; beside what such a step writes that adds nothing."""
    grown = World(collecting(900, "{{ ctx.get('ids', []) + [outcome.result] }}"))
    plain = World(collecting(900, "{{ [outcome.result] }}"))
    assert grown.run()["status"] == plain.run()["status"] == "success"

    sizes = [sum(map(len, world.rows)) for world in (grown, plain)]
    whole = len(jsontext.encode(ctx(grown)["ids"]))
    assert sizes[0] - sizes[1] < 900 * 10 + whole, "that it grows; the end of the run has it once"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("added", ["[ctx.n | default(0)]", "[1] + [2]"])
def test_a_step_of_a_ctx_that_grows_does_the_same_at_any_length(added: str) -> None:
    """Calls of functions, by the step, beside a step that adds nothing: only what is added is evaluated."""
    costs = []
    for rounds in (100, 1_500):
        grown = counted(World(collecting(rounds, f"{{{{ ctx.get('ids', []) + {added} }}}}")).run)
        plain = counted(World(collecting(rounds, f"{{{{ {added} }}}}")).run)
        costs.append((grown - plain) / rounds)

    assert costs[1] < costs[0] * 1.2


def counted(run: Callable[[], Any]) -> int:
    """Calls of functions, built-in ones too, by Perdure's own code."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call") and "/perdure/" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        assert run()["status"] == "success"
    finally:
        sys.setprofile(None)
    return calls


def test_the_same_is_said_of_what_cannot_be_added() -> None:
    """Whether what is added is evaluated alone or as a part of the whole."""
    start = f"{{ids: {jsontext.encode(['x' * 60] * 9).decode()}}}"

    def message(assigned: str) -> Any:
        document = f"""{HEAD}
workflow:
  - step: first
    tool: {{kind: noop}}
    set: {start}
    next: {{arcs: [{{step: then}}]}}
  - step: then
    tool: {{kind: noop}}
    set: {{ids: {jsontext.encode(assigned).decode()}}}
"""
        world = World(document)
        assert world.run()["status"] == "failed"
        (failed,) = [event.error for event in world.events if isinstance(event, p.StepEnded) and event.error]
        return failed.message

    for more in ("+ [ctx.missing]", "+ 'x'", "+ (1, 2)", "+ [1] + 'x'", "+ nothing"):
        alone = message(f"{{{{ ctx.ids {more} }}}}")
        assert alone == message(f"{{{{ ctx.ids[:] {more} }}}}").replace("ctx.ids[:]", "ctx.ids"), more


@pytest.mark.sampled(4)
def test_a_value_that_has_grown_too_large_is_refused_as_before() -> None:
    """PBK-155"""
    world = World(collecting(2_000, "{{ ctx.get('ids', []) + [outcome.result] }}"))

    view = world.run()

    assert view["status"] == "failed"
    assert "CTX_VALUE_TOO_LARGE" in str(view)


def test_a_reducer_of_a_loop_that_goes_item_by_item_adds() -> None:
    """PBK-113"""
    document = f"""{HEAD}
workflow:
  - step: all
    loop: {{in: "{{{{ range(300) | list }}}}", iterator: item, spec: {{reduce: {{ids: append}}}}}}
    tool:
      - one:
          kind: noop
          result: "{{{{ iter.item }}}}"
          spec: {{policy: {{rules: [{{else: {{then: {{
            do: continue, set_ctx: {{ids: "{{{{ outcome.result }}}}"}}}}}}}}]}}}}
"""
    world = World(document, crash=True)

    assert world.run()["status"] == "success"
    assert ctx(world)["ids"] == list(range(300))
    assert patches(world)[-1] == {"ids": b"[299]"}


def test_arcs_and_steps_that_set_add_too() -> None:
    """PBK-158"""
    grow = "{{ ctx.get('ids', []) + [ctx.n | default(0)] }}"
    document = f"""{HEAD}
workflow:
  - step: again
    tool: {{kind: noop, result: 1}}
    next:
      arcs:
        - step: again
          when: "{{{{ (ctx.n | default(0)) < 150 }}}}"
          set: {{n: "{{{{ ctx.n | default(0) + 1 }}}}", ids: "{grow}"}}
"""
    world = World(document, crash=True)

    assert world.run()["status"] == "success"
    assert ctx(world)["ids"] == list(range(150))
    events = [dict(event.set_ctx) for event in world.events if isinstance(event, p.NextEvaluated) and event.set_ctx]
    assert events[-1]["ids"] == b"[149]"


def test_an_older_server_is_told_the_whole() -> None:
    """Invariant 24."""
    world = World(collecting(20, "{{ ctx.get('ids', []) + [outcome.result] }}"))
    execution = Execution(RunId("r"), world.dialect, world.dialect.load(world.text))
    turn = Turn(execution, i.Start("playbook", b"", "growing", b"null", b"{}", 7), START, START, 2)

    assert decide(turn, Limits()) is None
    assert not any(isinstance(event, p.CtxGrows) for event in turn.events)
    assert len(execution.body.ctx.data["ids"]) == 20
