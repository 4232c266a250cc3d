"""Invariant 25, growth: `path + more` costs what is added; every reader keeps its value."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from perdure.dialects.flow import Flow
from perdure.dialects.flow.state import events as f
from perdure.kernel import inputs as i
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Failed
from perdure.kernel.turn import Turn
from tests.dialects.flow.documents import call, flow, inner, middleware, mock, retry, returns, task
from tests.dialects.flow.world import START, Answer, World

FULL = list(range(100, 200))  # long enough to be worth it


def holding(value: Any, name: str = "ids") -> dict[str, Any]:
    return {"type": "object", "additionalProperties": True, "properties": {name: {"default": value}}}


def passing(assign: dict[str, Any], next: str) -> dict[str, Any]:
    return {"action": "Pass", "assign": assign, "next": next}


def gathering(assign: dict[str, Any], next: str = "r") -> dict[str, Any]:
    arm = {**mock(value="{{ call.input }}"), "onSuccess": {"assign": assign}}
    return {"action": "Gather", "over": "{{ step.input }}", "call": arm, "next": next}


def looping(when: str, assign: dict[str, Any], *inside: dict[str, Any], **target: Any) -> dict[str, Any]:
    again = middleware("loop", onSuccess={"when": when, "assign": assign} if assign else {"when": when})
    return call({**mock(value=list(range(10))), **target}, "r", middleware=[again, *inside])


def grown(world: World) -> list[dict[str, Any]]:
    """What events say of values that have grown."""
    result = [getattr(event, "bound", {}) for event in world.events]
    carried = [value for bound in result for value in bound.values() if isinstance(value, dict) and "grows" in value]
    return carried


def test_an_arm_that_appends_writes_what_it_appends() -> None:
    document = flow({"g": gathering({"ids": "{{ vars.ids + [call.result.value] }}"}), "r": returns("{{ vars.ids }}")})
    document["parameters"] = holding(FULL)
    world = World(document, [1, 2, 3], crash=True)

    assert world.run() == {"type": "success", "value": [*FULL, 1, 2, 3]}
    assert [item["added"] for item in grown(world)] == [b"[1]", b"[2]", b"[3]"]


def test_what_is_short_is_written_whole() -> None:
    document = flow({"g": gathering({"ids": "{{ vars.ids + [call.result.value] }}"}), "r": returns("{{ vars.ids }}")})
    document["parameters"] = holding([])
    world = World(document, [1, 2], crash=True)

    assert world.run()["value"] == [1, 2]
    assert grown(world) == []


@pytest.mark.parametrize(
    ("held", "more", "whole"),
    [
        (FULL, "[1.0] + [2.0, 'x']", [*FULL, 1, 2, "x"]),
        (FULL, "([1.0])", [*FULL, 1]),
        (FULL, "vars.ids", FULL + FULL),
        ("é\n" * 120, "'\"' + vars.ids", "é\n" * 120 + '"' + "é\n" * 120),
        (FULL, "[]", FULL),
    ],
)
def test_the_sum_is_what_the_expression_says(held: Any, more: str, whole: Any) -> None:
    steps = {"a": passing({"ids": f"{{{{ vars.ids + {more} }}}}"}, "r"), "r": returns("{{ vars.ids }}")}
    world = World(flow(steps, parameters=holding(held)), crash=True, limits=Limits(slice=1))

    assert world.run() == {"type": "success", "value": whole}
    assert len(grown(world)) == (whole != held)


@pytest.mark.parametrize(
    ("held", "more", "message"),
    [
        (FULL, "'x'", "no such overload: list + string"),
        ("x" * 300, "[1]", "no such overload: string + list"),
        (FULL, "[vars.missing]", "no such key: 'missing'"),
        (FULL, "[timestamp('2026-01-01T00:00:00Z')]", "timestamp has no JSON form"),
    ],
)
def test_a_fault_is_the_same_as_of_the_whole(held: Any, more: str, message: str) -> None:
    def failed(expression: str) -> dict[str, Any]:
        steps = {"a": passing({"ids": f"{{{{ {expression} }}}}"}, "r"), "r": returns()}
        return dict(World(flow(steps, parameters=holding(held))).run())

    result = failed(f"vars.ids + {more}")

    assert message in result["message"]
    plain = failed(f"vars['ids'] + {more}")  # so written it is not seen
    assert (result["code"], result["message"]) == (plain["code"], plain["message"].replace("result[100]", "result[0]"))


@pytest.mark.parametrize(
    ("expression", "added"),
    [
        ("step.input ? vars.ids + ['y'] : vars.ids", ["y"]),
        ("!step.input ? vars.ids + ['y'] : vars.ids", []),
        ("step.input ? vars.ids : vars.ids + ['y']", []),
        ("(!step.input) ? vars.ids : (vars.ids + (['?', ':'] + ['y']))", ["?", ":", "y"]),
        ("!step.input ? vars.ids + [1] : (step.input ? vars.ids + ['y'] + ['z'] : vars.ids)", ["y", "z"]),
        ("(size(vars.ids) < 101 ? vars.ids + [size(vars.ids)] : vars.ids)", [100]),
    ],
)
def test_a_choice_of_which_an_arm_adds_is_growth(expression: str, added: list[Any]) -> None:
    steps = {"a": passing({"ids": f"{{{{ {expression} }}}}"}, "r"), "r": returns("{{ vars.ids }}")}
    world = World(flow(steps, parameters=holding(FULL)), True, crash=True, limits=Limits(slice=1))

    assert world.run() == {"type": "success", "value": FULL + added}
    assert [jsontext.decode(item["added"]) for item in grown(world)] == ([added] if added else [])
    assert len(max(world.rows, key=len)) < 1_500, "nor is it written whole where nothing is added"


@pytest.mark.parametrize(
    "expression",
    [
        "1 ? vars.ids + ['y'] : vars.ids",
        "vars.missing ? vars.ids + ['y'] : vars.ids",
        "true ? vars.ids + 'y' : vars.ids",
        "false ? vars.ids : vars.ids + null",
    ],
)
def test_a_fault_of_a_choice_is_the_same_as_of_the_whole(expression: str) -> None:
    def failed(expected: str) -> tuple[str, str]:
        steps = {"a": passing({"ids": f"{{{{ {expected} }}}}"}, "r"), "r": returns()}
        result = World(flow(steps, parameters=holding(FULL))).run()
        return result["code"], result["message"]

    assert failed(expression) == failed(expression.replace("vars.ids", "vars['ids']"))


def test_the_size_limit_is_that_of_the_whole() -> None:
    million = ["x" * 50_000] * 20
    steps = {
        "a": passing({"all": "{{ vars.all + vars.million }}"}, "m"),
        "m": {
            "action": "Match",
            "cases": [{"when": "{{ size(vars.all) < 1000 }}", "next": "a"}],
            "default": {"next": "r"},
        },
        "r": returns(),
    }
    parameters = {"type": "object", "properties": {"million": {"default": million}, "all": {"default": million}}}
    world = World(flow(steps, parameters=parameters))

    result = world.run()

    assert result["code"] == "System.ExpressionEvaluationError"
    assert "larger than" in result["message"]
    assert len(grown(world)) == 8, "nine millions fit, the tenth does not"


def test_who_held_it_before_has_what_he_held() -> None:
    """An alias, the collection of a Gather, the input of a Step."""
    steps = {
        "a": passing({"before": "{{ vars.ids }}"}, "g"),
        "g": {
            "action": "Gather",
            "over": "{{ vars.ids }}",
            "call": {**mock(value="{{ call.input }}"), "onSuccess": {"assign": {"ids": "{{ vars.ids + ['y'] }}"}}},
            "output": "{{ vars.ids }}",
            "next": "b",
        },
        "b": passing({"ids": "{{ step.input + ['z'] }}", "branch": "{{ vars.before + ['w'] }}"}, "r"),
        "r": returns("{{ [vars.before, step.input, vars.ids, vars.branch] }}"),
    }
    world = World(flow(steps, parameters=holding(FULL)), crash=True)

    long = FULL + ["y"] * 100
    assert world.run()["value"] == [FULL, long, [*long, "z"], [*FULL, "w"]]


def test_the_window_of_a_flow_keeps_its_variables() -> None:
    inside = inner(
        {"a": passing({"ids": "{{ vars.ids + [frame.input] }}"}, "r"), "r": returns("{{ size(vars.ids) }}")},
        parameters=holding(FULL),
    )
    arm = {"flow": inside, "onSuccess": {"assign": {"all": "{{ vars.all + flow.vars.ids }}"}}}
    steps = {"g": {"action": "Gather", "over": [1, 2], "call": arm, "next": "r"}, "r": returns("{{ vars.all }}")}
    world = World(flow(steps, parameters=holding(FULL, "all")), crash=True)

    assert world.run()["value"] == [*FULL, *FULL, 1, *FULL, 2]


class Flaky:
    """Every first time it fails."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, arguments: Any, value: Any) -> Answer:
        self.calls += 1
        return Answer(self.calls) if self.calls % 2 == 0 else Answer(failure=Failed("F", "", True))


