"""What the scenario folders do not cover: refusals, limits, sizes, histories, and numbers of the contract."""

from typing import Any

import pytest

from perdure.dialects.story.plan.execution_policy import Retry
from perdure.dialects.story.run.resource_patch import patched
from perdure.dialects.story.state.step_errors import exit_class_of, safe
from perdure.dialects.story.values.engram_contract import classify_failure, provider_of
from perdure.dialects.story.views.history import history
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Cancelled, Code, Failed
from perdure.kernel.tasks.retry import Backoff
from tests.dialects.story.world import World, engram, failure, story, template

GATED = "steps: [{name: ok, type: gate}, {name: a, ref: {name: echo}, needs: [ok]}]"


# Operators.


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        ({"step": "ghost", "state": "Approved"}, "there is no step 'ghost'"),
        ({"step": "a", "state": "Approved"}, "step 'a' is not a gate"),
        ({"step": "ok", "state": "Maybe"}, "a gate's state is Approved, Rejected, Pending, not 'Maybe'"),
        ({"step": "ok", "state": "Approved", "message": 3}, "message and by must be strings"),
        ({"step": "ok", "state": "Approved", "phase": "x"}, "a decision is"),
    ],
)
def test_a_decision_that_cannot_be_is_refused_and_changes_nothing(decision: dict[str, Any], why: str) -> None:
    """STY-105."""
    world = World(GATED)
    world.settle()
    rows = len(world.life.rows)

    answer = world.steer("gate", **decision)

    assert isinstance(answer, i.Refused) and why in answer.reason
    assert len(world.life.rows) == rows


def test_a_gate_that_has_ended_is_past_deciding() -> None:
    """STY-103 STY-105."""
    world = World(GATED)
    world.settle()
    world.decide("ok")
    world.settle()

    answer = world.decide("ok", "Rejected")

    assert "already succeeded" in answer.reason or "already ended" in answer.reason


def test_words_that_mean_nothing_to_a_story_are_refused() -> None:
    world = World(GATED)
    world.settle()

    assert "has no control message 'dance'" in world.steer("dance").reason
    assert "is not waiting for a retry" in world.steer("retry", step="a").reason
    assert "no step 'ghost' to redrive from" in world.steer("redrive", step="ghost").reason
    assert "must be <step>.<key>" in world.tell(i.Signal("go")).reason


def test_a_redrive_with_the_same_token_does_nothing() -> None:
    """STY-183."""
    world = World("steps: [{name: a, ref: {name: echo}}]")
    world.run()
    world.redrive(token="t")
    world.settle()
    world.redrive(token="t")
    world.settle()

    assert world.status["attempts"] == 2


def test_a_redrive_without_a_token_is_observed_under_one_of_its_own() -> None:
    """STY-183 STY-184."""
    world = World("steps: [{name: a, ref: {name: echo}}]")
    world.run()
    world.tell(i.Reopen(b"null", "first"))
    world.settle()
    world.tell(i.Reopen(b'{"step": "a"}', "second"))
    world.settle()

    assert world.status["attempts"] == 3
    notes = world.show()["metadata"]["annotations"]
    assert notes["storyrun.bubustack.io/redrive-observed"] == "redrive-2"
    assert notes["storyrun.bubustack.io/redrive-from-step-observed"] == "a:redrive-3"
    assert notes["storyrun.bubustack.io/redrive-from-step"] == "a:redrive-3"


def test_cancelling_a_run_that_has_ended_changes_nothing() -> None:
    """STY-188."""
    world = World("steps: [{name: a, ref: {name: echo}}]")
    before = world.run()

    answer = world.tell(i.Cancel("late"))

    assert not isinstance(answer, i.Refused)
    assert world.show() == before


