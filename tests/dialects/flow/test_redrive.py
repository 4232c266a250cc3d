"""A redriven Flow goes on at the step that failed, or where it was stopped: what had finished is not done again."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure.dialects.flow.views.result_comparison import differences
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Failed
from perdure.services.flow.conformance import Scenario
from tests.dialects.flow.documents import call, cleanup, codes, flow, inner, middleware, retry, returns, task, timeout
from tests.dialects.flow.suite import all_scenarios
from tests.dialects.flow.world import Answer, Work, World
from tests.sampling import Sample

SHOW_TIMES = ("612-timeout-inside-retry", "g12-delays", "h05-nested-bounds", "h06-bound-over-gap")
"""Their Results tell how often was tried, or when a bound was reached; both begin anew with a redrive."""


class Calls:
    """Counts the tasks by name; those in `broken` fail until they are mended."""

    def __init__(self, *broken: str) -> None:
        self.made: list[Any] = []
        self.broken = set(broken)

    def work(self, *names: str, after: float = 0) -> dict[str, Work]:
        return {name: self._answering(name, after) for name in names}

    def _answering(self, name: str, after: float) -> Callable[[dict[str, Any], Any], Answer]:
        def answer(arguments: dict[str, Any], task_input: Any) -> Answer:
            label = f"{name}{arguments.get('n', '')}"
            self.made.append(label)
            failure = Failed("Provider.Call.X.Broken", f"{label} is broken") if label in self.broken else None
            return Answer(f"{label} done", failure, int(after * SECOND))

        return answer

    def mend(self) -> list[str]:
        """What was done until now."""
        self.broken.clear()
        made, self.made = self.made, []
        return made


def start(document: dict[str, Any], calls: Calls, *names: str, **options: Any) -> World:
    return World(document, crash=True, work=calls.work(*names), **options)


def test_only_the_step_that_failed_is_done_again() -> None:
    calls = Calls("b")
    steps = {"a": call(task("a"), "b"), "b": call(task("b"), "c"), "c": call(task("c"), "done"), "done": returns()}
    world = start(flow(steps), calls, "a", "b", "c")
    assert world.run()["type"] == "error"
    assert calls.mend() == ["a", "b"]

    assert world.redrive() == {"type": "success", "value": "c done"}
    assert calls.made == ["b", "c"]
    assert world.execution.state.incarnation == 2
    keys = [world.execution.idempotency_key("/1:b")]
    assert keys == ["run/r2//1:b"]


def test_variables_are_as_they_were_before_the_failure() -> None:
    calls = Calls("b")
    steps = {
        "a": call(task("a"), "b", assign={"seen": "{{ ['a'] }}"}),
        "b": call(task("b"), "done", assign={"seen": "{{ vars.seen + ['b'] }}"}),
        "done": returns("{{ vars.seen }}"),
    }
    world = start(flow(steps), calls, "a", "b")
    world.run()
    calls.mend()
    assert world.redrive()["value"] == ["a", "b"]


def test_a_flow_that_was_called_goes_on_inside() -> None:
    calls = Calls("b")
    below = inner({"a": call(task("a"), "b"), "b": call(task("b"), "out"), "out": returns("{{ step.input }}")})
    middle = inner({"x": call({"flow": "below"}, "y"), "y": returns("{{ step.input }}")}, flows={"below": below})
    steps = {"m": call({"flow": "middle"}, "done"), "done": returns()}
    world = start(flow(steps, flows={"middle": middle}), calls, "a", "b")
    assert world.run()["type"] == "error"
    calls.mend()
    assert world.redrive() == {"type": "success", "value": "b done"}
    assert calls.made == ["b"]


def test_a_retry_has_all_its_attempts_again_and_a_timeout_its_whole_time() -> None:
    calls = Calls("b")
    steps = {"b": call(task("b"), "done", middleware=[timeout("PT100S"), retry(3)]), "done": returns()}
    world = start(flow(steps), calls, "b")
    assert codes(world.run())[0].endswith("Exhausted")
    made, calls.made = calls.made, []
    assert made == ["b", "b", "b"]

    assert codes(world.redrive())[0].endswith("Exhausted")
    assert calls.mend() == ["b", "b", "b"]
    assert world.redrive()["type"] == "success"
    bounds = [event for event in world.events if isinstance(event, e.TimerSet)]
    assert [event.due - world.execution.state.started_at for event in bounds] == [100 * SECOND] * 3


def test_a_run_that_timed_out_goes_on_where_it_was() -> None:
    slow = {"b": lambda arguments, task_input: Answer("b done", None, 60 * SECOND)}
    steps = {"b": call(task("b"), "done"), "done": returns()}
    world = World(flow(steps, middleware=[timeout("PT10S")]), crash=True, work=slow)
    assert world.run()["type"] == "timeout"
    world.work["b"] = lambda arguments, task_input: Answer("b done", None, 5 * SECOND)
    world.pace = 0
    assert world.redrive() == {"type": "success", "value": "b done"}


def test_cleanup_runs_again_at_the_new_end() -> None:
    calls = Calls("b")
    steps = {"b": call(task("b"), "done"), "done": returns()}
    world = start(flow(steps, middleware=[cleanup(task("tidy"))]), calls, "b", "tidy")
    world.run()
    assert calls.mend() == ["b", "tidy"]
    assert world.redrive()["type"] == "success"
    assert calls.made == ["b", "tidy"]


def test_a_cleanup_that_failed_is_what_is_done_again() -> None:
    calls = Calls("tidy")
    steps = {"b": call(task("b"), "done"), "done": returns()}
    world = start(flow(steps, middleware=[cleanup(task("tidy"))]), calls, "b", "tidy")
    assert world.run()["type"] == "error"
    assert calls.mend() == ["b", "tidy"]
    assert world.redrive() == {"type": "success", "value": "b done"}
    assert calls.made == ["tidy"]


def test_a_failure_that_was_caught_stays_caught() -> None:
    calls = Calls("b", "repair")
    steps = {
        "b": call(task("b"), "done", catch=[{"match": {"codes": ["*"]}, "next": "repair"}]),
        "repair": call(task("repair"), "done"),
        "done": returns(),
    }
    world = start(flow(steps), calls, "b", "repair")
    assert len(codes(world.run())) == 2
    assert calls.mend() == ["b", "repair"]
    assert world.redrive()["value"] == "repair done"
    assert calls.made == ["repair"]


def test_a_loop_goes_on_with_the_round_that_failed() -> None:
    calls = Calls("b3")
    loop = middleware(
        "loop",
        onEntry={"assign": {"rounds": ["first"]}},
        onSuccess={"when": "{{ size(vars.rounds) < 5 }}", "assign": {"rounds": "{{ vars.rounds + ['next'] }}"}},
    )
    steps = {"b": call(task("b", n="{{ size(vars.rounds) }}"), "done", middleware=[loop]), "done": returns()}
    world = start(flow(steps), calls, "b")
    world.run()
    assert calls.mend() == ["b1", "b2", "b3"]
    assert world.redrive()["type"] == "success"
    assert calls.made == ["b3", "b4", "b5"]


def gather(target: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"action": "Gather", "over": "{{ [0, 1, 2, 3, 4, 5] }}", "call": target, "next": "done", **members}


@pytest.mark.parametrize("concurrency", [1, 2, None])
def test_only_the_dispatches_that_failed_are_made_again(concurrency: int | None) -> None:
    calls = Calls("b1", "b4")
    steps = {"g": gather(task("b", n="{{ call.input }}"), concurrency=concurrency), "done": returns()}
    world = start(flow(steps), calls, "b")
    assert world.run()["type"] == "error"
    assert sorted(calls.mend()) == [f"b{n}" for n in range(6)]
    assert world.redrive()["value"] == [f"b{n} done" for n in range(6)]
    assert sorted(calls.made) == ["b1", "b4"]


def test_dispatches_that_a_decision_stopped_or_skipped_are_made() -> None:
    calls = Calls("b1")
    completion = {"successes": 6, "wait": False}
    steps = {"g": gather(task("b", n="{{ call.input }}"), concurrency=2, completion=completion), "done": returns()}
    world = start(flow(steps), calls, "b")
    assert world.run()["type"] == "error"
    done = set(calls.mend())
    assert world.redrive()["value"] == [f"b{n} done" for n in range(6)]
    assert {f"b{n}" for n in range(6)} - done | {"b1"} <= set(calls.made)
    assert "b0" not in calls.made, "it had finished"


def test_flows_dispatched_by_a_gather_go_on_inside_and_their_number_stays_limited() -> None:
    calls = Calls("b1", "b3", "b4")
    below = inner(
        {
            "a": call(task("a", n="{{ step.input }}"), "b", assign={"element": "{{ step.input }}"}),
            "b": call(task("b", n="{{ vars.element }}"), "out"),
            "out": returns("{{ step.input }}"),
        }
    )
    steps = {"g": gather({"flow": "below"}, concurrency=2), "done": returns()}
    world = World(flow(steps, flows={"below": below}), crash=True, work=calls.work("a", "b", after=1))
    assert world.run()["type"] == "error"
    calls.mend()
    before = len(world.events)
    assert world.redrive()["value"] == [f"b{n} done" for n in range(6)]
    assert sorted(calls.made) == ["b1", "b3", "b4"]
    open_tasks = most = 0
    for event in world.events[before:]:
        open_tasks += isinstance(event, e.TaskScheduled) - isinstance(event, e.TaskEnded)
        most = max(most, open_tasks)
    assert most == 2


def test_a_result_of_before_does_not_count_after_a_redrive() -> None:
    steps = {"b": call(task("b"), "done", middleware=[timeout("PT1S")]), "done": returns()}
    stubborn = {"b": lambda arguments, task_input: Answer("late", None, 1000 * SECOND, stubborn=False)}
    world = World(flow(steps), crash=True, work=stubborn)
    world.run()
    world.work["b"] = lambda arguments, task_input: Answer("new", None, 0)
    assert world.redrive()["value"] == "new"


def test_what_finished_although_it_was_asked_to_stop_is_not_done_again() -> None:
    made: list[str] = []

    def stubborn(arguments: dict[str, Any], task_input: Any) -> Answer:
        made.append("b")
        return Answer("b done", None, 5 * SECOND, stubborn=True)

    steps = {"b": call(task("b"), "done"), "done": returns()}
    world = World(flow(steps), crash=True, work={"b": stubborn}, cancel_at=SECOND)
    assert world.run()["type"] == "cancellation"
    assert world.redrive() == {"type": "success", "value": "b done"}
    assert made == ["b"]


def test_what_succeeded_cannot_be_redriven() -> None:
    world = World(flow({"done": returns(1)}), crash=True)
    world.run()
    refusal = world.dialect.refusal(world.execution, i.Reopen())
    assert refusal is not None and "there is nothing to redrive" in refusal


@pytest.mark.parametrize(
    "case", [case for case in all_scenarios() if not case.name.startswith(SHOW_TIMES)], ids=lambda case: case.name
)
def test_a_scenario_cancelled_at_any_commit_and_redriven_ends_as_expected(case: Scenario, sample: Sample) -> None:
    calm = World(case.definition, case.input, case.arguments)
    calm.run()
    for at in sample.take(range(1, len(calm.rows))):
        world = World(case.definition, case.input, case.arguments, crash=True, cancel_after=at)
        world.run()
        if world.execution.state.status.value == "cancelled" and world.execution.body.fallen is not None:
            assert list(differences(case.expected, world.redrive())) == [], f"cancelled at commit {at}"
