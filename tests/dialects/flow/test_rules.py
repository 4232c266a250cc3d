"""Rules that can each be shown by one small Flow; the larger groups have their own cases and files."""

from typing import Any

import pytest

from perdure.dialects.flow import Flow
from perdure.dialects.flow.middleware import KNOWN, register
from perdure.dialects.flow.middleware.protocol import Middleware
from perdure.dialects.flow.middleware.retry import gap
from perdure.dialects.flow.plan.instants import LAST, parse_duration, parse_timestamp, write_timestamp
from perdure.dialects.flow.plan.provider_catalog import uri_type
from perdure.dialects.flow.views.result_comparison import differences
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Cancelled, Failed, Succeeded
from perdure.kernel.tasks.crash_attribution import LossKind
from tests.dialects.flow.documents import call, cleanup, codes, flow, inner, mock, retry, returns, task, timeout
from tests.dialects.flow.world import START, Answer, World

CATCH = [{"match": {"codes": ["*"]}, "next": "caught"}]
NO_BOUND = "PT1H"


def result_of(document: dict[str, Any], input: Any = None, **options: Any) -> Any:
    return World(document, input, crash=True, **options).run()


def value_of(document: dict[str, Any], input: Any = None, **options: Any) -> Any:
    result = result_of(document, input, **options)
    assert result["type"] == "success", result
    return result["value"]


# The model.


def test_a_flow_that_shapes_nothing_returns_its_input() -> None:
    """MWL-003 MWL-006 MWL-080 MWL-109: defaults need no evaluator and cannot fault."""
    steps = {
        "p": {"action": "Pass", "next": "m"},
        "m": {"action": "Match", "cases": [], "default": {"next": "c"}},
        "c": call({"provider": "mwl:provider.call/mwl/mock/v1"}, "s"),
        "s": {"action": "Sleep", "for": "PT0S", "next": "g"},
        "g": call({"flow": inner({"r": {"action": "Return"}})}, "r"),
        "r": {"action": "Return"},
    }
    strange = {"b": [None, True, 1.5, "é\u0000"], "a": {}, "{{ x }}": "{{ y }}"}

    assert value_of(flow(steps), strange) == strange


def test_flow_and_provider_targets_are_interchangeable() -> None:
    """MWL-005 MWL-500 MWL-501: same Result shape, same handling."""
    raising = inner({"r": {"action": "Raise", "result": {"code": "Same", "details": [1]}}})
    failing = mock(failure={"code": "Same", "details": [1]})

    seen = [
        value_of(flow({"c": call(target, catch=CATCH), "caught": returns("{{ failure }}"), "done": returns()}))
        for target in ({"flow": raising}, failing)
    ]

    assert seen[0] == seen[1] == {"type": "error", "code": "Same", "details": [1]}


def test_a_frame_is_serial_and_its_steps_complete_one_after_the_other() -> None:
    """MWL-001 MWL-002 MWL-173 MWL-175 MWL-180"""
    document = flow({"a": call(mock(delay="PT1S"), "b"), "b": call(mock(delay="PT1S")), "done": returns()})
    world = World(document, crash=True)

    world.run()

    assert world.now - START == 2 * SECOND


def test_step_names_of_different_flows_do_not_collide() -> None:
    """MWL-053"""
    document = flow(
        {"x": call({"flow": "f"}, "done"), "done": returns()},
        flows={"f": inner({"x": returns("inner"), "done": returns()})},
    )

    assert value_of(document) == "inner"


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("mwl:provider.call/a/b", "provider.call"),
        ("mwl:provider.middleware/a-b/c_d/v1.2", "provider.middleware"),
        ("mwl:provider.call/a", None),
        ("mwl:provider.call/a//b", None),
        ("mwl:provider.call/a/./b", None),
        ("mwl:provider.call/a/b?c", None),
        ("mwl:provider.call/a/b%20", None),
        ("mwl:provider.other/a/b", None),
        ("MWL:provider.call/a/b", None),
    ],
)
def test_provider_uris(uri: str, kind: str | None) -> None:
    """MWL-060 MWL-061 MWL-062"""
    assert uri_type(uri) == kind


