"""What a Flow costs: moves, events and bytes per Step and per dispatch do not grow with their number."""

from collections import Counter
from typing import Any, cast

import pytest

from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.values import BYTES_PER_READ_UNIT, Cell
from perdure.kernel import events as e
from perdure.kernel.execution import Limits
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Ref
from perdure.kernel.turn import Turn
from perdure.kernel.turn_budget import TurnBudget
from tests.dialects.flow.documents import call, flow, inner, mock, returns, task
from tests.dialects.flow.world import Answer, World

PAYLOAD = {"text": "x" * 5_000}


def chain(length: int, **step: Any) -> dict[str, Any]:
    steps: dict[str, Any] = {
        f"s{at}": {"action": "Pass", "next": f"s{at + 1}" if at + 1 < length else "r", **step} for at in range(length)
    }
    return flow({**steps, "r": returns()})


def fan_out(call: dict[str, Any], **members: Any) -> dict[str, Any]:
    return flow(
        {"g": {"action": "Gather", "over": "{{ step.input }}", "call": call, "next": "r", **members}, "r": returns()}
    )


def measured(document: dict[str, Any], input: Any, **options: Any) -> tuple[int, int, int, World]:
    world = World(document, input, **options)
    result = world.run()
    assert result["type"] == "success", result
    return world.moves, len(world.events), world.size + sum(map(len, world.values.values())), world


def assert_linear(small: tuple[int, int, int, World], large: tuple[int, int, int, World], factor: int) -> None:
    for before, after in zip(small[:3], large[:3], strict=True):
        assert after <= before * factor * 1.1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("step", [{}, {"output": "{{ step.input }}"}, {"assign": {"kept": "{{ step.input }}"}}])
def test_ten_thousand_steps_cost_ten_times_a_thousand_and_carry_their_value_once(step: dict[str, Any]) -> None:
    small, large = measured(chain(1_000, **step), PAYLOAD), measured(chain(10_000, **step), PAYLOAD)

    assert_linear(small, large, 10)
    assert large[1] <= 10_000 * 1.1
    assert large[2] <= 10_000 * 100 + 2 * 5_000


def test_a_value_that_goes_around_in_variables_is_not_written_again() -> None:
    document = flow(
        {
            "a": {"action": "Pass", "assign": {"big": "{{ step.input }}", "n": 0}, "next": "b"},
            "b": {
                "action": "Match",
                "cases": [{"when": "{{ vars.n < 1000 }}", "next": "c"}],
                "default": {"next": "r", "output": "{{ vars.big }}"},
            },
            "c": {"action": "Pass", "output": "{{ vars.big }}", "assign": {"n": "{{ vars.n + 1.0 }}"}, "next": "b"},
            "r": returns(),
        }
    )

    _, events, size, _ = measured(document, PAYLOAD)

    assert events > 2_000
    assert size < events * 100 + 3 * 5_000