def retrying(rounds: int) -> dict[str, Any]:
    """Both attempts append; what the first one did is put back."""
    arms = {
        "onSuccess": {"assign": {"ids": "{{ vars.ids + [1.0] }}"}},
        "onFailure": {"assign": {"ids": "{{ vars.ids + [2.0] }}"}},
    }
    again = middleware("loop", onSuccess={"when": f"{{{{ size(vars.ids) < {100 + rounds}.0 }}}}"})
    target = {**task("flaky"), **arms}
    steps = {"c": call(target, "r", middleware=[again, retry(3)]), "r": returns("{{ vars.ids }}")}
    return flow(steps, parameters=holding(FULL))


def test_a_retry_puts_back_what_had_grown() -> None:
    world = World(retrying(5), work={"flaky": Flaky()}, crash=True)

    assert world.run()["value"] == FULL + [1] * 5


def test_a_loop_may_grow_what_it_hands_on() -> None:
    again = middleware(
        "loop",
        onSuccess={
            "when": "{{ size(middleware.result.value) < 105 }}",
            "value": "{{ middleware.result.value + ['x'] }}",
        },
    )
    document = flow({"c": call(mock(), "r", middleware=[again]), "r": returns()})
    world = World(document, FULL, crash=True)

    assert world.run()["value"] == FULL + ["x"] * 6
    assert sum(isinstance(event, f.RunAgain) and isinstance(event.input, dict) for event in world.events) == 5


