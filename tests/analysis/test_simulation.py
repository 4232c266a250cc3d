"""Simulated runs of documents: faults drawn from a seed, what must always hold, shrinking (ANA-010, ANA-011)."""

import asyncio
from collections.abc import Sequence

import pytest

from perdure.analysis.fault_schedules import FAULTS, ScheduleFile, SimulatedFault, read_schedule, shrink
from perdure.analysis.mocks import Mock, MockAnswer, MockedCall, Mocks
from perdure.analysis.simulated_world import Subject
from perdure.analysis.simulation import SimulationReport, Simulator
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Succeeded
from perdure.services.scenarios.mocked_tasks import scenario_languages

STEPS = 10
_CALL = {"provider": "mwl:provider.call/perdure/job/v1"}
FLOW = jsontext.encode(
    {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "s0",
        "steps": {
            **{f"s{n}": {"action": "Call", "call": _CALL, "next": f"s{n + 1}"} for n in range(STEPS)},
            f"s{STEPS}": {"action": "Return"},
        },
    }
)
STORY = b"""
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: ten}
spec:
  steps:
""" + "".join(
    f"    - {{name: s{n}, ref: {{name: job}}, needs: [{f's{n - 1}' if n else ''}]}}\n" for n in range(STEPS)
).encode()
STORY += b"  compensations:\n    - {name: undo, ref: {name: job}}\n"
_HEAD = b"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: ten, path: ten}\nworkflow:\n"
PLAYBOOK = (
    _HEAD
    + "".join(
        f"  - {{step: s{n}, tool: {{kind: job}}, next: {{arcs: [{{step: s{n + 1}}}]}}}}\n" for n in range(STEPS - 1)
    ).encode()
    + f"  - {{step: s{STEPS - 1}, tool: {{kind: job}}}}\n".encode()
)
STUCK = (
    _HEAD
    + b"""
  - step: first
    tool: {kind: job}
    next: {arcs: [{step: second}]}
  - step: second
    tool: {kind: job}
    next:
      arcs:
        - {step: third, when: "{{ event.name == 'step.done' }}"}
        - {step: help, when: "{{ event.name == 'step.failed' }}"}
  - step: third
    tool: {kind: job}
  - step: help
    spec: {policy: {admit: {rules: [{when: "{{ ctx.helped }}", then: {allow: true}}]}}}
    tool: {kind: job}
"""
)


class Forgetful(Mocks):
    """Stands for a provider that is not idempotent: another answer each time it is asked."""

    asked = 0

    def answer(self, call: MockedCall) -> MockAnswer:
        self.asked += 1
        return MockAnswer(Succeeded(jsontext.encode(self.asked)))


def _simulator(text: bytes, faults: Sequence[str] = FAULTS, mocks: type[Mocks] = Mocks) -> Simulator:
    spoken = scenario_languages([], has_everything=True)
    validator = DocumentValidator(spoken)
    language = validator.language_of(text)
    assert language is not None
    validated = asyncio.run(validator.validate(language, text))
    assert validated.program is not None, validated.problems
    answers = {"job": Mock((MockAnswer(Succeeded(b'{"n":1}')),))}
    subject = Subject(language.name, validated.pinned, {})
    return Simulator(subject, spoken, lambda seed: mocks(answers, seed=seed, has_default=True), faults)


@pytest.mark.parametrize("text", [FLOW, STORY, PLAYBOOK], ids=["flow", "story", "playbook"])
def test_what_must_always_hold_does_in_every_language(text: bytes) -> None:
    simulator = _simulator(text)
    report = SimulationReport(simulator.graph)
    for seed in range(60):
        report.add(simulator.run(seed))
    again, first = simulator.run(3), simulator.run(3)

    assert [run.violation for run in report.failing] == []
    assert report.crashes > 10 and len(report.seconds) == 60 and report.quantiles()["p50"] > 1
    assert report.coverage is not None and report.coverage.steps.covered >= STEPS
    assert (again.faults, again.outcome, again.seconds) == (first.faults, first.outcome, first.seconds)


def test_without_faults_nothing_but_the_time_of_tasks_is_drawn() -> None:
    simulated = _simulator(FLOW, ()).run(5)

    assert {fault.kind for fault in simulated.faults} == {"delay"} and len(simulated.faults) == STEPS
    assert (simulated.status, simulated.crashes) == ("succeeded", 0)


def test_a_provider_that_is_not_idempotent_is_found_and_shrunk_to_one_fault() -> None:
    simulator = _simulator(FLOW, ("crash", "late"), Forgetful)
    failing = next(run for seed in range(50) if (run := simulator.run(seed)).violation is not None)
    shrunk = simulator.shrunk(failing)

    assert failing.violation is not None and failing.violation.invariant == "same-result"
    assert shrunk.violation is not None and shrunk.violation.invariant == "same-result"
    assert len(shrunk.faults) == 1 and shrunk.faults[0].kind in ("crash", "late") and len(failing.faults) > STEPS


def test_a_run_that_stands_still_after_a_failure_is_shrunk_to_that_failure() -> None:
    simulator = _simulator(STUCK)
    failing = next(run for seed in range(100) if (run := simulator.run(seed)).violation is not None)
    shrunk = simulator.shrunk(failing)
    replayed = simulator.run(shrunk.seed, read_schedule(ScheduleFile(faults=shrunk.faults).to_json()).faults)

    assert shrunk.violation is not None and shrunk.violation.invariant == "ends"
    assert [(fault.kind, "second" in fault.task) for fault in shrunk.faults] == [("fail", True)]
    assert replayed.violation == shrunk.violation and replayed.outcome == shrunk.outcome


def test_no_fault_of_a_shrunk_schedule_can_be_left_out() -> None:
    faults = [SimulatedFault("fail", f"t{number}") for number in range(40)]
    needed = {faults[3], faults[17], faults[31]}

    assert shrink(faults, lambda kept: needed <= set(kept)) == [faults[3], faults[17], faults[31]]
    assert shrink(faults, lambda kept: True) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a schedule"),
        (b'{"format": "perdure-schedule-1", "seed": "x"}', "not a schedule: Expected `int`"),
        (b'{"format": "perdure-schedule-1", "faults": [{"kind": "quake"}]}', "unknown fault: quake"),
    ],
)
def test_a_file_that_is_no_schedule_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_schedule(text)