def test_a_patch_of_the_resource_says_what_it_asks_of_the_run() -> None:
    """STY-049 STY-105 STY-183 STY-184."""
    world = World(GATED)
    world.settle()
    run = world.life.execution

    (decision,) = patched(run, "StoryRun", {"status": {"gates": {"ok": {"state": "Approved", "message": "fine"}}}})
    assert isinstance(decision, i.Steer) and decision.verb == "gate"
    assert isinstance(patched(run, "StoryRun", {"spec": {"cancelRequested": True}})[0], i.Cancel)
    notes = {"annotations": {"storyrun.bubustack.io/redrive-from-step": "a:t1"}}
    (redrive,) = patched(run, "StoryRun", {"metadata": notes})
    assert isinstance(redrive, i.Steer) and jsontext.decode(_bytes(redrive.body)) == {"step": "a", "token": "t1"}
    (kept,) = patched(run, "StoryRun", {"metadata": {"labels": {"mine": "x", "old": None}}})
    assert isinstance(kept, i.Steer) and kept.verb == "metadata"


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"cancelRequested": False}},
        {"spec": {"inputs": {}}},
        {"status": {"phase": "Succeeded"}},
        {"status": {"gates": {"ok": {"decision": "yes"}}}},
        {"metadata": {"annotations": {"storyrun.bubustack.io/redrive-from-step": "a"}}},
        {"metadata": {"annotations": {"bubustack.io/mine": "x"}}},
        {"metadata": {"labels": {"perdure.dev/mine": "x"}}},
        {"metadata": {"labels": {"mine": 1}}},
        {"metadata": {"name": "other"}},
    ],
)
def test_other_patches_are_refused(patch: dict[str, Any]) -> None:
    """STY-049 STY-184."""
    world = World(GATED)
    world.settle()

    with pytest.raises(ValueError, match=r"immutable|only|must be|reserved|is {state"):
        patched(world.life.execution, "StoryRun", patch)


def _bytes(payload: Any) -> bytes:
    assert isinstance(payload, bytes)
    return payload


# Signals and effects.


def say(*reports: dict[str, Any]) -> Any:
    step = {"name": "a", "ref": {"name": "say"}, "with": {"seconds": 1, "says": list(reports)}}
    return story(jsontext.encode({"steps": [step]}).decode())


def test_a_signal_that_is_too_large_is_cut_down_to_its_summary() -> None:
    """STY-175 STY-174 STY-274."""
    text = "é" * 6_000
    status = World(say({"signal": {"key": "big", "value": text}})).run()["stepRuns"]["a"]["status"]

    kept = status["signals"]["big"]
    assert (kept["truncated"], kept["type"], kept["details"]) == (True, "string", {"len": 6_000})
    assert kept["sizeBytes"] == 12_002
    assert len(kept["sample"].encode()) <= 2_048 and set(kept["sample"]) == {"é"}
    assert status["signalEvents"][0]["payload"] == kept


def test_signals_may_be_kept_as_summaries_only() -> None:
    """STY-174."""
    envelope = {"meta": {"format": "json", "sizeBytes": 3}, "sample": "x"}
    world = World(
        say({"signal": {"key": "secret", "value": {"a": 1}}}, {"signal": {"key": "own", "value": envelope}}),
        settings={"signals.store-values": False},
    )
    signals = world.run()["stepRuns"]["a"]["status"]["signals"]

    assert signals["secret"]["redacted"] is True and signals["secret"]["type"] == "object"
    assert signals["own"] == envelope


def test_the_latest_256_signals_are_retained_and_a_gap_can_be_seen() -> None:
    """STY-176 STY-178."""
    world = World(say(*({"signal": {"key": "n", "value": n}} for n in range(300))))
    world.settle(world.now)
    (task,) = world.life.execution.state.tasks
    report = {"replaySignals": {"step": "run-a", "sinceSeq": 298}}
    answer = world.tell(i.TaskReport(task, 1, jsontext.encode(report)))

    replayed = jsontext.decode(answer.body)
    assert [event["payload"] for event in replayed["events"]] == [298, 299]
    assert replayed["firstRetainedSeq"] == 45
    shown = world.run()["stepRuns"]["a"]["status"]
    assert len(shown["signalEvents"]) == 256
    assert shown["signals"] == {"n": 299}


