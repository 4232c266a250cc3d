"""Simulate a document in a test: many runs with faults drawn from a seed, or one failing schedule again.

def test_orders_survive_everything():
    simulate("flows/order.json", runs=200)

def test_what_failed_in_march():
    simulate("flows/order.json", trace="flows/order.failing.json")
"""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from perdure.services import SIMULATION

ALL = ("crash", "late", "slow", "fail", "duplicate")


class SimulationFailed(AssertionError):
    """Something that must always hold did not; `schedule` is the shortest schedule that shows it, as a file's text."""

    def __init__(self, message: str, schedule: bytes) -> None:
        super().__init__(message)
        self.schedule = schedule


def simulate(
    document: str | Path,
    input: Any = None,
    *,
    runs: int = 100,
    seed: int = 0,
    faults: Sequence[str] = ALL,
    scenario: str = "",
    mocks: Mapping[str, Any] | None = None,
    trace: str | Path | None = None,
) -> dict[str, Any]:
    """What the runs have shown, as `perdure sim --json` prints it. Raises `SimulationFailed`.

    Mocks, input and messages are those of a scenario beside the document; `input` and `mocks` (as in a file of
    scenarios) come before them. `trace`: replay this file instead, with the scenario and input that it was written for.
    """
    service = import_module(SIMULATION)
    prepared = service.prepare(
        str(document),
        input=input,
        has_input=input is not None,
        faults=faults,
        scenario=scenario,
        mocks=service.read_mocks(mocks or {}),
        trace=None if trace is None else Path(trace),
    )
    simulation = asyncio.run(prepared)
    report = simulation.report()
    if trace is not None:
        failing = simulation.replay(Path(trace))
        report.add(failing)
    else:
        for number in range(seed, seed + runs):
            report.add(simulation.simulator.run(number))
        if report.failing:
            failing = simulation.simulator.shrunk(report.failing[0])
    if report.failing:
        violation = failing.violation or report.failing[0].violation
        steps = "".join(f"\n  {fault.describe()}" for fault in failing.faults)
        message = f"{document}, seed {failing.seed}: {violation.message} ({violation.invariant}){steps}"
        raise SimulationFailed(message, simulation.to_file(failing).to_json() if failing.violation else b"")
    facts: dict[str, Any] = report.facts()
    return facts
