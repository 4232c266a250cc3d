"""`sim`: many runs with faults, a failing one as a file, and the same from pytest."""

import json
from typing import Any

import pytest
from tests.cli.commandline import CommandLine

from perdure.testing import SimulationFailed, simulate

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: asks}
spec:
  steps:
    - {name: work, ref: {name: deploy}}
    - {name: approval, type: gate, needs: [work]}
"""


def test_a_failing_run_is_written_and_replayed(perdure: CommandLine) -> None:
    (perdure.folder / "asks.yaml").write_text(STORY)
    done = perdure.here("sim", "asks.yaml", "--runs", "5", "--json", code=3).json

    assert (done["runs"], done["failed"], done["ends"]) == (5, 5, {"waiting": 5})
    assert done["shrunk"]["violation"]["invariant"] == "ends" and done["shrunk"]["faults"] == []
    assert done["unforeseen"] == [] and done["findings"][0]["kind"] == "no-sender"
    again = perdure.here("sim", "asks.yaml", "--trace", "asks.failing.json", code=3)
    assert "violated: every run ends" in again.out and "gate 'approval'" in again.out
    with pytest.raises(SimulationFailed, match="approval") as raised:
        simulate(perdure.folder / "asks.yaml", trace=perdure.folder / "asks.failing.json")
    assert b'"invariant": "ends"' in raised.value.schedule

    (perdure.folder / "asks.test.yaml").write_text("{actions: [{advance: 1h}, {approve: approval}]}")
    good = perdure.here("sim", "asks.yaml", "--runs", "20", "--seed", "4", "--faults", "crash,slow")
    assert "20 runs" in good.out and "nothing that must always hold was violated" in good.out
    facts = simulate(perdure.folder / "asks.yaml", runs=10, mocks={"deploy": {"answer": {}}})
    assert facts["ends"] == {"succeeded": 10} and facts["coverage"]["steps"]["percent"] == 100.0
    assert "--runs must be" in perdure.here("sim", "asks.yaml", "--runs", "0", code=2).err
    assert "'quake' is not a fault" in perdure.here("sim", "asks.yaml", "--faults", "quake", code=2).err
    (perdure.folder / "no.json").write_text("[]")
    refused = perdure.here("sim", "asks.yaml", "--trace", "no.json", "--json", code=2).json
    assert refused["error"]["code"] == "BAD-SCHEDULE"


def test_the_counter_example_of_a_finding_is_replayed(perdure: CommandLine) -> None:
    (perdure.folder / "asks.yaml").write_text(STORY)
    finding = {"message": "x", "trace": [{"step": "work", "choice": "fails"}]}
    (perdure.folder / "finding.json").write_text(json.dumps(finding))
    done = perdure.here("sim", "asks.yaml", "--trace", "finding.json", "--json").json

    assert done["status"] == "failed" and done["violation"] is None
    (perdure.folder / "trace.json").write_text(json.dumps(finding["trace"]))  # the trace alone
    assert perdure.here("sim", "asks.yaml", "--trace", "trace.json", "--json").json == done


def test_in_a_counter_example_nobody_ends_the_last_wait(perdure: CommandLine) -> None:
    """ANA-003: a scenario that approves the gate does not turn the example into a run that ends."""
    (perdure.folder / "asks.yaml").write_text(STORY)
    (perdure.folder / "asks.test.yaml").write_text("actions: [{approve: {step: approval}}]\n")
    checked = perdure.here("check", "asks.yaml", "--json").json
    (perdure.folder / "checked.json").write_text(json.dumps(checked))

    assert checked["findings"][0]["trace"][-1] == {"step": "approval", "choice": "waits"}
    assert "succeeded" in perdure.here("sim", "asks.yaml", "--runs", "1", "--faults", "").out
    done = perdure.here("sim", "asks.yaml", "--trace", "checked.json", "--json", code=3).json
    assert (done["violation"]["invariant"], done["parted_at"]) == ("ends", None)


def test_a_finding_about_no_run_is_not_replayed(perdure: CommandLine) -> None:
    """A dead step has no counter-example: what would be played says nothing about it."""
    (perdure.folder / "asks.yaml").write_text(STORY)
    answers: list[dict[str, Any]] = [{"kind": "dead-step", "trace": []}, {"findings": [{"trace": []}]}]
    for data in answers:
        (perdure.folder / "finding.json").write_text(json.dumps(data))
        assert "trace" in perdure.here("sim", "asks.yaml", "--trace", "finding.json", code=2).err


def test_a_schedule_is_replayed_with_its_scenario_and_input(perdure: CommandLine) -> None:
    """ANA-011: what has failed fails again, from the file alone."""
    asks = STORY.replace("needs: [work]", 'needs: [work], if: "{{ eq inputs.n 7 }}"')
    (perdure.folder / "asks.yaml").write_text(asks)
    (perdure.folder / "asks.test.yaml").write_text("scenarios: [{name: with more, input: {n: 7}}, {name: with}]")
    replay = ("sim", "asks.yaml", "--trace", "asks.failing.json")

    perdure.here("sim", "asks.yaml", "--runs", "2", "--scenario", "more", code=3)
    assert "gate 'approval'" in perdure.here(*replay, code=3).out
    perdure.here("sim", "asks.yaml", "--runs", "2", "--scenario", "with", "--input", '{"n": 7}', code=3)
    assert "gate 'approval'" in perdure.here(*replay, code=3).out
    assert "succeeded" in perdure.here(*replay, "--input", '{"n": 1}').out
    with pytest.raises(SimulationFailed, match="approval"):
        simulate(perdure.folder / "asks.yaml", trace=perdure.folder / "asks.failing.json")


def test_a_counter_example_is_drawn_and_replayed(perdure: CommandLine) -> None:
    """ANA-003: printed, drawn in the graph, and replayable; where data decide otherwise, that is said."""
    steps = {
        "a": {"action": "Pass", "next": "m"},
        "m": {
            "action": "Match",
            "cases": [{"when": "{{ frame.input.more }}", "next": "b"}],
            "default": {"next": "done"},
        },
        "b": {"action": "Pass", "next": "m"},
        "done": {"action": "Return"},
    }
    flow = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": steps}
    (perdure.folder / "turns.json").write_text(json.dumps(flow))
    checked = perdure.here("check", "turns.json", "--json").json
    drawing = ("graph", "turns.json", "--finding", "1")
    drawn = {form: perdure.here(*drawing, f"--{form}") for form in ("text", "svg", "dot")}
    facts = perdure.here(*drawing, "--json").json
    (perdure.folder / "checked.json").write_text(json.dumps(checked))
    parted = perdure.here("sim", "turns.json", "--trace", "checked.json", "--input", '{"more": false}', "--json").json
    refused = perdure.here("graph", "turns.json", "--finding", "2", code=2)

    (finding,) = checked["findings"]
    assert (finding["kind"], finding["step"]) == ("endless-loop", "m")
    assert [entry["step"] for entry in finding["trace"]] == ["a", "m", "b"]
    assert "m · Match  [endless-loop (may); 2: frame.input.more; 4: again]" in drawn["text"].out
    assert "b · Pass  [3: goes on]\n    --> m *" in drawn["text"].out
    assert "this can go on for ever" in drawn["text"].err and drawn["svg"].out.startswith("<svg")
    assert {edge["to"] for edge in facts["edges"] if edge["taken"]} == {"/steps/a", "/steps/m", "/steps/b"}
    assert facts["finding"] == {name: value for name, value in finding.items() if name != "file"}
    assert parted["parted_at"] == "b" and parted["status"] == "succeeded"
    assert "there is no finding 2" in refused.err