def test_a_middleware_is_refused_at_a_level_it_does_not_list() -> None:
    """MWL-032"""

    class OnlyFlows(Middleware):
        uri = "mwl:provider.middleware/tests/only-flows/v1"
        attachment = frozenset({"flow"})

    register(OnlyFlows())
    try:
        entry = {"provider": OnlyFlows.uri}
        at_step = flow({"c": call(mock(), middleware=[entry]), "done": returns()})
        at_flow = flow({"r": returns()}, middleware=[entry])

        assert [problem.code for problem in Flow().parse(jsontext.encode(at_step)).problems] == ["MWL-032"]
        assert Flow().parse(jsontext.encode(at_flow)).problems == []
    finally:
        del KNOWN[OnlyFlows.uri]


# Data.


def test_deep_equality_keeps_six_kinds_apart() -> None:
    """MWL-081 MWL-082 MWL-083 MWL-086 MWL-602 MWL-603"""

    def equal(left: Any, right: Any) -> bool:
        return not list(differences({"type": "success", "value": left}, {"type": "success", "value": right}))

    assert equal({"a": 5, "b": [1]}, {"b": [1.0], "a": 5.0})
    assert not equal(True, 1)
    assert not equal(0, False)
    assert not equal("é", "e\u0301")
    assert not equal(None, False)
    assert not equal([1], [1, 2])


