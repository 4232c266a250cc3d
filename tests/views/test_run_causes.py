"""Which event tells of what, although the clock stands still; and what is said of a step between two attempts."""

import json
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.testing import World
from perdure.views.runs.run_causes import explain_run
from perdure.views.runs.run_details import run_facts_json
from perdure.views.runs.run_overview import brief_reason
from perdure.views.runs.run_status import WaitReason, run_status
from perdure.views.runs.run_steps import list_steps

CALL = {"provider": "mwl:provider.call/perdure/causes-bank/v1", "with": {"n": 1}}
ANY = {"codes": ["*"]}

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: shop}
spec:
  steps:
  - {name: first, ref: causes-pay, execution: {retry: {maxRetries: %(retries)s, delay: %(delay)s}}}
  - {name: pay, ref: causes-pay, execution: {retry: {maxRetries: %(retries)s, delay: %(delay)s}}}
"""

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: shop, path: shop}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: first}, {step: pay}]}
  - step: first
    tool: {kind: http, url: "http://localhost/", spec: {policy: {rules: [%(rule)s]}}}
  - step: pay
    tool: {kind: http, url: "http://localhost/", spec: {policy: {rules: [%(rule)s]}}}
"""
RULE = """{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: %s}}"""


def _flow(seconds: int) -> str:
    policy = {"match": ANY, "attempts": 3, "backoff": {"initial": f"PT{seconds}S"}}
    retry = {"provider": "mwl:provider.middleware/mwl/retry/v1", "onEntry": {"with": {"policies": [policy]}}}
    catch = [{"match": ANY, "next": "pay"}]
    steps = {
        "first": {"action": "Call", "call": CALL, "catch": catch, "next": "pay"},
        "pay": {"action": "Call", "middleware": [retry], "call": CALL, "next": "end"},
        "end": {"action": "Return"},
    }
    return json.dumps({"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "first", "steps": steps})


def _document(language: str, seconds: int) -> bytes:
    match language:
        case "flow":
            return _flow(seconds).encode()
        case "story":
            return (STORY % {"retries": 2 if seconds else 0, "delay": f"{seconds or 1}s"}).encode()
        case _:
            return (PLAYBOOK % {"rule": RULE % seconds}).encode()


def _refuse(**arguments: Any) -> None:
    raise perdure.ProviderFailure("Provider.Call.Bank.Refused", "refused", retryable=True)


@perdure.engram("causes-pay")
def pay(inputs: dict[str, Any]) -> dict[str, Any]:
    raise perdure.EngramError("refused", exit_class="retry")


def _world(folder: Path) -> World:
    return World(folder, mocks={"causes-bank": _refuse, "http": _refuse})


def _told(event: dict[str, Any]) -> str:
    return str(event.get("event_type") or event["event"])


@pytest.mark.parametrize("language", ["flow", "playbook", "story"])
async def test_each_link_is_the_event_itself_however_many_there_are_at_that_time(tmp_path: Path, language: str) -> None:
    """ANA-020: two steps fail with the same words within one millisecond, except in a Story three times each."""
    async with _world(tmp_path) as world:
        run = await world.start(_document(language, 0))
        await world.settle()
        client = world.engine
        assert client is not None
        history = {event["seq"]: event for event in await client.history(run.id)}
        whole = (await explain_run(client, run.id))["chain"]
        chain = (await explain_run(client, run.id, "pay"))["chain"]
        (step,) = [step for step in await list_steps(client, run.id) if step["name"] == "pay"]
        raw = await client.history(run.id, raw=True)

    assert len({link["at"] for link in [*whole, *chain]}) == 1, "the clock stood still"
    failed = {
        link["text"].partition(" failed")[0][-1]: history[link["seq"]] for link in chain if "refused" in link["text"]
    }
    assert list(failed) == (["1"] if language == "story" else ["3", "1"])
    (began,) = [history[link["seq"]] for link in chain if link["text"].endswith("'pay' began")]
    assert (step["started_seq"], step["error"]["seq"]) == (began["seq"], next(iter(failed.values()))["seq"])
    match language:
        case "flow":
            tasks = [event["task"] for event in raw if event["event"] == "TaskScheduled" and ":pay" in event["path"]]
            assert [event["task"] for event in failed.values()] == [tasks[2], tasks[0]]
            assert {_told(event) for event in failed.values()} == {"TaskEnded"}
            assert (_told(began), began["next"]) == ("StepCaught", "pay")
        case "playbook":
            assert [(_told(event), event["step"], event["attempt"]) for event in failed.values()] == [
                ("task.attempt.failed", "pay", 3),
                ("task.attempt.failed", "pay", 1),
            ]
            assert (_told(began), began["step"]) == ("step.started", "pay")
        case _:
            assert [(_told(event), event["step"]) for event in failed.values()] == [("execution.ended", "pay")]
            assert (_told(began), began["step"]) == ("steprun.created", "pay")
    end = history[whole[0]["seq"]]
    assert {"flow": "RunEnded", "playbook": "playbook.processed", "story": "storyrun.phase"}[language] == _told(end)


@pytest.mark.parametrize("language", ["flow", "playbook", "story"])
async def test_steps_of_a_redriven_run_stand_as_they_ended(tmp_path: Path, language: str) -> None:
    async with _world(tmp_path) as world:
        run = await world.start(_document(language, 0))
        await world.settle()
        for name in ("causes-bank", "causes-pay", "http"):
            world.mock(name, {"status": 200, "headers": {}, "body": None} if name == "http" else {})
        await run.redrive()
        await world.settle()
        client = world.engine
        assert client is not None
        status = await run.status()
        steps = {step["name"]: (step["status"], step["visits"]["open"]) for step in await list_steps(client, run.id)}

    first = ("failed, caught", 0) if language == "flow" else ("done", 0)
    assert status == "succeeded"
    assert steps["first"] == first and steps["pay"] == ("done", 0)
    assert steps.get("end", ("done", 0)) == ("done", 0)


@pytest.mark.parametrize("language", ["flow", "playbook", "story"])
async def test_between_two_attempts_a_run_says_when_it_tries_again(tmp_path: Path, language: str) -> None:
    async with _world(tmp_path) as world:
        run = await world.start(_document(language, 4))
        await world.settle()
        client = world.engine
        assert client is not None
        status = await run_status(client, run.id)
        now = world.clock.now()
        brief = await brief_reason(client, await client.find(run.id))

    retries = [wait for wait in status.awaited if wait.reason is WaitReason.RETRY]
    assert "step 'pay' tries again in 4.0 s (attempt 2 of 3)" in [wait.sentence(now) for wait in retries]
    assert "the next try of step 'pay' (attempt 2 of 3), due in 4.0 s" in [wait.text(now) for wait in retries]
    assert "tries again in 4.0 s (attempt 2 of 3)" in brief and "timer" not in brief


async def test_a_run_is_explained_as_it_stood_at_a_moment(tmp_path: Path) -> None:
    """CON-003: head and why line belong to the moment; nothing is offered for the past."""
    flow = {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "nap",
        "steps": {"nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": {"action": "Return"}},
    }
    async with World(tmp_path) as world:
        run = await world.start(flow)
        engine = world.engine
        assert engine is not None
        asleep = (await engine.execution(run.id)).state.seq
        await world.advance(3_600)

        then, now = [await run_facts_json(engine, run.id, at) for at in (asleep, None)]
        assert (then["status"], then["ended_at"], now["status"]) == ("waiting", None, "succeeded")
        first = await run_facts_json(engine, run.id, 1)
        assert first["status"] == "running", "in the middle of a turn"
        why = await explain_run(engine, run.id, None, asleep)
        assert "nap" in why["chain"][0]["text"] and why["chain"][0]["seq"] == asleep and why["commands"] == []
        assert "succeeded" in (await explain_run(engine, run.id))["chain"][0]["text"]
