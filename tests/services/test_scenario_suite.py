"""Scenarios of all three languages on the real engine, and the same with crashes (ANA-012, ANA-013)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.analysis.verdicts import DocumentCoverage, ScenarioVerdict
from perdure.kernel.json_values import jsontext
from perdure.providers.registry import shared
from perdure.services.scenarios.suite import BadScenario, NoScenarios, find_files, play_files, read_files


@pytest.fixture(autouse=True)
def no_providers_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the same name would be called, or would refuse the arguments."""
    monkeypatch.setattr(shared, "_providers", {})


CALL = "mwl:provider.call/perdure/{}/v1"
RETRY = {
    "provider": "mwl:provider.middleware/mwl/retry/v1",
    "onEntry": {"with": {"policies": [{"match": {"codes": ["*"]}, "attempts": 2, "backoff": {"initial": "PT1H"}}]}},
}
FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "charge",
    "steps": {
        "charge": {
            "action": "Call",
            "call": {"provider": CALL.format("charge"), "with": {"amount": "{{ step.input.amount }}"}},
            "middleware": [RETRY],
            "next": "send",
        },
        "send": {"action": "Call", "call": {"provider": CALL.format("send")}, "next": "done"},
        "done": {"action": "Return"},
    },
}
FLOW_TESTS = """
mocks: {send: {answer: sent, after: 2s}}
scenarios:
  - name: the second attempt is good
    input: {amount: 5}
    mocks: {charge: [{failure: {code: Busy, retryable: true}}, {answer: {receipt: 7}, after: 1s}]}
    actions:
      - expect: {status: waiting, calls: {charge: 1}}
    expect:
      result: sent
      steps: {charge: {status: done, attempts: 2}, send: done}
      calls: {charge: [{amount: 5}, {amount: 5}], send: 1}
      events: [RunStarted, {event: TaskScheduled, provider: send}, RunEnded]
  - name: two failures are the end
    input: {amount: 5}
    mocks: {charge: {failure: Busy}}
    expect: {status: failed, error: Provider.Middleware.Retry.Exhausted, steps: {send: never}}
"""
STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: release}
spec:
  steps:
    - {name: approval, type: gate}
    - {name: ship, needs: [approval], ref: {name: deploy}, with: {version: "{{ inputs.version }}"}}
  compensations:
    - {name: undo, ref: {name: rollback}}
  output: {url: "{{ steps.ship.output.url }}"}
"""
STORY_TESTS = """
input: {version: "1.2"}
mocks: {deploy: {answer: {url: u}, after: 10s}, rollback: {answer: {}}}
scenarios:
  - name: approved
    actions: [{expect: {status: waiting, waits_for: [approval]}}, crash, {approve: {step: approval, by: Ada}}]
    expect: {result: {url: u}, steps: {ship: done, undo: skipped}, calls: {deploy: [{version: "1.2"}]}}
  - name: rejected
    actions: [{reject: approval}]
    expect: {status: failed, calls: {deploy: 0}, steps: {ship: skipped}}
"""
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: nightly, path: nightly}
workflow:
  - step: count
    tool:
      kind: stock
      args: {shelf: "{{ workload.shelf }}"}
      spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {count: "{{ outcome.result.count }}"}}}}]}}
    next: {arcs: [{step: order, when: "{{ event.name == 'step.done' }}"}]}
  - step: order
    spec: {policy: {admit: {rules: [{when: "{{ ctx.approved }}", then: {allow: true}}]}}}
    tool: {kind: buy, args: {count: "{{ ctx.count }}"}}
"""
PLAYBOOK_TESTS = """
name: it orders what was counted
input: {shelf: A12}
mocks: {stock: {answer: {count: 3}}}
step_mocks: {order: {answer: {ordered: true}, after: 3s}}
actions: [{expect: {calls: {stock: 1, buy: 0}}}, {patch: {approved: true}}]
expect: {status: succeeded, calls: {buy: [{count: 3}]}, events: [playbook.started, playbook.finished]}
"""


def _write(folder: Path, **files: Any) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(text.encode() if isinstance(text, str) else jsontext.encode(text))


def _test(place: Path, **asked: Any) -> tuple[list[ScenarioVerdict], list[DocumentCoverage]]:
    return asyncio.run(play_files(read_files(find_files(str(place))), **asked))