def test_signals_and_effects_survive_a_retry_and_go_on_counting() -> None:
    """STY-164 STY-176: numbers are monotonic over attempts."""
    calls: list[int] = []

    def work(arguments: dict[str, Any]) -> Any:
        from tests.dialects.universe import Answer

        calls.append(1)
        reports: list[dict[str, Any]] = [
            {"signal": {"key": "try", "value": len(calls)}},
            {"effect": {"key": f"e{len(calls)}", "status": "sent"}},
        ]
        outcome = failure(exitClass="retry") if len(calls) == 1 else None
        return Answer({}, failure=outcome, says=reports, after=SECOND)

    world = World("steps: [{name: a, ref: {name: echo}}]", work={"engram:echo@1.0.0": work})
    status = world.run()["stepRuns"]["a"]["status"]

    assert [(signal_event["seq"], signal_event["payload"]) for signal_event in status["signalEvents"]] == [
        (1, 1),
        (2, 2),
    ]
    assert [(effect["seq"], effect["key"]) for effect in status["effects"]] == [(1, "e1"), (2, "e2")]


def test_details_of_an_effect_are_bounded() -> None:
    """STY-165 STY-274."""
    status = World(say({"effect": {"key": " k ", "status": "ok", "details": "x" * 9_000}})).run()["stepRuns"]["a"]
    (effect,) = status["status"]["effects"]

    assert effect["key"] == "k"
    assert effect["details"]["truncated"] is True and effect["details"]["details"] == {"len": 9_000}


def test_an_effect_claimed_and_not_completed_is_a_reserved_claim() -> None:
    """STY-170 STY-166."""
    world = World("steps: [{name: a, ref: {name: slow}, with: {seconds: 5}}]")
    world.settle(world.now)
    (task,) = world.life.execution.state.tasks
    world.tell(i.EffectClaim(task, 1, "provider.call"))

    (claim,) = world.show()["effectClaims"]
    assert claim["status"] == {"phase": "Reserved"}
    assert claim["spec"]["stepRunRef"] == {"name": "run-a", "uid": "run/1/a"}
    assert claim["spec"]["idempotencyKey"] == "ns/default/storyrun/run/step/a"


def test_what_an_older_delivery_says_does_not_count() -> None:
    """STY-120 STY-119."""
    world = World("steps: [{name: a, ref: {name: slow}, with: {seconds: 5}}]")
    world.settle(world.now)
    (task,) = world.life.execution.state.tasks
    world.tell(i.TaskLost(task, 1, "gone"))

    late = i.TaskReport(task, 1, jsontext.encode({"signal": {"key": "x", "value": 1}}))
    assert isinstance(world.tell(late), i.Refused)
    assert world.run()["stepRuns"]["a"]["status"]["signals"] == {}


# Numbers.


def test_waits_between_attempts() -> None:
    """STY-127: the vector of the contract, and the edges of cap, floor and jitter."""

    def waits(policy: Retry, chance: float = 0.0) -> list[float]:
        return [policy.wait(n, lambda: chance) / SECOND for n in range(1, 6)]

    assert waits(Retry(5, SECOND, 5 * SECOND)) == [1, 2, 4, 5, 5]
    assert waits(Retry(5, SECOND, None, 0, Backoff.LINEAR)) == [1, 2, 3, 4, 5]
    assert waits(Retry(5, SECOND, None, 0, Backoff.CONSTANT)) == [1, 1, 1, 1, 1]
    assert waits(Retry(5, 0)) == [0.01] * 5
    assert waits(Retry(5, SECOND, 1)) == [0.01] * 5
    assert waits(Retry(5, SECOND, 3 * SECOND, 50), 0.5) == [1.25, 2.5, 3, 3, 3]


