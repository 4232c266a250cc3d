"""Interruption where real work is in flight: tasks that stop, tasks that do not, cleanups that are tasks."""

from typing import Any

from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.execution import Limits
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Failed
from tests.dialects.flow.documents import call, cleanup, codes, flow, inner, mock, retry, returns, task, timeout
from tests.dialects.flow.world import START, Answer, Work, World

CATCH = [{"match": {"codes": ["*"]}, "next": "caught"}]
TIMEOUT = "Provider.Middleware.Timeout.Exceeded"


def answering(value: Any = None, *, after: float = 0, stubborn: bool = False, failing: str = "") -> Work:
    failure = Failed(failing) if failing else None
    return lambda arguments, task_input: Answer(value, failure, int(after * SECOND), stubborn)


def run(document: dict[str, Any], **options: Any) -> tuple[Any, World]:
    world = World(document, crash=True, **options)
    return world.run(), world


def test_a_task_that_agrees_to_stop_lets_the_timeout_rise_alone() -> None:
    """MWL-422 MWL-555 MWL-708"""
    document = flow({"c": call(task("slow"), middleware=[timeout("PT1S")]), "done": returns()})

    result, world = run(document, work={"slow": answering(after=60)})

    assert (result["type"], codes(result)) == ("timeout", [TIMEOUT])
    assert world.now - world.execution.state.started_at == SECOND


def test_the_unwind_waits_for_a_task_that_does_not_stop_and_ignores_what_it_says() -> None:
    """MWL-552 MWL-708: its Result is the cancellation, whatever it reports afterwards."""
    document = flow({"c": call(task("deaf"), middleware=[timeout("PT1S")]), "done": returns()})

    result, world = run(document, work={"deaf": answering("too late", after=5, stubborn=True)})

    assert codes(result) == [TIMEOUT]
    assert world.now - world.execution.state.started_at == 5 * SECOND


def test_a_result_at_the_deadline_beats_the_bound() -> None:
    """O-23 MWL-703"""
    document = flow({"c": call(task("exact"), middleware=[timeout("PT1S")]), "done": returns()})

    result, _ = run(document, work={"exact": answering("in time", after=1)})

    assert result == {"type": "success", "value": "in time"}


def test_external_cancellation_runs_cleanups_inside_out_and_has_no_previous() -> None:
    """MWL-557 MWL-551"""
    order: list[str] = []

    def tidy(arguments: dict[str, Any], value: Any) -> Answer:
        order.append(arguments["who"])
        return Answer()

    document = flow(
        {
            "c": call({"flow": "sub"}, middleware=[cleanup(task("tidy", who="step"))], catch=CATCH),
            "caught": returns("caught"),
            "done": returns(),
        },
        flows={
            "sub": inner(
                {"c": call(task("slow"), middleware=[cleanup(task("tidy", who="inner"))]), "done": returns()},
                middleware=[cleanup(task("tidy", who="frame"))],
            )
        },
        middleware=[cleanup(task("tidy", who="root"))],
    )

    result, _ = run(document, work={"slow": answering(after=60), "tidy": tidy}, cancel_at=SECOND)

    assert result == {"type": "cancellation", "code": "System.Cancelled", "message": "stop"}
    assert order == ["inner", "frame", "step", "root"]


def test_a_second_cancel_changes_nothing() -> None:
    """MWL-558"""
    document = flow({"c": call(task("slow"), middleware=[cleanup(task("tidy"))]), "done": returns()})
    world = World(document, work={"slow": answering(after=60), "tidy": answering(after=5)}, cancel_at=SECOND)
    world._offer(START + 3 * SECOND, 0, i.Cancel("again"))

    result = world.run()

    assert result["message"] == "stop"
    assert sum(isinstance(event, e.TaskScheduled) for event in world.events) == 2


