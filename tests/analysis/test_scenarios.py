"""Files of scenarios, mocks, expectations and coverage (ANA-013), without an engine."""

from typing import Any

import pytest

from perdure.analysis.coverage import Coverage
from perdure.analysis.expectations import Observed, RunExpectation, differences
from perdure.analysis.mocks import (
    NOT_MOCKED,
    Dice,
    Mock,
    MockedCall,
    Mocks,
    generate,
    read_mock,
    recorded_outcomes,
    steps_in,
)
from perdure.analysis.scenarios import read_scenarios, read_span
from perdure.kernel.codec import decode_turns
from perdure.kernel.graphs.graph import Edge, Graph, Node
from perdure.kernel.graphs.run_trace import Trace, VisitStatus, trace_turns
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Failed, Succeeded
from tests.dialects.story.world import World as StoryWorld
from tests.dialects.story.world import story

FILE = b"""
mocks: {charge: {answer: 1, after: 5s}}
scenarios:
  - name: one
    input: {amount: 5}
    actions: [{advance: 1h30m}, crash, {signal: go}, {expect: {status: waiting}}]
    expect: {result: {a: 1}, steps: {charge: done}}
  - {name: two, mocks: {other: {failure: X}}}
"""


def test_a_file_of_scenarios_is_read() -> None:
    file, problems = read_scenarios(FILE)
    assert problems == [] and file is not None
    first, second = file.scenarios

    assert [action.verb for action in first.actions] == ["advance", "crash", "signal", "expect"]
    assert first.actions[0].body == 5_400_000_000 and first.actions[2].body == {"name": "go"}
    assert (first.input, first.line, first.expect.result) == ({"amount": 5}, 4, {"a": 1})
    assert first.mocks["charge"].answers[0].after == 5_000_000
    assert set(second.mocks) == {"charge", "other"}, "what the file says holds for all"