def test_a_task_is_given_the_whole_of_it() -> None:
    seen: list[Any] = []

    def look(arguments: Any, value: Any) -> Answer:
        seen.append(value)
        return Answer(None)

    steps = {
        "a": {"action": "Pass", "output": "{{ vars.ids }}", "next": "c"},
        "b": passing({"ids": "{{ vars.ids + ['x'] }}"}, "a"),
        "c": call(task("look"), "r"),
        "r": returns(),
    }
    world = World({**flow(steps, parameters=holding(FULL)), "entrypoint": "b"}, work={"look": look}, crash=True)

    world.run()
    assert seen == [[*FULL, "x"]]


def test_much_is_put_beside_the_log_once_and_read_from_there() -> None:
    """Snapshots refer to it, and stay small."""
    block = "x" * 9_000
    grow = {"ids": f"{{{{ vars.ids + ['{block}'] }}}}"}
    steps = {"l": looping("{{ size(vars.ids) < 140 }}", grow), "r": returns("{{ size(vars.ids) }}")}
    world = World(flow(steps, parameters=holding(FULL)), crash=True, limits=Limits(slice=10))

    assert world.run()["value"] == 141
    assert sum("sealed" in item for item in grown(world)) == 5
    assert len(world.dialect.freeze(world.execution.body)) < 2 * 64 * 1024
    assert sum(map(len, world.values.values())) < 41 * 9_100