@pytest.mark.parametrize(
    ("code", "named"),
    [
        *[(0, "success"), (124, "retry"), (137, "retry"), (143, "retry"), (429, "rateLimited"), (-1, "unknown")],
        *[(code, "terminal") for code in (1, 2, 125, 126, 127, 256, 1000, -7)],
        *[(code, "retry") for code in (128, 130, 200, 255)],
    ],
)
def test_the_class_of_an_exit_code(code: int, named: str) -> None:
    """STY-123."""
    assert exit_class_of(code) == named


def test_how_a_failure_is_judged() -> None:
    """STY-124 STY-256 STY-257 STY-258."""
    plain = classify_failure(Failed("Engram.Errors.KeyError", "oops"), expired=False)
    assert (plain.exit_code, plain.exit_class, plain.error.retryable) == (1, "terminal", False)
    classified = classify_failure(failure(exitCode=3, exitClass="retry", retryable=False, type="odd"), expired=False)
    assert (classified.exit_code, classified.exit_class, classified.error.retryable) == (3, "retry", False)
    assert classified.error.type == "execution_error"
    late = classify_failure(failure(type="validation_error"), expired=True)
    assert (late.error.type, late.exit_code, late.is_timeout) == ("timeout", 124, True)
    assert classify_failure(Failed(Code.WORKER_DIED, "killed"), expired=False).exit_class == "retry"
    assert classify_failure(Cancelled("shut down"), expired=False).exit_class == "retry"
    lost = classify_failure(Failed(Code.DELIVERIES_EXHAUSTED, "again and again"), expired=False)
    assert (lost.exit_class, lost.may_retry) == ("unknown", False)


def test_a_long_message_is_cut_between_characters() -> None:
    """STY-259."""
    assert len(safe("é" * 8_000).encode()) == 8_192
    assert len(safe("a" + "é" * 8_000).encode()) == 8_191
    assert safe("token=abc; ok") == "token=[REDACTED]; ok"
    assert safe("no secretary here") == "no secretary here"


def test_the_provider_of_a_template() -> None:
    assert provider_of("http-request", "1.0.0") == "engram:http-request@1.0.0"


# Sizes.


def test_a_large_output_is_kept_once_and_read_by_those_who_need_it() -> None:
    """STY-274 STY-207: hydrated where it is read."""
    spec = """
steps:
- {name: a, ref: {name: echo}, with: {rows: "{{ inputs.rows }}"}}
- {name: b, ref: {name: echo}, with: {n: "{{ len steps.a.output.rows }}", last: "{{ index steps.a.output.rows 999 }}"}}
output: {n: "{{ steps.b.output.n }}", last: "{{ steps.b.output.last }}"}
"""
    world = World(spec, {"rows": ["x" * 200] * 1_000}, crash=True)
    shown = world.run()

    assert shown["status"]["output"] == {"n": 1_000, "last": "x" * 200}
    assert sum(map(len, world.life.rows)) < 20_000


def test_an_output_that_is_too_large_is_left_out() -> None:
    """STY-217."""
    spec = "steps: [{name: a, ref: {name: echo}, with: {t: '{{ inputs.t }}'}}]\n"
    spec += "output: {a: ['{{ inputs.t }}', '{{ inputs.t }}', '{{ inputs.t }}', '{{ inputs.t }}', '{{ inputs.t }}']}"
    status = World(spec, {"t": "x" * 250_000}).run()["status"]

    assert status["phase"] == "Succeeded" and "output" not in status
    assert status["message"] == "All steps completed successfully, but the final output was too large to store."
    assert [(condition["type"], condition["status"], condition["reason"]) for condition in status["conditions"]][2] == (
        "Degraded",
        "True",
        "OutputResolutionFailed",
    )


def test_diagnostics_are_told_in_the_originals_words() -> None:
    """STY-012 STY-223 STY-261 STY-264."""
    others = [template("echo", declaredOutputKeys=["x", "y"]), engram("echo", overrides={"maxInlineSize": 30})]
    world = World("steps: [{name: a, ref: {name: echo}, with: {x: abcdefghijklmnop}}]", others=others)
    world.run()

    kinds = {event["event_type"] for event in told(world)}
    assert {"OutputKeyMismatch", "StepInputNearLimit"} <= kinds