def test_scenarios_of_all_languages_pass_with_a_crash_at_every_commit(tmp_path: Path) -> None:
    _write(tmp_path, order__json=FLOW, order__test__yaml=FLOW_TESTS)
    _write(tmp_path, release__yaml=STORY, release__test__yaml=STORY_TESTS)
    # A tool kind that only a mock of its step answers has to be declared.
    _write(
        tmp_path,
        nightly__yaml=PLAYBOOK,
        nightly__test__yaml=PLAYBOOK_TESTS.replace("}}\nstep", "}, buy: {answer: 0}}\nstep"),
    )
    verdicts, coverages = _test(tmp_path, crashes=True)

    assert [verdict.differences for verdict in verdicts] == [[]] * 5
    assert all(verdict.crashes == 2 * verdict.commits > 0 for verdict in verdicts)
    shares = {Path(coverage.document).name: str(coverage.coverage.steps) for coverage in coverages}
    assert shares == {"order.json": "3 of 3", "release.yaml": "3 of 3", "nightly.yaml": "2 of 2"}


MEMORY = """
import perdure

calls = 0

@perdure.provider("remembers")
def remembers() -> int:
    global calls
    calls += 1
    return calls
"""


def test_a_function_that_remembers_is_found_by_a_crash(tmp_path: Path) -> None:
    document = {
        **FLOW,
        "entrypoint": "count",
        "steps": {
            "count": {"action": "Call", "call": {"provider": CALL.format("remembers")}, "next": "done"},
            "done": {"action": "Return"},
        },
    }
    _write(
        tmp_path,
        count__json=document,
        memory__py=MEMORY,
        count__test__yaml="{load: memory.py, expect: {status: succeeded}}",
    )
    (plain,), _ = _test(tmp_path)
    (verdict,), _ = _test(tmp_path, crashes=True)

    assert plain.has_passed
    assert not verdict.has_passed and "result is" in verdict.differences[0] and "crash" in verdict.differences[0]


def test_what_is_not_as_expected_is_said(tmp_path: Path) -> None:
    wrong = "scenarios: [{name: a, input: {amount: 1}, mocks: {charge: {answer: 1}}, expect: {result: other}}]"
    _write(tmp_path, order__json=FLOW, order__test__yaml=wrong + "\nmocks: {send: {answer: sent}}")
    (verdict,), _ = _test(tmp_path)
    assert verdict.differences == ['result is "sent", expected "other"']

    _write(tmp_path, order__test__yaml=wrong)
    (verdict,), _ = _test(tmp_path)
    assert "send" in verdict.differences[0], "nothing is known of it"


def test_what_a_run_recorded_answers_its_tasks(tmp_path: Path) -> None:
    events = [
        {"event": "TaskScheduled", "task": 1, "path": "/0:charge"},
        {"event": "TaskEnded", "task": 1, "outcome": {"type": "Succeeded", "value": 1}},
        {"event": "TaskScheduled", "task": 2, "path": "/1:send"},
        {"event": "TaskEnded", "task": 2, "outcome": {"type": "Succeeded", "value": "as recorded"}},
    ]
    mocks = "mocks: {charge: {answer: 0}, send: {answer: 0}}"
    test = f"{{input: {{amount: 1}}, recorded: run.json, {mocks}, expect: {{result: as recorded}}}}"
    _write(tmp_path, order__json=FLOW, order__test__yaml=test, run__json=events)
    (verdict,), _ = _test(tmp_path)

    assert verdict.differences == []


def test_a_place_without_scenarios_and_a_wrong_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NoScenarios, match="contains no scenarios"):
        find_files(str(tmp_path))
    _write(tmp_path, order__json=FLOW)
    with pytest.raises(NoScenarios, match=r"expected a file order\.test\.yaml"):
        find_files(str(tmp_path / "order.json"))
    _write(tmp_path, order__test__yaml="expct: 1", lost__test__yaml="expect: {}")
    with pytest.raises(BadScenario) as raised:
        read_files(find_files(str(tmp_path)))
    assert "order.test.yaml:1:1: error: 'expct' is not known here" in str(raised.value)
    assert "lost.test.yaml:1:1: error: its document is not there" in str(raised.value)
