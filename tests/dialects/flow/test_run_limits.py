"""Invariant 5: what ends a run that continues without outside input, and what does not."""

import pytest

from perdure.dialects.flow.state import events as f
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.json_values.values import RunId
from perdure.kernel.turn import Turn
from tests.dialects.flow.documents import call, flow, inner, middleware, mock, retry, returns
from tests.dialects.flow.world import START, World

AGAIN = [{"match": {"codes": ["*"]}, "next": "a"}]
FAILING = mock(failure={"code": "F"})
COUNT = "{{ vars.n + 1.0 }}"
PARAMETERS = {"type": "object", "properties": {"n": {"type": "number", "default": 0}}}


def test_each_element_of_a_gather_allows_it_further_moves() -> None:
    """MWL-306: a Gather is not ended for its width."""
    inside = inner({"x": {"action": "Pass", "next": "y"}, "y": {"action": "Pass", "next": "r"}, "r": returns()})
    document = flow(
        {"g": {"action": "Gather", "over": "{{ step.input }}", "call": {"flow": inside}, "next": "r"}, "r": returns()}
    )
    world = World(document, list(range(600)), limits=Limits(slice=100, moves=1_000), crash=True)

    assert world.run() == {"type": "success", "value": list(range(600))}
    assert world.moves > 3_000


def test_a_circle_of_gathers_ends_all_the_same() -> None:
    document = flow({"g": {"action": "Gather", "over": [1, 2], "call": mock(value=1), "next": "g"}})
    world = World(document, limits=Limits(slice=100, moves=1_000, elements=50))

    assert world.run()["details"]["reason"] == "moves"
    assert world.moves <= 1_000 + 50 * 20 + 200


@pytest.mark.parametrize("limits", [Limits(), Limits(slice=100, caught=300)])
def test_a_failure_caught_into_the_same_step_for_ever_ends_the_run(limits: Limits) -> None:
    world = World(flow({"a": call(FAILING, "a", catch=AGAIN)}), limits=limits)

    result = world.run()

    assert (result["type"], result["code"]) == ("cancellation", "System.Cancelled")
    assert result["details"] == {"reason": "failures", "limit": limits.caught}
    assert sum(isinstance(event, f.StepCaught) for event in world.events) == limits.caught


def test_a_retry_without_end_ends_the_run_as_well() -> None:
    document = flow({"a": call(FAILING, "r", middleware=[retry(1_000_000)]), "r": returns()})
    world = World(document, limits=Limits(slice=100, caught=300), crash=True)

    assert world.run()["details"] == {"reason": "failures", "limit": 300}


def test_one_failure_less_is_not_touched() -> None:
    steps = {
        "a": call(FAILING, "a", catch=[{"match": {"codes": ["*"]}, "next": "m", "assign": {"n": COUNT}}]),
        "m": {"action": "Match", "cases": [{"when": "{{ vars.n < 299.0 }}", "next": "a"}], "default": {"next": "r"}},
        "r": returns("{{ vars.n }}"),
    }
    world = World(flow(steps, parameters=PARAMETERS), limits=Limits(slice=100, caught=300), crash=True)

    assert world.run() == {"type": "success", "value": 299}


def test_a_loop_that_computes_without_failing_is_not_touched() -> None:
    steps = {
        "m": {
            "action": "Match",
            "cases": [{"when": "{{ vars.n < 20000.0 }}", "next": "m", "assign": {"n": COUNT}}],
            "default": {"next": "r"},
        },
        "r": returns("{{ vars.n }}"),
    }

    assert World(flow(steps, parameters=PARAMETERS)).run() == {"type": "success", "value": 20_000}


def test_something_from_outside_begins_the_count_anew() -> None:
    """A delay of a mock passes between two failures."""
    slow = mock(failure={"code": "F"}, delay="PT1S")
    again = middleware("retry", onEntry={"with": {"policies": [{"match": {"codes": ["*"]}, "attempts": 50}]}})
    document = flow({"a": call(slow, "r", middleware=[again]), "r": returns()})

    assert World(document, limits=Limits(caught=10)).run()["code"] == "Provider.Middleware.Retry.Exhausted"


@pytest.mark.parametrize(("spoken", "is_told"), [(2, False), (3, True)])
def test_what_else_is_counted_is_written_once_every_live_server_reads_it(spoken: int, is_told: bool) -> None:
    """Invariant 24."""
    world = World(flow({"a": call(FAILING, "a", catch=AGAIN)}))
    execution = Execution(RunId("r"), world.dialect, world.dialect.load(world.text))
    turn = Turn(execution, i.Start("flow", b"", "flow", b"null", b"{}", 7), START, START, spoken)

    assert decide(turn, Limits()) is None
    assert isinstance(turn.events[-1], e.Sliced)
    assert isinstance(turn.events[-2], e.WorkCounted) is is_told
    assert execution.state.caught == (turn.caught if is_told else 0)
    assert turn.caught > 200