def told(world: World) -> list[dict[str, Any]]:
    turns = [turn for row in world.life.rows for turn in decode_turns(world.life.dialect, row)]
    return list(history("run", turns))


def test_the_history_tells_phases_decisions_retries_and_who_said_so() -> None:
    """STY-264 STY-261 STY-117."""
    spec = """
steps:
- {name: ok, type: gate}
- {name: a, ref: {name: flaky}, needs: [ok], with: {times: 1}}
"""
    world = World(spec)
    world.settle()
    world.decide("ok", by="ada", message="go")
    world.settle()
    events = told(world)

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    phases = [
        (event.get("step"), event["payload"]["phase"]) for event in events if event["event_type"].endswith(".phase")
    ]
    assert phases == [
        (None, "Running"),
        ("ok", "Paused"),
        ("ok", "Succeeded"),
        ("a", "Pending"),
        ("a", "Running"),
        ("a", "Pending"),
        ("a", "Running"),
        ("a", "Succeeded"),
        (None, "Succeeded"),
    ]
    (decided,) = [event for event in events if event["event_type"] == "gate.decided"]
    assert decided["actor"] == "ada" and decided["payload"] == {"state": "Approved", "message": "go"}
    assert "JobRetryScheduled" in [event["event_type"] for event in events]
    named = [(event["event_type"], event["payload"].get("reason")) for event in events]
    assert ("steprun.created", "ChildStepRunCreated") in named and ("execution.ended", "JobCompleted") in named


def test_a_sub_run_stands_in_its_parents_queue_unless_it_says_otherwise() -> None:
    """STY-076."""
    spec = """
policy: {queue: Night, priority: 4}
steps:
- {name: same, type: executeStory, with: {storyRef: {name: plain}}}
- {name: own, type: executeStory, with: {storyRef: {name: proud}}}
"""
    others = [
        story("steps: [{name: a, ref: {name: echo}}]", "plain"),
        story("policy: {queue: day, priority: 1}\nsteps: [{name: b, ref: {name: echo}}]", "proud"),
    ]
    settings = {"storyrun.queue.night.concurrency": 5, "storyrun.queue.day.concurrency": 5}
    world = World(spec, others=others, settings=settings)
    world.run()

    asked = {
        (event.scope, event.priority)
        for life in world.lives.values()
        for event in life.events
        if isinstance(event, e.PermitRequested)
    }
    assert asked == {("queue:night", 4), ("queue:day", 1)}


def test_labels_and_traces_lead_from_a_run_to_its_steps_and_children() -> None:
    """STY-262 STY-088."""
    others = [story("steps: [{name: a, ref: {name: echo}}]", "child")]
    world = World(
        "steps: [{name: call, type: executeStory, with: {storyRef: {name: child}}}]",
        others=others,
        labels={"bubustack.io/correlation-id": "c-1"},
    )
    shown = world.run()
    (child,) = [life for life in world.lives.values() if life is not world.life]
    below = child.show()

    assert below["metadata"]["name"] == "run-call"
    assert below["metadata"]["labels"]["bubustack.io/parent-storyrun"] == "run"
    assert below["metadata"]["labels"]["bubustack.io/parent-step"] == "call"
    assert below["stepRuns"]["a"]["metadata"]["labels"]["bubustack.io/correlation-id"] == "c-1"
    assert below["status"]["trace"]["traceId"] == shown["status"]["trace"]["traceId"]
    assert below["status"]["trace"]["spanId"] != shown["status"]["trace"]["spanId"]


def test_a_schema_that_is_none_fails_the_step_and_sticks_no_run() -> None:
    """STY-210 STY-215."""
    bad = {"type": "no such type"}
    for where in ("inputSchema", "outputSchema"):
        others = [template("echo", **{where: bad})]
        world = World("steps: [{name: a, ref: {name: echo}, with: {n: 1}}]", others=others)
        assert "the schema is not valid" in world.run()["status"]["stepStates"]["a"]["message"]
