"""Hostile documents, inputs and expressions: clear failures, in bounded time and memory."""

import time
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.flow import Flow
from perdure.dialects.flow.document.flows import FLOW_SCHEMA
from perdure.kernel.documents.problems import Severity
from perdure.kernel.execution import Limits
from perdure.testing import World as EngineWorld
from tests.dialects.flow.documents import call, flow, inner, mock, returns
from tests.dialects.flow.world import World

HEAD = f'{{"$schema": "{FLOW_SCHEMA}", "entrypoint": "r", "steps": {{"r": {{"action": "Return", "value": '.encode()
TAIL = b"}}}"


def refused(text: bytes) -> str:
    began = time.process_time()
    validated = Flow().parse(text)
    program, problems = validated.program, validated.problems
    assert time.process_time() - began < 10
    assert program is None
    (problem,) = problems
    assert (problem.code, problem.severity) == ("MWL-020", Severity.ERROR)
    return problem.message


def test_ten_thousand_levels_are_refused() -> None:
    assert "nested" in refused(HEAD + b"[" * 10_000 + b"]" * 10_000 + TAIL)


def test_four_hundred_levels_are_refused_and_two_hundred_are_not() -> None:
    assert "nested" in refused(HEAD + b"[" * 400 + b"]" * 400 + TAIL)
    assert Flow().parse(HEAD + b"[" * 200 + b"]" * 200 + TAIL).program is not None


def test_fifty_megabytes_are_refused_at_once() -> None:
    assert "bytes" in refused(HEAD + b'"' + b"x" * 50_000_000 + b'"' + TAIL)


def test_many_problems_are_listed_in_bounded_time() -> None:
    steps = {f"s{at}": {"action": "Pass", "next": f"nope{at}"} for at in range(2_000)}
    began = time.process_time()
    problems = Flow().parse(flow_text(flow({**steps, "r": returns()}))).problems

    assert len(problems) == 2_000
    assert time.process_time() - began < 20


def flow_text(document: dict[str, Any]) -> bytes:
    from perdure.kernel.json_values import jsontext

    return jsontext.encode(document)


def test_a_chain_of_two_thousand_flows_is_checked_without_deep_recursion() -> None:
    flows = {f"f{at}": inner({"c": call({"flow": f"f{at + 1}"}), "done": returns()}) for at in range(2_000)}
    flows["f2000"] = inner({"r": returns("bottom")})
    document = flow({"c": call({"flow": "f0"}), "done": returns()}, flows=flows)

    assert World(document).run() == {"type": "success", "value": "bottom"}


HOSTILE = [
    "{{ [1,2,3,4,5,6,7,8,9].map(a, [1,2,3,4,5,6,7,8,9].map(b, [1,2,3,4,5,6,7,8,9].map(c, "
    "[1,2,3,4,5,6,7,8,9].map(d, [1,2,3,4,5,6,7,8,9].map(e, [1,2,3,4,5,6,7,8,9].map(f, "
    "[1,2,3,4,5,6,7,8,9].map(g, [a,b,c,d,e,f,g]))))))) }}",
    "{{ 'a'.matches('(a*)*(a*)*(a*)*b') ? 1 : vars.nope }}",
    "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
    "{{ " + "!" * 50_000 + "true }}",
    "{{ vars.a.b.c.d }}",
]


@pytest.mark.parametrize("expression", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_expression_is_a_failure_to_evaluate(expression: str) -> None:
    """MWL-710: a limit on the cost of one expression is System.ExpressionEvaluationError."""
    began = time.process_time()
    result = World(flow({"r": returns(expression)})).run()

    assert (result["type"], result["code"]) == ("error", "System.ExpressionEvaluationError")
    assert time.process_time() - began < 20


def test_a_variable_that_doubles_for_ever_ends_in_a_failure() -> None:
    document = flow(
        {
            "a": {"action": "Pass", "assign": {"x": "x"}, "next": "b"},
            "b": {"action": "Pass", "assign": {"x": "{{ vars.x + vars.x }}"}, "next": "b"},
        }
    )

    result = World(document).run()

    assert result["code"] == "System.ExpressionEvaluationError"


def test_a_variable_that_nests_for_ever_ends_in_a_failure() -> None:
    document = flow(
        {
            "a": {"action": "Pass", "assign": {"x": []}, "next": "b"},
            "b": {"action": "Pass", "assign": {"x": "{{ [vars.x] }}"}, "next": "b"},
        }
    )

    result = World(document).run()

    assert result["type"] == "error"


def test_names_and_data_that_look_like_python_or_markup_are_only_text() -> None:
    names = ["__class__", "constructor", "a.b", "", " ", "\u0000", "☃", "vars"]
    document = flow(
        {"a": {"action": "Pass", "assign": dict.fromkeys(names, 1), "next": "r"}, "r": returns("{{ vars }}")}
    )

    assert World(document, crash=True).run()["value"] == dict.fromkeys(names, 1)


async def test_a_large_value_lives_beside_the_log_and_survives_crashes(tmp_path: Path) -> None:
    """Values above the threshold are asked for when an expression reads them (Needs)."""
    big = "y" * 200_000
    document = flow(
        {
            "a": {"action": "Pass", "assign": {"big": "{{ step.input }}"}, "next": "s"},
            "s": {"action": "Sleep", "for": "PT1H", "next": "c"},
            "c": call({**mock(), "input": "{{ vars.big + 'z' }}"}, output="{{ size(step.result.value) }}"),
            "done": returns("{{ [step.input, size(vars.big), size(frame.input)] }}"),
        }
    )
    async with EngineWorld(tmp_path) as world:
        run = await world.start(document, big)
        await world.crash()
        await world.boot()
        await world.advance(3_600)

        assert await run.result() == [200_001, 200_000, 200_000]


def test_large_values_work_with_a_crash_after_every_commit() -> None:
    big = ["e" * 70_000] * 3
    document = flow(
        {
            "g": {
                "action": "Gather",
                "over": "{{ step.input }}",
                "call": {"flow": inner({"s": {"action": "Sleep", "for": "PT1S", "next": "r"}, "r": returns()})},
                "next": "done",
            },
            "done": returns("{{ step.input.map(e, size(e)) }}"),
        }
    )

    assert World(document, big, crash=True).run()["value"] == [70_000] * 3


def test_arguments_that_nest_for_ever_end_in_a_failure() -> None:
    """Each round of the loop wraps its value once more; the run ends with a failure, it does not get stuck."""
    again = {"provider": "mwl:provider.middleware/mwl/loop/v1", "onSuccess": {"when": "{{ true }}"}}
    document = flow({"c": call(mock(value="{{ [call.input] }}"), middleware=[again]), "done": returns()})

    assert World(document).run()["code"] == "System.ExpressionEvaluationError"


def test_failures_inside_failures_are_cut_before_they_are_too_deep_to_read() -> None:
    """MWL-518"""
    again = [{"match": {"codes": ["*"]}, "next": "c"}]
    failing = mock(failure={"code": "F", "details": "{{ failure == null ? [] : [failure.details] }}"})
    document = flow({"c": call(failing, "c", catch=again)})

    result = World(document, limits=Limits(slice=100, moves=700)).run()

    assert result["code"] == "System.Cancelled"
