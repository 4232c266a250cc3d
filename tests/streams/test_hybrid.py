"""Hybrid steps: an Engram that is a job has a StepRun for each packet of a stream."""

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.stores.protocol import RunFilter
from tests.streams.topologies import SEEN, Played, add_workers, played, states, story, stream_of, transport

READY: list[bool] = []


@pytest.fixture(autouse=True)
def workers() -> None:
    add_workers()
    SEEN.clear()
    if READY:
        return
    READY.append(True)

    @perdure.engram("double", retry={"recommendedMaxRetries": 2, "recommendedBaseDelay": "10ms"})
    def double(inputs: Any, context: Any) -> Any:
        """Fails the first time it is asked for 1, and always for 2."""
        number = inputs.get("n", inputs.get("fixed"))
        SEEN["double"].append(number)
        if number == 1 and SEEN["double"].count(1) == 1:
            raise perdure.EngramError("not yet", retryable=True)
        if number == 2:
            raise perdure.EngramError("never", retryable=False)
        return {"twice": number * 2, "said": inputs.get("said", "")}


async def step_runs(run: Played) -> list[Any]:
    """The StepRuns of the packets."""
    rows = await run.engine.search(RunFilter(parent=run.id))
    return [step_run for row in rows for step_run in (await run.engine.show(row.id))["stepRuns"].values()]


@pytest.mark.parametrize("replay", ["none", "durable", "nats"])
async def test_a_job_has_a_step_run_for_each_packet(tmp_path: Path, replay: str) -> None:
    """STR-020 STR-067 STR-140: its output is the step's payload, it is retried as in batch, and a failure is an error
    message. What packets bring is data, not a template.
    """
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 4, ids: p}}
  - {name: twice, ref: {name: double}, needs: [source],
     runtime: {n: '{{ packet.payload.n }}', said: '{{ printf "{%s inputs }}" "{" }}'}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [twice]}
  policy: {execution: {realtime: {ttlSecondsAfterFinished: 3600}}}
"""
    async with played(tmp_path, story(steps, transport(replay))) as run:
        shown = await run.end(60)
        runs = await step_runs(run)

    template = "{{ inputs }}"
    assert [kind for kind, *_ in SEEN["sink"]] == ["data", "data", "error", "data"], "the order of packets is kept"
    assert [payload for kind, payload, *_ in SEEN["sink"] if kind == "data"] == [
        {"twice": 2 * n, "said": template} for n in (0, 1, 3)
    ]
    assert "failed step: twice" in SEEN["sink"][2][1]["message"]
    assert SEEN["sink"][2][1]["details"]["subRun"] == f"{shown['metadata']['name']}-twice-p-2"
    assert SEEN["double"].count(1) == 2
    assert (shown["status"]["phase"], states(shown)["twice"]) == ("Succeeded", "Succeeded")
    assert "twice" not in shown["stepRuns"]
    assert stream_of(shown, "twice")["errors"] == 1 and stream_of(shown, "twice")["delivered"] == 4
    assert len(runs) == 4
    for story_run in runs:
        assert story_run["metadata"]["labels"]["bubustack.io/hybrid"] == "true"
        assert story_run["metadata"]["annotations"]["bubustack.io/upstream-step"] == "source"
        assert story_run["spec"]["stepId"] == "twice"
    name = shown["metadata"]["name"]
    assert {run["metadata"]["name"] for run in runs} == {f"{name}-twice-p-{number}" for number in range(4)}
    assert {run["status"]["phase"] for run in runs} == {"Succeeded", "Failed"}


async def test_without_inputs_a_job_gets_its_with(tmp_path: Path) -> None:
    """STR-067: `with` reads the inputs of the run; inputs that are no object, or too large, are an error message."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 1, stays: true}}
  - {name: twice, ref: {name: double}, needs: [source], with: {fixed: '{{ inputs.number }}'}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [twice]}
"""
    async with played(tmp_path, story(steps), {"number": 21}) as run:
        await run.until(lambda shown: len(SEEN["sink"]) == 1)
        await run.engine.publish(run.id, "twice", inputs=[1])
        await run.until(lambda shown: len(SEEN["sink"]) == 2)
        await run.engine.publish(run.id, "twice", inputs={"said": "x" * 1_100_000})
        await run.until(lambda shown: len(SEEN["sink"]) == 3)
        await run.engine.cancel(run.id)
        await run.end()

    assert SEEN["sink"][0][1] == {"twice": 42, "said": ""}
    assert [kind for kind, *_ in SEEN["sink"]] == ["data", "error", "error"]
    assert "must be an object" in SEEN["sink"][1][1]["message"]
    assert "1048576 bytes" in SEEN["sink"][2][1]["message"]