TARGETS = {
    "mock": mock(),
    "task": task("echo"),
    "flow": {"flow": inner({"r": returns()})},
    "arms": {**mock(), "onSuccess": {"value": "{{ call.index }}", "assign": {"last": "{{ call.result.value }}"}}},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("concurrency", [None, 7])
def test_ten_thousand_dispatches_cost_ten_times_a_thousand(kind: str, concurrency: int | None) -> None:
    document = fan_out(TARGETS[kind], concurrency=concurrency)
    work = {"echo": lambda arguments, task_input: Answer(task_input)}

    small = measured(document, list(range(1_000)), work=work)
    large = measured(document, list(range(10_000)), work=work)

    assert_linear(small, large, 10)
    assert large[0] <= 10_000 * 6


@pytest.mark.sampled(4)
def test_cancelling_ten_thousand_dispatches_is_linear_too() -> None:
    document = fan_out(mock(delay="{{ call.input }}"), completion={"successes": 1, "wait": False})
    small = measured(document, ["PT1S"] + ["PT1H"] * 999)
    large = measured(document, ["PT1S"] + ["PT1H"] * 9_999)

    assert_linear(small, large, 10)


@pytest.mark.sampled(4)
def test_a_hundred_thousand_elements_are_no_problem() -> None:
    moves, _, size, world = measured(fan_out(mock(value=1)), [0] * 100_000)

    assert moves < 100_000 * 2
    assert size < 100_000 * 100
    assert Counter(type(event) for event in world.events)[f.CallEntered] == 100_000


def test_retries_over_many_variables_write_only_what_changed() -> None:
    """MWL-705: a Retry keeps what it has to undo, not a copy of all variables."""
    many = {f"v{at}": "x" * 200 for at in range(500)}
    failing = {**mock(failure="{{ size(vars.n) < 50 ? {'code': 'F'} : null }}")}
    retry = {
        "provider": "mwl:provider.middleware/mwl/retry/v1",
        "onEntry": {"with": {"policies": [{"match": {"codes": ["*"]}, "attempts": 99}]}},
        "onFailure": {"assign": {"n": "{{ vars.n + 'x' }}"}},
    }
    document = flow(
        {
            "a": {"action": "Pass", "assign": {**many, "n": ""}, "next": "c"},
            "c": call(failing, middleware=[retry]),
            "done": returns(),
        }
    )

    assert measured(document, None)[2] < 500 * 250 + 50 * 1_500


def test_a_plain_step_of_a_task_records_its_end_its_answer_and_the_next_task() -> None:
    document = flow({"a": call(task("echo"), "b"), "b": call(task("echo"), "r"), "r": returns()})
    world = World(document, 1, work={"echo": lambda arguments, task_input: Answer(task_input)}, crash=True)

    assert world.run() == {"type": "success", "value": 1}
    recorded = [type(event) for event in world.events]
    first, second = [at for at, kind in enumerate(recorded) if kind is e.TaskEnded]
    assert recorded[first:second] == [e.TaskEnded, f.StepAnswered, e.TaskScheduled, f.CallEntered]


def test_a_step_whose_tail_fails_after_its_task_fails_itself() -> None:
    """What it would have said beside the answer is said by the Step: the Result has risen to it."""
    document = flow({"a": call(task("echo"), "r", output="{{ step.result.value.missing }}"), "r": returns()})
    world = World(document, {}, work={"echo": lambda arguments, task_input: Answer(task_input)}, crash=True)

    result = world.run()

    assert (result["type"], result["code"]) == ("error", "System.ExpressionEvaluationError")
    assert result["details"]["field"] == "/steps/a/output"
    ended = [type(event) for event in world.events].index(e.TaskEnded)
    assert [type(event) for event in world.events[ended : ended + 3]] == [e.TaskEnded, f.CallSettled, f.StepFailed]


def test_a_flow_that_goes_in_circles_is_ended_as_an_external_cancellation() -> None:
    """MWL-710: established entries still see onAlways."""
    document = flow(
        {"a": {"action": "Pass", "next": "b"}, "b": {"action": "Pass", "next": "a"}},
        middleware=[{"provider": "mwl:provider.middleware/mwl/finally/v1", "onAlways": {"with": {"call": mock()}}}],
    )
    world = World(document, limits=Limits(slice=100, moves=1_000))

    result = world.run()

    assert (result["type"], result["code"]) == ("cancellation", "System.Cancelled")
    assert result["details"]["reason"] == "moves"
    assert sum(isinstance(event, f.CleanupBegan) for event in world.events) == 1


def test_a_cleanup_that_goes_in_circles_is_ended_all_the_same() -> None:
    circle = inner({"a": {"action": "Pass", "next": "b"}, "b": {"action": "Pass", "next": "a"}})
    document = flow(
        {"r": returns()},
        middleware=[
            {"provider": "mwl:provider.middleware/mwl/finally/v1", "onAlways": {"with": {"call": {"flow": circle}}}}
        ],
    )

    result = World(document, limits=Limits(slice=100, moves=1_000)).run()

    assert (result["type"], result["code"]) == ("cancellation", "System.Cancelled")


def test_a_failure_chain_that_grows_in_a_circle_stays_bounded() -> None:
    """MWL-518"""
    document = flow({"a": call(mock(failure={"code": "F"}), "a", catch=[{"match": {"codes": ["*"]}, "next": "a"}])})
    world = World(document, limits=Limits(slice=1_000, moves=3_000))

    world.run()

    assert (
        max(len(jsontext.encode(event.failure)) for event in world.events if isinstance(event, f.StepFailed)) < 60_000
    )


def test_reading_the_elements_of_a_large_list_costs_what_reading_the_list_does() -> None:
    """Invariants 5 and 29: a Gather over 100,000 elements that lie beside the log must not exhaust its turn."""
    elements, size, work = [{"i": 1}] * 100_000, 900_001, 10_000_000
    cell = Cell(Ref(b"digest", size), elements)
    with TurnBudget(work) as budget:
        read = [cell.element(cast(Turn, None), index) for index in range(len(elements))]

    assert read == elements
    assert work - budget.left <= size // BYTES_PER_READ_UNIT