def test_envelopes_are_compared_by_what_is_expected() -> None:
    """MWL-602 MWL-603"""
    actual = {"type": "error", "code": "A", "message": "m", "previous": {"type": "error", "code": "B", "details": 1}}

    assert (
        list(
            differences(
                {"type": "error", "code": "A", "retryable": None, "previous": {"type": "error", "code": "B"}}, actual
            )
        )
        == []
    )
    assert list(differences({"type": "error", "code": "A", "previous": {"type": "error", "code": "C"}}, actual)) == [
        "previous.code: expected 'C', got 'B'"
    ]
    assert list(differences({"type": "success", "value": 1}, actual)) == [
        "type: expected 'success', got 'error' (A: m)"
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT0.5S", 0.5),
        ("PT1,5H", 5400),
        ("P1W", 604_800),
        ("-P1DT1H", -90_000),
        ("P1Y", 31_536_000),
        ("P1M", 2_592_000),
        ("PT0S", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """MWL-088 O-05"""
    assert parse_duration(text) == seconds * SECOND


@pytest.mark.parametrize("text", ["", "P", "PT", "P1", "1S", "PT1.5H3M", "P1S", "pt1s", "PT1S ", "+PT1S"])
def test_what_is_no_duration(text: str) -> None:
    """MWL-088"""
    with pytest.raises(ValueError):
        parse_duration(text)


def test_timestamps() -> None:
    """MWL-087 MWL-089 MWL-162 O-22"""
    assert write_timestamp(parse_timestamp("2026-01-01T12:00:00.123456789+02:00")) == "2026-01-01T10:00:00.123456Z"
    assert write_timestamp(parse_timestamp("1990-12-31t23:59:60z")) == "1991-01-01T00:00:00.000000Z"
    assert parse_timestamp("9999-12-31T23:59:59-23:59") == LAST
    for wrong in ("2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "2026-01-01T00:00:61Z", "soon"):
        with pytest.raises(ValueError):
            parse_timestamp(wrong)


def test_a_wait_beyond_the_last_instant_does_not_end_and_overflows_nothing() -> None:
    """MWL-089"""
    document = flow({"s": {"action": "Sleep", "for": "P999999Y", "next": "r"}, "r": returns()})

    assert result_of(document, cancel_at=SECOND)["code"] == "System.Cancelled"


# Context.


def test_records_have_the_members_that_are_listed_and_no_others() -> None:
    """MWL-151 MWL-152 MWL-153 MWL-154 MWL-155 MWL-156 MWL-157 MWL-158 MWL-160"""
    keys = "{{ [%s] }}"
    step = "step.map(k, k), step.metadata.map(k, k)"
    arms = "call.map(k, k), call.metadata.map(k, k), %s.map(k, k)"
    document = flow(
        {
            "c": call(
                {
                    **mock(),
                    "onSuccess": {"assign": {"arm": keys % (arms % "provider")}},
                    "with": {"value": keys % "call.map(k, k)"},
                },
                "f",
                middleware=[
                    timeout(
                        NO_BOUND,
                        onSuccess={"assign": {"phase": keys % "middleware.map(k, k), middleware.metadata.map(k, k)"}},
                    )
                ],
                assign={"step": keys % step, "fields": "{{ step.result.value }}"},
            ),
            "f": call(
                {
                    "flow": inner({"r": returns()}),
                    "onSuccess": {"assign": {"window": keys % "flow.map(k, k), flow.metadata.map(k, k)"}},
                }
            ),
            "done": returns(
                {
                    "vars": "{{ vars }}",
                    "frame": "{{ frame.map(k, k) }}",
                    "execution": "{{ execution.map(k, k) }}",
                    "step": keys % step,
                }
            ),
        }
    )

    seen = value_of(document)

    result = {
        name: [set(part) if isinstance(part, list) else part for part in value] for name, value in seen["vars"].items()
    }
    moments = {"enteredAt", "exitedAt"}
    assert result["arm"] == [
        {"input", "metadata", "result"},
        moments | {"dispatchedAt", "acceptedAt"},
        {"input", "result", "metadata"},
    ]
    assert result["fields"] == [{"input", "metadata"}]
    assert result["phase"] == [{"input", "metadata", "result"}, {"enteredAt", "deadline"}]
    assert result["step"] == [{"name", "id", "action", "input", "metadata", "result"}, moments]
    assert result["window"] == [{"input", "result", "vars", "metadata"}, moments]
    assert set(seen["frame"]) == {"input", "metadata"}
    assert set(seen["execution"]) == {"id", "metadata", "platform"}
    assert [set(part) for part in seen["step"]] == [{"name", "id", "action", "input", "metadata"}, {"enteredAt"}]


def test_wall_time_is_the_reading_of_the_decision() -> None:
    """MWL-136 MWL-702 MWL-701: now() is the entry of the construct, wallTime() the time of the decision."""
    document = flow(
        {
            "c": call({**mock(delay="PT5S"), "onSuccess": {"value": "{{ wallTime() - now() == duration('5s') }}"}}),
            "done": returns("{{ [step.input, wallTime() == now()] }}"),
        }
    )

    assert value_of(document) == [True, True]


def test_a_record_after_an_outage_is_stamped_when_it_is_taken_up() -> None:
    """O-33 MWL-701"""
    document = flow(
        {
            "s": {"action": "Sleep", "for": "PT1S", "next": "c"},
            "c": call(mock(delay="PT2S"), middleware=[timeout("PT3S")]),
            "done": returns(
                "{{ timestamp(step.metadata.enteredAt) - timestamp(frame.metadata.enteredAt) == duration('12s') }}"
            ),
        }
    )
    world = World(document, crash=True)
    world.outage = (1 * SECOND, 10 * SECOND)

    assert world.run()["value"] is True


# Calls.


def test_a_call_threads_its_value_through_the_stack_once_per_pass() -> None:
    """MWL-200 MWL-201 MWL-202 MWL-203 MWL-250 MWL-251 MWL-252 MWL-262 MWL-264"""
    document = flow(
        {
            "c": call(
                {
                    **mock(),
                    "input": "{{ call.input + ' given' }}",
                    "onFailure": {"assign": {"n": "{{ vars.n + 1.0 }}"}},
                },
                input="{{ step.input + ' shaped' }}",
                middleware=[
                    timeout(
                        NO_BOUND, onEntry={"with": {"duration": NO_BOUND}, "output": "{{ middleware.input + ' in' }}"}
                    )
                ],
                output="{{ step.result.value + ' out' }}",
            ),
            "done": returns(),
        }
    )

    assert value_of(document, "v") == "v shaped in given out"


def test_an_arm_runs_once_per_attempt_and_call_faults_can_be_retried() -> None:
    """MWL-262 MWL-264 MWL-409 MWL-110"""
    document = flow(
        {
            "p": {"action": "Pass", "assign": {"log": []}, "next": "c"},
            "c": call(
                {
                    **mock(failure="{{ size(vars.log) < 2 ? {'code': 'F'} : null }}"),
                    "onFailure": {"assign": {"seen": "{{ vars.log + ['arm'] }}"}},
                },
                middleware=[
                    retry(
                        5,
                        onFailure={"assign": {"log": "{{ vars.seen }}"}},
                        onSuccess={"assign": {"emitted": "{{ has(vars.emitted) }}"}},
                    )
                ],
            ),
            "done": returns("{{ [vars.log, vars.emitted] }}"),
        }
    )

    assert value_of(document) == [["arm", "arm"], False]


def test_a_subflow_cancelled_by_itself_has_settled_and_its_failure_arm_runs() -> None:
    """MWL-263: a target that completed with a cancellation Result is not an interrupted call."""
    target = {
        **mock(failure={"code": "System.Cancelled", "type": "cancellation"}),
        "onFailure": {"assign": {"armed": True}},
    }
    document = flow(
        {"c": call(target, catch=CATCH), "caught": returns("{{ [vars.armed, failure.type] }}"), "done": returns()}
    )

    assert value_of(document) == [True, "cancellation"]


def test_the_mock_is_deterministic() -> None:
    """MWL-454"""
    document = flow({"c": call(mock(value={"a": [1]})), "done": returns()})

    assert result_of(document) == result_of(document)


# Gather.


def test_a_gather_judges_on_final_slots_and_counts_integral_numbers() -> None:
    """MWL-300 MWL-310 MWL-323 MWL-328"""
    document = flow(
        {
            "g": {
                "action": "Gather",
                "over": [1, 2, 3],
                "call": {
                    "flow": "f",
                    "with": {"n": "{{ call.input }}"},
                    "onSuccess": {"value": "{{ call.input == 3.0 ? vars.no : 1 }}"},
                },
                "completion": {"successes": "{{ step.metadata.dispatchCount - 1.0 }}"},
                "next": "done",
                "catch": CATCH,
            },
            "caught": returns("{{ failure.details.failures.map(f, [f.index, f.result.code]) }}"),
            "done": returns(),
        },
        flows={"f": inner({"r": returns()}, parameters={"type": "object", "properties": {"n": {"enum": [1, 3]}}})},
    )

    assert value_of(document) == [[1, "System.ParameterValidationFailed"], [2, "System.ExpressionEvaluationError"]]


# Middleware.


def test_an_absent_block_still_acts_and_no_phase_turns_a_failure_into_a_success() -> None:
    """MWL-353 MWL-354 MWL-362 MWL-363 MWL-364 MWL-383 MWL-386 MWL-381"""
    bare = {"provider": "mwl:provider.middleware/mwl/retry/v1"}
    refused = flow({"c": call(mock(), middleware=[bare]), "done": returns()})
    spoken = flow(
        {
            "c": call(
                mock(failure={"code": "F"}),
                middleware=[
                    timeout(NO_BOUND, onFailure={"details": "{{ has(middleware.metadata.attempt) }}"}),
                    retry(2, onFailure={"message": "{{ string(middleware.metadata.attempt) }}"}),
                ],
            ),
            "done": returns(),
        }
    )

    assert codes(result_of(refused)) == ["System.ParameterValidationFailed"]
    emitted = result_of(spoken)
    assert (emitted["type"], emitted["message"], emitted["details"]) == ("error", "2", False)


def test_an_interrupted_step_takes_neither_exit() -> None:
    """MWL-182 MWL-183 MWL-550 MWL-559: only cancellation interrupts; a timeout is of type timeout."""
    document = flow(
        {
            "c": call({"flow": "sub"}, catch=CATCH),
            "caught": returns("{{ [failure.type, failure.details] }}"),
            "done": returns(),
        },
        flows={
            "sub": inner(
                {
                    "s": call(
                        mock(delay="PT9S"),
                        assign={"left": True},
                        catch=[{"match": {"codes": ["*"]}, "next": "r", "assign": {"caught": True}}],
                        next="r",
                    ),
                    "r": returns(),
                },
                middleware=[timeout(NO_BOUND, onFailure={"details": "{{ vars }}"}), timeout("PT1S")],
            )
        },
    )

    assert value_of(document) == ["timeout", {}]


@pytest.mark.parametrize(
    ("jitter", "drawn", "expected"),
    [("none", None, 4), ("full", None, 2), ("equal", None, 3), ("decorrelated", None, 2), ("decorrelated", 5, 8)],
)
def test_jitter(jitter: str, drawn: int | None, expected: int) -> None:
    """MWL-405 O-12, with a draw of one half: the third retry of a schedule 1, 2, 4 with a cap of 100 s."""
    backoff = {"initial": "PT1S", "rate": 2, "max": "PT1M40S", "jitter": jitter}

    wait, _ = gap(backoff, 3, None if drawn is None else drawn * SECOND, lambda: 0.5)

    assert wait == expected * SECOND


def test_a_schedule_saturates() -> None:
    """MWL-405"""
    assert gap({"initial": "P1D", "rate": 10}, 10_000, None, lambda: 0.5)[0] == LAST


# The platform.


def test_lost_deliveries_are_no_attempts_until_they_are_exhausted() -> None:
    """MWL-709 MWL-711 O-29 MWL-570 MWL-502"""
    document = flow({"c": call(task("deadly"), catch=CATCH), "caught": returns("{{ failure }}"), "done": returns()})
    world = World(document, work={"deadly": lambda arguments, task_input: Answer(after=100 * SECOND)})
    for delivery in range(1, 6):
        world._offer(START + delivery * SECOND, 0, i.TaskLost(1, delivery, "the process died", LossKind.ALONE))

    failure = world.run()["value"]

    assert (failure["type"], failure["code"]) == ("error", "Platform.DeliveriesExhausted")
    assert sum(isinstance(event, e.TaskScheduled) for event in world.events) == 1


def test_losses_beside_others_are_not_charged() -> None:
    """MWL-709, invariant 27"""
    document = flow({"c": call(task("slow")), "done": returns("lived")})
    world = World(document, work={"slow": lambda arguments, task_input: Answer(after=100 * SECOND)})
    for delivery in range(1, 9):
        world._offer(START + delivery * SECOND, 0, i.TaskLost(1, delivery, "the process died", LossKind.BESIDE_OTHERS))
    world._offer(START + 10 * SECOND, 0, i.TaskResult(1, 1, 9, Succeeded(b"1")))

    assert world.run()["value"] == "lived"


def test_a_provider_failure_keeps_its_members() -> None:
    """MWL-501 MWL-711"""
    failed = Failed("Provider.Call.X.Odd", "m", True, b'{"d":1}')
    document = flow({"c": call(task("x")), "done": returns()})

    result = result_of(document, work={"x": lambda arguments, task_input: Answer(failure=failed)})

    assert result == {
        "type": "error",
        "code": "Provider.Call.X.Odd",
        "message": "m",
        "retryable": True,
        "details": {"d": 1},
    }


def test_a_cleanup_in_flight_is_handed_out_again_under_the_same_key() -> None:
    """MWL-707"""
    document = flow({"c": call(mock(value=1), middleware=[cleanup(task("tidy"))]), "done": returns()})
    world = World(document, work={"tidy": lambda arguments, task_input: Answer(after=10 * SECOND)}, crash=True)
    world._offer(START + SECOND, 0, i.TaskLost(1, 1, "the process died"))
    world._offer(START + 2 * SECOND, 0, i.TaskResult(1, 1, 2, Cancelled("never asked")))

    result = world.run()

    assert codes(result) == ["System.Cancelled"]
    assert sum(isinstance(event, e.TaskScheduled) for event in world.events) == 1


def test_a_document_is_recognised_by_what_only_flows_have() -> None:
    """MWL-010 MWL-011 MWL-012 O-01 O-02 O-21: what is broken is still known for a Flow, and then refused."""
    assert Flow().recognizes(b'{"$schema": "https://mwl.dev/v0.1/flow/schema.json", NaN')
    assert Flow().recognizes(b'{"entrypoint": "a", "steps": {}}')
    assert not Flow().recognizes(b'{"drill": 1, "steps": []}')


@pytest.mark.parametrize("input", [i.Signal("s"), i.Steer("v")])
def test_a_flow_takes_no_operators_word_but_cancel_and_redrive(input: i.Input) -> None:
    world = World(flow({"s": {"action": "Sleep", "for": "PT9S", "next": "r"}, "r": returns()}))
    assert isinstance(input, i.Signal | i.Steer)

    assert world.dialect.refusal(world.execution, input)