def test_a_cancelled_subflow_is_ordinary_data_for_its_gather() -> None:
    """MWL-312 MWL-556 MWL-708"""
    document = flow(
        {
            "g": {
                "action": "Gather",
                "over": [0, 30, 60],
                "call": task("wait", input="{{ call.input }}") | {"onSuccess": {"value": "{{ call.index }}"}},
                "completion": {"successes": 1, "wait": False},
                "output": "{{ step.results.map(r, r.type) }}",
                "next": "done",
            },
            "done": returns(),
        }
    )

    result, world = run(document, work={"wait": lambda arguments, task_input: Answer(1, after=task_input * SECOND)})

    assert result["value"] == ["success", "cancellation", "cancellation"]
    assert sum(isinstance(event, e.TaskCancelRequested) for event in world.events) == 2


def test_retries_of_one_step_share_an_idempotency_path_and_steps_and_dispatches_do_not() -> None:
    """MWL-709, and the kernel's promise of effects once per key"""
    failures = iter(["F", "F", ""])
    document = flow(
        {
            "c": call(task("flaky"), "g", middleware=[retry(5)]),
            "g": {"action": "Gather", "over": [1, 2], "call": task("ok"), "next": "again"},
            "again": call(task("ok")),
            "done": returns(),
        }
    )
    work: dict[str, Work] = {
        "flaky": lambda arguments, task_input: Answer(failure=Failed(code) if (code := next(failures)) else None),
        "ok": answering(1),
    }

    _, world = run(document, work=work)

    paths = [event.path for event in world.events if isinstance(event, e.TaskScheduled)]
    assert paths[0] == paths[1] == paths[2]
    assert len(set(paths[2:])) == 4


def test_a_bound_that_is_overdue_fires_before_new_work_begins() -> None:
    """MWL-703: after an outage, what was received before the deadline counts, and nothing new begins behind it."""
    document = flow(
        {"c": call(task("first"), "n"), "n": call(mock(value="too late")), "done": returns()},
        middleware=[timeout("PT2S")],
    )
    world = World(document, work={"first": answering("early", after=1)}, crash=True)
    world.outage = (1 * SECOND, 10 * SECOND)

    result = world.run()

    assert codes(result) == [TIMEOUT]


def test_a_result_received_before_the_deadline_wins_after_an_outage() -> None:
    """MWL-703"""
    document = flow({"c": call(task("first"), middleware=[timeout("PT2S")]), "done": returns()})
    world = World(document, work={"first": answering("early", after=1)}, crash=True)
    world.outage = (1 * SECOND, 10 * SECOND)

    assert world.run() == {"type": "success", "value": "early"}


def test_a_cleanup_that_fails_in_an_unwind_keeps_the_whole_chain() -> None:
    """MWL-554 MWL-552"""
    document = flow(
        {"c": call(task("slow"), middleware=[timeout("PT1S"), cleanup(task("tidy"), retry(2))]), "done": returns()}
    )

    result, _ = run(document, work={"slow": answering(after=60), "tidy": answering(failing="Tidy")})

    assert codes(result) == ["Provider.Middleware.Retry.Exhausted", "Tidy", "System.Cancelled", TIMEOUT]


def test_a_sleep_after_a_timeout_is_not_taken_for_the_timeout() -> None:
    """What has just landed is forgotten with the turn it landed in."""
    slept = {"action": "Sleep", "for": "PT1S", "next": "done"}
    sleeping = inner({"s": {**slept, "for": "PT9S"}, "done": returns()})
    document = flow(
        {"c": call({"flow": sleeping}, middleware=[timeout("PT1S")], catch=CATCH), "caught": slept, "done": returns()}
    )

    assert World(document, "v").run() == {"type": "success", "value": "v"}


def test_a_result_that_has_reached_the_entry_is_accepted_although_the_timer_comes_before_the_next_move() -> None:
    """MWL-421, with every single move in a commit of its own"""
    document = flow({"c": call(task("quick"), middleware=[timeout("PT1S")]), "done": returns()})
    world = World(document, work={"quick": answering("accepted", after=0.5)}, limits=Limits(slice=1))
    take = world._take

    def late(input: i.Input, arrived: int) -> None:
        take(input, arrived)
        entry = world.execution.body.frames.get(1)
        if entry is not None and entry.rising is not None and world.execution.state.timers:
            for timer in world.execution.state.timers:
                world._offer(world.now, -3, i.TimerDue(timer))

    world._take = late  # type: ignore[method-assign]

    assert world.run() == {"type": "success", "value": "accepted"}
