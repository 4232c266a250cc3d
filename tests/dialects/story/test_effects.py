"""Effects and identities of Stories on the real engine: what a worker's function sees, and what is shown of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commandline import CommandLine

ENGRAMS = """
import perdure

@perdure.engram("pay")
def pay(inputs, context):
    context.emit_signal("progress.half", {"n": 1})
    context.emit_signal("progress.full", 2)
    context.effect_once("charge", lambda: 7)
    context.effect_once("mail", lambda: {"id": 7})
    try:
        context.effect_once("declined", lambda: 1 / 0)
    except ZeroDivisionError:
        pass
    return {"replay": context.replay_signals(1)}

@perdure.engram("spoil")
def spoil(inputs, context):
    def charge():
        with open("charged", "a") as file:
            file.write("charged\\n")
        return {"socket": object()}
    return context.effect_once("charge", charge)

@perdure.engram("plain")
def plain(inputs, context):
    return {"key": context.idempotency_key}
"""


@pytest.fixture
def perdure(tmp_path: Path) -> CommandLine:
    (tmp_path / "engrams.py").write_text(ENGRAMS)
    return CommandLine(tmp_path)


def told(perdure: CommandLine, *steps: dict[str, Any], code: int = 0) -> dict[str, Any]:
    document = {
        "apiVersion": "bubustack.io/v1alpha1",
        "kind": "Story",
        "metadata": {"name": "tale"},
        "spec": {"steps": list(steps)},
    }
    (perdure.folder / "tale.json").write_text(json.dumps(document))
    shown: dict[str, Any] = perdure("run", "tale.json", "--load", "engrams.py", "--json", code=code).json
    return shown


def test_a_claim_tells_its_times_and_is_in_order_by_our_own_check(perdure: CommandLine) -> None:
    """STY-052, STY-167, STY-170."""
    shown = told(perdure, {"name": "pay", "ref": {"name": "pay"}})
    claims = {effect_claim["spec"]["effectKey"]: effect_claim for effect_claim in shown["effectClaims"]}
    charge, declined = claims["charge"]["spec"], claims["declined"]["spec"]

    assert charge["acquireTime"] <= charge["renewTime"] <= charge["completedAt"]
    assert (charge["leaseTransitions"], charge["completionStatus"]) == (0, "completed")
    assert claims["mail"]["spec"]["details"] == {"id": 7}
    assert declined["completionStatus"] == "released"
    assert not {"acquireTime", "renewTime", "completedAt", "holderIdentity"} & set(declined)
    assert [claim["status"]["phase"] for claim in claims.values()] == ["Completed", "Completed", "Released"]
    for name, claim in claims.items():
        (perdure.folder / f"{name}.json").write_text(json.dumps(claim))
    perdure.here("check", *(f"{name}.json" for name in claims))
    claims["charge"]["spec"]["stepRunRef"]["uid"] = "another life"
    (perdure.folder / "charge.json").write_text(json.dumps(claims["charge"]))
    assert "is not the one with uid" in perdure.here("check", "charge.json", code=7).out


def test_replayed_signals_are_data(perdure: CommandLine) -> None:
    """STY-178."""
    shown = told(perdure, {"name": "pay", "ref": {"name": "pay"}})
    replay = shown["stepRuns"]["pay"]["status"]["output"]["replay"]

    assert replay["firstRetainedSeq"] == 1
    assert [(event["seq"], event["key"], event["payload"]) for event in replay["events"]] == [(2, "progress.full", 2)]


def test_an_unfit_result_fails_the_step_and_leaves_its_effect_performed_once(perdure: CommandLine) -> None:
    """STY-282: also over the retries of the step."""
    retried = {"retry": {"maxRetries": 2, "delay": "10ms"}}
    shown = told(perdure, {"name": "a", "ref": {"name": "spoil"}, "execution": retried}, code=3)
    (claim,) = shown["effectClaims"]

    assert (perdure.folder / "charged").read_text() == "charged\n"
    assert claim["status"]["phase"] == "Completed"
    assert "unfit" in claim["spec"]["details"]
    assert "no JSON form" in shown["stepRuns"]["a"]["status"]["error"]["message"]
    (recorded,) = shown["stepRuns"]["a"]["status"]["effects"]
    assert (recorded["key"], recorded["status"]) == ("charge", "succeeded")


def test_keys_from_absent_data_are_told_as_events(perdure: CommandLine) -> None:
    """STY-280."""
    shown = told(
        perdure,
        {
            "name": "a",
            "ref": {"name": "plain"},
            "idempotencyKeyTemplate": "order-{{ inputs.none }}",
            "execution": {"cache": {"key": "order-{{ inputs.none }}"}},
        },
    )
    name = shown["metadata"]["name"]
    events = perdure.here("history", name, "--json").json
    noted = {event["event_type"]: json.dumps(event) for event in events if event["event_type"].endswith("KeyFailed")}

    assert set(noted) == {"IdempotencyKeyFailed", "CacheKeyFailed"}
    assert all("'none', which is absent" in message for message in noted.values())
    assert "<no value>" not in json.dumps(events).replace("{{ inputs.none }}", "")
    assert shown["stepRuns"]["a"]["status"]["output"]["key"].endswith("/step/a")