@pytest.mark.parametrize(
    ("text", "line", "path", "message"),
    [
        ("scenarios:\n  - expct: {}", 2, "scenarios[0].expct", "did you mean 'expect'"),
        ("expect:\n  status: succeded", 2, "expect.status", "did you mean 'succeeded'"),
        ("actions:\n  - advance: soon", 2, "actions[0].advance", "is not a duration"),
        ("actions:\n  - aprove: x", 2, "actions[0].aprove", "did you mean 'approve'"),
        ("actions:\n  - approve: {}", 2, "actions[0].approve", "says no 'step'"),
        ("mocks:\n  a:\n    anwser: 1", 3, "mocks.a", "expected {answer"),
        ("mocks:\n  a:\n  - answer: 1\n    aftr: 5s", 4, "mocks.a[0].aftr", "'aftr' is not known here"),
        ("expect:\n  steps: {a: don}", 2, "expect.steps.a", "did you mean 'done'"),
        ("expect:\n  calls: {a: many}", 2, "expect.calls.a", "a number, or a list"),
        ("scenarios: []", 1, "scenarios", "no scenario"),
        ("- 1", 1, "", "must be an object"),
        ("a: [}", 1, "", "expected node content"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_path(text: str, line: int, path: str, message: str) -> None:
    file, problems = read_scenarios(text.encode())

    assert file is None and len(problems) == 1
    assert problems[0].line == line and problems[0].path == path and message in problems[0].message


@pytest.mark.parametrize(
    ("text", "span"), [(90, 90_000_000), ("1h30m", 5_400_000_000), ("2d", 172_800_000_000), ("5", None), (True, None)]
)
def test_durations(text: Any, span: int | None) -> None:
    assert read_span(text) == span


def _mock(value: Any) -> Mock:
    mock, problems = read_mock(value, read_span)
    assert problems == []
    return mock


def _call(task: int = 1, provider: str = "charge", path: str = "/0:pay/1:charge", attempt: int = 1) -> MockedCall:
    return MockedCall("run", task, attempt, provider, path)


def test_a_list_answers_one_call_after_another_and_the_same_attempt_always_the_same() -> None:
    mocks = Mocks({"charge": _mock([{"failure": "Busy"}, {"answer": 2}])})

    assert [mocks.answer(_call(task)).outcome for task in (1, 1, 2, 3)] == [
        Failed("Busy"),
        Failed("Busy"),
        Succeeded(b"2"),
        Succeeded(b"2"),
    ]


def test_the_mock_of_a_step_comes_first_and_what_nobody_mocks_fails() -> None:
    mocks = Mocks({"charge": _mock({"answer": 1})}, {"pay": _mock({"answer": 2})})

    assert mocks.answer(_call()).outcome == Succeeded(b"2")
    assert mocks.answer(_call(2, path="/0:other")).outcome == Succeeded(b"1")
    assert mocks.answer(_call(3, "engram:charge@1.0.0", "x")).outcome == Succeeded(b"1")
    unmocked = mocks.answer(_call(4, "http", "x")).outcome
    assert isinstance(unmocked, Failed) and unmocked.code == NOT_MOCKED
    assert steps_in("load#1[2]/fetch#1") == ["load", "fetch"]


def test_what_a_run_recorded_answers_by_path() -> None:
    events = [
        {"event": "TaskScheduled", "task": 1, "path": "a"},
        {"event": "TaskEnded", "task": 1, "outcome": {"type": "Failed", "code": "X", "message": "m"}},
        {"event": "TaskScheduled", "task": 2, "path": "a"},
        {"event": "TaskEnded", "task": 2, "outcome": {"type": "Succeeded", "value": {"n": 1}}},
    ]
    mocks = Mocks({}, recorded=recorded_outcomes(events))

    assert mocks.answer(_call(1, path="a")).outcome == Failed("X", "m")
    assert mocks.answer(_call(2, path="a")).outcome == Succeeded(b'{"n":1}')
    with pytest.raises(ValueError, match="no events"):
        recorded_outcomes(["x"])


def test_values_are_drawn_from_schemas_and_fit_them() -> None:
    schema: Any = {
        "type": "object",
        "required": ["id", "kind", "tags"],
        "properties": {
            "id": {"type": "integer", "minimum": 3, "maximum": 9},
            "kind": {"enum": ["a", "b"]},
            "tags": {"type": "array", "items": {"type": "string", "minLength": 2}, "minItems": 1, "maxItems": 3},
            "more": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
    }
    values = [generate(schema, Dice(seed, "x")) for seed in range(50)]
    for value in values:
        assert 3 <= value["id"] <= 9 and value["kind"] in ("a", "b") and value.get("more") in (True, False, None)
        assert 1 <= len(value["tags"]) <= 3 and all(len(tag) >= 2 for tag in value["tags"])
    assert len({jsontext.encode(value) for value in values}) > 10
    assert values[0] == generate(schema, Dice(0, "x")), "the same seed, the same value"


GRAPH = Graph(
    nodes=[Node("/a", "a"), Node("/b", "b", notes=("if x",)), Node("/c", "c")],
    edges=[Edge("/a", "/b"), Edge("/a", "/c", "on failure", is_exceptional=True)],
)


def _trace() -> Trace:
    trace = Trace()
    for key, node, status in ((1, "/a", VisitStatus.DONE), (2, "/b", VisitStatus.SKIPPED)):
        trace.enter(key, node, 0)
        trace.leave(key, 1, status)
    trace.take("/a", "/b")
    return trace


def test_coverage_counts_steps_arcs_and_branches() -> None:
    coverage = Coverage(GRAPH)
    coverage.add(_trace())

    assert (str(coverage.steps), str(coverage.edges), str(coverage.branches)) == ("1 of 3", "1 of 2", "2 of 4")
    assert coverage.missing() == ["step b", "step c", "arc a → c (on failure)", "branch b: if x"]
    assert coverage.facts()["by_arc"][1]["runs"] == 0


@pytest.mark.parametrize(
    ("expected", "difference"),
    [
        (RunExpectation(status="failed"), "status is 'succeeded', expected 'failed'"),
        (RunExpectation(result={"a": 2, "b": [1]}, has_result=True), "result.a is 1, expected 2"),
        (RunExpectation(includes={"b": [2]}, has_includes=True), "result.b[0] is 1, expected 2"),
        (RunExpectation(result={"a": True, "b": [1]}, has_result=True), "result.a is 1, expected true"),
        (RunExpectation(error={"code": "X"}), 'it was to fail with {"code":"X"}, and is succeeded'),
        (RunExpectation(steps={"b": "done"}), "steps.b is 'skipped', expected 'done'"),
        (RunExpectation(steps={"d": "done"}), "steps.d: 'd' is not a step (a, b, c)"),
        (RunExpectation(steps={"a": {"runs": 2}}), "steps.a: 1 runs, expected 2"),
        (RunExpectation(events=["B", "A"]), 'events: there is no "A" after event 2'),
        (RunExpectation(events=[{"event": "A", "n": 2}]), 'events: there is no {"event":"A","n":2}'),
        (RunExpectation(calls={"x": 2}), "calls.x is 1, expected 2"),
        (RunExpectation(calls={"x": [{"n": 2}]}), "calls.x[0].n is 1, expected 2"),
        (RunExpectation(waits_for=["gate"]), "it was to wait for 'gate', and waits for: nothing"),
    ],
)
def test_each_difference_is_a_sentence(expected: RunExpectation, difference: str) -> None:
    seen = Observed(
        status="succeeded",
        result={"a": 1, "b": [1]},
        graph=GRAPH,
        trace=_trace(),
        events=[{"event": "A", "n": 1}, {"event": "B"}],
        calls={"x": [{"n": 1, "m": 2}]},
    )
    assert list(differences(expected, seen)) == [difference]
    assert list(differences(RunExpectation(status="succeeded", includes={"a": 1}, has_includes=True), seen)) == []


@pytest.mark.parametrize("mode", ["failure", "success"])
def test_compensations_count_where_they_had_to_run(mode: str) -> None:
    """ANA-013: a block whose steps are all skipped because of the end before it was not reached."""
    spec = f"""
    steps: [{{name: a, type: stop, with: {{mode: {mode}}}}}]
    compensations: [{{name: undo, type: condition}}]
    finally: [{{name: end, type: condition}}]
    """
    world = StoryWorld(story(spec))
    world.settle()
    life = world.life
    program = life.execution.program
    turns = (turn for row in life.rows for turn in decode_turns(life.dialect, row))
    coverage = Coverage(life.dialect.graph(program))
    coverage.add(trace_turns(life.dialect.tracer(program), turns))

    arcs = {(arc["source"], arc["target"]): arc["runs"] for arc in coverage.facts()["by_arc"]}
    has_failed = mode == "failure"
    assert arcs == {
        ("spec/steps", "spec/compensations"): int(has_failed),
        ("spec/steps", "spec/finally"): int(not has_failed),
        ("spec/compensations", "spec/finally"): int(has_failed),
    }
    assert ("step undo" in coverage.missing()) is not has_failed
