"""`sim`: many runs with faults, a failing one as a file, and the same from pytest."""

import json

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
