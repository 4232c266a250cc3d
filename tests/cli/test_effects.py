"""`effects` and `settle`: what a killed process left in doubt is shown, held where asked for, and settled."""

import json
from typing import Any

import pytest
from tests.cli.commandline import CommandLine

TASKS = """
import os, signal
from pathlib import Path
import perdure

def charge():
    with Path("charged").open("a") as file:
        file.write("charged\\n")
    if not Path("safe").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return {"receipt": 7}

@perdure.provider("pay")
def pay(context: perdure.TaskContext):
    return context.effect_once("charge", charge)

@perdure.engram("pay")
def pay_step(inputs, context):
    return context.effect_once("charge", charge)
"""

HOLD = {"provider": "mwl:provider.middleware/perdure/hold-effects/v1"}


def flow(hold: bool, *, around: str = "step") -> dict[str, Any]:
    call: dict[str, Any] = {"action": "Call", "call": {"provider": "mwl:provider.call/perdure/pay/v1"}, "next": "done"}
    document: dict[str, Any] = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "pay"}
    if hold:
        (call if around == "step" else document)["middleware"] = [HOLD]
    return {**document, "steps": {"pay": call, "done": {"action": "Return"}}}


def playbook(hold: bool) -> dict[str, Any]:
    spec = {"spec": {"effects_in_doubt": "hold"}} if hold else {}
    return {
        "apiVersion": "noetl.io/v10",
        "kind": "Playbook",
        "metadata": {"name": "pay", "path": "pay"},
        "workflow": [{"step": "pay", "tool": {"kind": "pay", **spec}}],
    }


def story(hold: bool) -> dict[str, Any]:
    step: dict[str, Any] = {"name": "pay", "ref": {"name": "pay"}}
    if hold:
        step["execution"] = {"effectsInDoubt": "hold"}
    return {
        "apiVersion": "bubustack.io/v1alpha1",
        "kind": "Story",
        "metadata": {"name": "pay"},
        "spec": {"steps": [step], "output": {"receipt": "{{ steps.pay.output.receipt }}"}},
    }


def receipt(shown: dict[str, Any]) -> Any:
    """In the picture that each language gives of a run that has ended."""
    if "status" in shown and isinstance(shown["status"], dict):
        return shown["status"]["output"]["receipt"]
    value: Any = shown.get("value") or shown.get("result")
    return value["receipt"]


def killed(perdure: CommandLine, document: dict[str, Any]) -> str:
    """A run whose process died while it performed its effect."""
    (perdure.folder / "tasks.py").write_text(TASKS)
    (perdure.folder / "pay.json").write_text(json.dumps(document))
    perdure("run", "pay.json", "--load", "tasks.py", code=-9)
    run = perdure.here("ps", "--json").json[0]["id"]
    assert isinstance(run, str)
    return run


def charges(perdure: CommandLine) -> int:
    return len((perdure.folder / "charged").read_text().splitlines())


EVERY_LANGUAGE = pytest.mark.parametrize(
    "document",
    [flow(True), flow(True, around="flow"), playbook(True), story(True)],
    ids=["step", "flow", "pb", "story"],
)


@EVERY_LANGUAGE
def test_an_effect_is_held_in_every_language_until_somebody_settles_it(
    perdure: CommandLine, document: dict[str, Any]
) -> None:
    run = killed(perdure, document)
    resumed = perdure.start("resume", run, "--load", "tasks.py")
    resumed.hear("somebody to settle the effect")
    (effect,) = perdure.here("effects", run, "--json").json
    assert (effect["name"], effect["state"], effect["held"]) == ("charge", "in_doubt", True)
    assert "somebody to settle the effect" in perdure.here("show", run).out
    done = perdure("settle", run, "charge", "--done", '{"receipt": 9}', "--by", "Ada", "--json")
    assert done.json["recorded"] is True
    resumed.end()
    if perdure.row(run)["status"] not in ("succeeded",):  # nothing else kept the process alive
        perdure("resume", run, "--load", "tasks.py")

    assert receipt(perdure.here("show", run, "--json").json) == 9
    assert charges(perdure) == 1
    if perdure.row(run)["language"] == "story":
        told_of = {event["event_type"] for event in perdure.here("history", run, "--json").json}
        assert {"step.held", "effect.settled"} <= told_of
    listed = perdure.here("effects", run).out
    assert "completed" in listed and "settled by Ada" in listed


def test_an_effect_settled_as_not_done_is_performed_again(perdure: CommandLine) -> None:
    run = killed(perdure, flow(True))
    (perdure.folder / "safe").touch()
    perdure("settle", run, "charge", "--not-done")
    done = perdure("resume", run, "--load", "tasks.py", "--json")

    assert done.json == {"type": "success", "value": {"receipt": 7}}
    assert charges(perdure) == 2


def test_without_holding_it_is_performed_again_or_taken_from_who_settled_it(perdure: CommandLine) -> None:
    run = killed(perdure, flow(False))
    shown = perdure("effects", run)
    assert "in_doubt" in shown.out
    perdure("settle", run, "/0:pay#charge", "--done", '{"receipt": 1}')
    assert perdure("resume", run, "--load", "tasks.py", "--json").json["value"] == {"receipt": 1}
    assert charges(perdure) == 1


def test_what_cannot_be_settled_is_said_with_an_exit_code(perdure: CommandLine) -> None:
    run = killed(perdure, flow(False))
    assert perdure("settle", run, "refund", "--not-done", "--json", code=8).error["code"] == "EFFECT-NOT-FOUND"
    assert perdure("settle", "nobody", "charge", "--not-done", "--json", code=8).error["code"] == "RUN-NOT-FOUND"
    assert perdure("effects", "nobody", "--json", code=8).error["code"] == "RUN-NOT-FOUND"
    perdure("settle", run, "charge", code=2)
    perdure("settle", run, "charge", "--done", "{", code=2)
    (perdure.folder / "safe").touch()
    perdure("resume", run, "--load", "tasks.py")
    assert perdure("settle", run, "charge", "--not-done", "--json", code=9).error["code"] == "CONFLICT"


def test_an_effect_that_says_it_is_in_doubt_is_held_at_once(perdure: CommandLine) -> None:
    (perdure.folder / "pay.json").write_text(json.dumps(flow(True)))
    (perdure.folder / "tasks.py").write_text(
        TASKS.replace("os.kill(os.getpid(), signal.SIGKILL)", "raise perdure.EffectInDoubt('no answer')")
    )
    live = perdure.start("run", "pay.json", "--load", "tasks.py", "--json")
    run = live.run
    live.hear("somebody to settle the effect")
    assert perdure("settle", run, "charge", "--done", '{"receipt": 9}', "--json").json["live"] is True
    done = live.end()

    assert (done.code, done.json) == (0, {"type": "success", "value": {"receipt": 9}})
    assert charges(perdure) == 1


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({**playbook(False), "executor": {"spec": {"effects_in_doubt": "wait"}}}, "executor.spec.effects_in_doubt"),
        (
            story(True)
            | {"spec": {"steps": [{**story(False)["spec"]["steps"][0], "execution": {"effectsInDoubt": 1}}]}},
            "effectsInDoubt",
        ),
    ],
)
def test_a_word_that_says_neither_hold_nor_repeat_is_a_finding(
    perdure: CommandLine, document: dict[str, Any], where: str
) -> None:
    (perdure.folder / "tasks.py").write_text(TASKS)
    (perdure.folder / "pay.json").write_text(json.dumps(document))

    assert where in perdure("check", "pay.json", "--load", "tasks.py", code=7).out