def test_two_variables_may_grow_out_of_one_while_it_is_put_beside_the_log() -> None:
    block = "x" * 9_000
    grow = {"ids": f"{{{{ vars.ids + ['{block}'] }}}}", "other": "{{ vars.ids + ['y'] }}"}
    steps = {"l": looping("{{ size(vars.ids) < 120 }}", grow), "r": returns("{{ [vars.ids, vars.other] }}")}
    world = World(flow(steps, parameters=holding(FULL)), crash=True, limits=Limits(slice=7))

    assert world.run()["value"] == [FULL + [block] * 21, [*FULL, *[block] * 20, "y"]]


def test_an_older_server_is_told_in_the_old_words() -> None:
    """Invariant 24."""
    steps = {"a": passing({"ids": "{{ vars.ids + ['x'] }}"}, "r"), "r": returns("{{ vars.ids }}")}
    language = Flow()
    bindings: list[Any] = []
    for spoken in (2, 3):
        text = jsontext.encode(flow(steps, parameters=holding(FULL)))
        execution = Execution(RunId("r"), language, language.load(text))
        turn = Turn(execution, i.Start("flow", b"", "flow", b"null", b"{}", 7), START, START, spoken)
        assert decide(turn, Limits()) is None
        bindings += [event.bound["ids"] for event in turn.events if isinstance(event, f.StepLeft)]

    assert bindings[0] == jsontext.encode([*FULL, "x"])
    assert bindings[1] == {"grows": "vars.ids", "added": b'["x"]'}


def arms(count: int) -> World:
    document = flow(
        {"g": gathering({"ids": "{{ vars.ids + [call.result.value] }}"}), "r": returns("{{ size(vars.ids) }}")}
    )
    return World({**document, "parameters": holding([])}, list(range(count)))


def choices(count: int) -> World:
    """Every other arm adds."""
    chosen = "{{ int(call.result.value) % 2 == 0 ? vars.ids + [call.result.value] : vars.ids }}"
    document = flow({"g": gathering({"ids": chosen}), "r": returns("{{ size(vars.ids) }}")})
    return World({**document, "parameters": holding([])}, list(range(count)))


def loops(count: int) -> World:
    step = looping(f"{{{{ size(vars.ids) < {10 * count}.0 }}}}", {"ids": "{{ vars.ids + middleware.result.value }}"})
    return World(flow({"l": step, "r": returns("{{ size(vars.ids) }}")}, parameters=holding([])))


def texts(count: int) -> World:
    grow = {"t": "{{ vars.t + 'abcdefghij' }}", "n": "{{ vars.n + 1.0 }}"}
    parameters = {"type": "object", "properties": {"t": {"default": ""}, "n": {"default": 0}}}
    step = looping(f"{{{{ vars.n < {count}.0 }}}}", grow)
    return World(flow({"l": step, "r": returns("{{ size(vars.t) }}")}, parameters=parameters))


def retries(count: int) -> World:
    return World(retrying(count), work={"flaky": Flaky()})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [arms, choices, loops, texts, retries])
def test_a_step_that_appends_costs_the_same_at_any_length(make: Callable[[int], World]) -> None:
    """Bytes by the step, at 500 and at 5,000."""
    written = []
    for count in (500, 5_000):
        world = make(count)
        assert world.run()["type"] == "success"
        written.append((sum(map(len, world.rows)) + sum(map(len, world.values.values()))) / count)
    assert written[1] < written[0] * 1.15
    assert written[1] < (200 if make is not retries else 720), "two tasks in each round of those"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [arms, choices, loops, texts, retries])
def test_a_step_that_appends_does_the_same_at_any_length(make: Callable[[int], World]) -> None:
    """Calls of functions, by the step; an element that is converted is one."""
    few, many = counted(make(100).run) / 100, counted(make(1_000).run) / 1_000

    assert many < few * 1.05


def counted(run: Callable[[], Any]) -> int:
    """Calls of functions, built-in ones too, by Perdure's own code."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call") and "/perdure/" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        assert run()["type"] == "success"
    finally:
        sys.setprofile(None)
    return calls
