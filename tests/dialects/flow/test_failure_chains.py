"""Invariant 25: a further failure is recorded without the history behind it."""

from typing import Any

import pytest

from perdure.dialects.flow.state import events as f
from perdure.kernel import inputs as i
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.json_values.values import RunId
from perdure.kernel.turn import Turn
from tests.dialects.flow.documents import call, codes, flow, inner, mock, retry, returns
from tests.dialects.flow.world import START, World

PARAMETERS = {"type": "object", "properties": {"n": {"default": 0}}}
DETAILS = "{{ vars.n }}"


def failing(rounds: int, details: Any = DETAILS) -> dict[str, Any]:
    """So many failures in a row, each caught into the next; returns the last one with its history."""
    count = {"n": "{{ vars.n + 1.0 }}"}
    again = [{"match": {"codes": ["*"]}, "next": "a", "assign": count}]
    target = mock(failure={"code": f"{{{{ vars.n < {rounds}.0 ? 'F' : 'Last' }}}}", "details": details})
    last = [{"match": {"codes": ["Last"]}, "next": "r"}]
    steps = {"a": call(target, "r", catch=[*last, *again]), "r": returns("{{ failure }}")}
    return flow(steps, parameters=PARAMETERS)


def history(envelope: dict[str, Any] | None) -> list[Any]:
    results = []
    while envelope is not None:
        results.append(envelope.get("details"))
        envelope = envelope.get("previous")
    return results


def written(world: World) -> int:
    return sum(map(len, world.rows)) + sum(map(len, world.values.values()))


def test_a_failure_has_those_behind_it_the_newest_first() -> None:
    """MWL-515, MWL-517"""
    world = World(failing(30), crash=True)

    view = world.run()["value"]

    assert history(view) == list(range(30, -1, -1))
    assert codes(view) == ["Last", *["F"] * 30]


def test_the_longest_history_ends_with_a_marker() -> None:
    """MWL-518"""
    world = World(failing(450))

    view = world.run()["value"]

    assert history(view)[:199] == list(range(450, 251, -1))
    assert codes(view)[199:] == ["System.FailureChainTruncated"]


def test_failures_in_a_circle_write_the_same_each() -> None:
    few, many = World(failing(100)), World(failing(2_000))
    few.run(), many.run()

    view = 15_000  # the last one is returned, with its history
    assert (written(many) - view) / 2_000 < (written(few) - 5_000) / 100 * 1.2
    events = [event.failure for event in many.events if isinstance(event, f.StepFailed)]
    assert {len(item["links"]) for item in events if isinstance(item, dict)} == {1}


@pytest.mark.parametrize("bytes", [20_000, 90_000])
def test_large_failures_write_themselves_once(bytes: int) -> None:
    """Of a history above 256 KiB twenty links are kept; what is too large for the log lies beside it."""
    world = World(failing(60, details=f"{{{{ vars.n < 60.0 ? '{'x' * bytes}' : 'end' }}}}"), crash=True)

    view = world.run()["value"]

    assert len(codes(view)) == 20
    assert codes(view)[-1] == "System.FailureChainTruncated"
    assert written(world) < 61 * bytes * 2.1 + 20 * bytes, "each by its call and its Step, and what is returned"


def test_what_a_retry_gave_up_on_is_in_the_history() -> None:
    steps = {
        "a": call(
            mock(failure={"code": "F"}), "r", catch=[{"match": {"codes": ["*"]}, "next": "b"}], middleware=[retry(2)]
        ),
        "b": call(
            mock(failure={"code": "G"}), "r", catch=[{"match": {"codes": ["*"]}, "next": "r"}], middleware=[retry(2)]
        ),
        "r": returns("{{ failure }}"),
    }
    world = World(flow(steps), crash=True, limits=Limits(slice=1))

    exhausted = "Provider.Middleware.Retry.Exhausted"
    assert codes(world.run()["value"]) == [exhausted, "G", exhausted, "F"]


def test_a_failed_flow_hands_its_history_on() -> None:
    """MWL-511: to the Step that called it, whose own recovery it ends."""
    inside = inner(
        {
            "a": call(mock(failure={"code": "A"}), "x", catch=[{"match": {"codes": ["*"]}, "next": "b"}]),
            "b": call(mock(failure={"code": "B"}), "x", catch=[{"match": {"codes": ["*"]}, "next": "c"}]),
            "c": {"action": "Raise", "result": {"code": "C"}},
            "x": returns(),
        }
    )
    steps = {
        "one": call(mock(failure={"code": "One"}), "x", catch=[{"match": {"codes": ["*"]}, "next": "two"}]),
        "two": call({"flow": inside}, "x"),
        "x": returns(),
    }
    world = World(flow(steps), crash=True, limits=Limits(slice=1))

    assert codes(world.run()) == ["C", "B", "A", "One"]


def test_an_older_server_is_told_the_whole_history() -> None:
    """Invariant 24."""
    for spoken in (2, 3):
        world = World(failing(3))
        execution = Execution(RunId("r"), world.dialect, world.dialect.load(world.text))
        turn = Turn(execution, i.Start("flow", b"", "flow", b"null", b"{}", 7), START, START, spoken)
        assert decide(turn, Limits()) is None
        events = [event.failure for event in turn.events if isinstance(event, f.StepFailed)]

        assert [type(item) for item in events[1:]] == [bytes if spoken == 2 else dict] * 3
        assert codes(world.dialect.show(execution, {})["value"]) == ["Last", "F", "F", "F"]
