"""What survives the death of the process that owns a topology: packets, order, counters, hooks."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values.values import RunId
from perdure.services.story.engrams.registry import shared_engrams
from tests.nats_server import shared_server
from tests.postgres import as_url
from tests.streams.topologies import SEEN, Played, add_workers, apply_nats, states, story, stream_of, transport

SCRIPT = Path(__file__).parent / "killed_topology.py"
NAME = "killed"


async def run_until_killed(store: str, output: Path, count: int, lines: int, address: str = "") -> bool:
    """Start the process, which is killed once so many lines are written; whether it ended before that."""
    command = [sys.executable, str(SCRIPT), store, str(output), str(count), str(lines), *([address] if address else [])]
    process = await asyncio.create_subprocess_exec(*command)
    return await process.wait() == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("count", "kills"), [pytest.param(600, 3, id="some"), pytest.param(10_000, 10, id="all", marks=pytest.mark.deep)]
)
@pytest.mark.parametrize("driver", ["local", "nats"])
async def test_killing_the_owner_loses_nothing(tmp_path: Path, driver: str, count: int, kills: int) -> None:
    """STR-026 STR-062 STR-064 STR-066 STR-110 STR-120 STR-122 STR-131, the first thing to be shown.

    Every packet is done at least once, in order within its partition, without a gap; twice only if it was not
    acknowledged durably when the owner died.
    """
    store, output = f"sqlite:///{tmp_path}/runs.db", tmp_path / "lines"
    address = shared_server().address if driver == "nats" else ""
    for kill in range(kills):
        await run_until_killed(store, output, count, (kill + 1) * count // (kills + 2), address)
    assert await run_until_killed(store, output, count, 1 << 60, address), "the last one ends by itself"

    rows = [tuple(map(int, line.split())) for line in output.read_text().splitlines()]
    assert {number for number, _, _ in rows} == set(range(count))
    by_partition: dict[int, list[tuple[int, int]]] = {}
    for number, partition, sequence in rows:
        seen = by_partition.setdefault(partition, [])
        if all(sequence != earlier for earlier, _ in seen):
            assert not seen or sequence > seen[-1][0], "the first delivery of each packet is in order"
            seen.append((sequence, number))
        else:
            assert (sequence, number) in seen, "a packet that comes again is the same packet"
    for seen in by_partition.values():
        assert [sequence for sequence, _ in seen] == list(range(1, len(seen) + 1)), "no gap"
        assert [number for _, number in seen] == sorted(number for _, number in seen)
    repeated = len(rows) - count
    assert repeated <= kills * 250, f"{repeated} packets came twice"
    async with perdure.Observer(store) as observer:
        (row,) = await observer.search(perdure_filter())
        shown = await observer.show(row.id)
        assert await observer.store.stream_rows(row.id, b"p") == [], "nothing is kept of what was acknowledged"
    assert shown["status"]["phase"] == "Succeeded"
    assert stream_of(shown, "sink")["received"] == count, "counters go on"
    assert int(shown["stepRuns"]["sink"]["metadata"]["annotations"]["runs.bubustack.io/restart-count"]) >= 1


WRITES_DOWN = """
import json, os, signal, sys
path, deadly = sys.argv[1], set(map(int, sys.argv[2].split(",")))
with open(path, "a+") as file:
    file.seek(0)
    written = len(file.readlines())
    for line in sys.stdin:
        message = json.loads(line)
        file.write(f"{message['payload']['n']} {message['envelope']['sequence']}\\n")
        file.flush()
        written += 1
        if written in deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        print(json.dumps({"done": message["messageId"]}), flush=True)
"""

WORKER = """
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: written-down, annotations: {perdure/command: 'COMMAND'}}
spec: {version: 1.0.0, supportedModes: [deployment]}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: written-down}
spec: {mode: deployment, templateRef: {name: written-down}}
"""


@pytest.mark.parametrize(
    ("count", "kills"), [pytest.param(200, 3, id="some"), pytest.param(10_000, 10, id="all", marks=pytest.mark.deep)]
)
@pytest.mark.parametrize("replay", ["memory", "durable", "nats memory", "nats"])
async def test_killing_a_worker_loses_nothing(tmp_path: Path, replay: str, count: int, kills: int) -> None:
    """STR-062 STR-064 STR-065 STR-084 STR-093, the first thing with replay in memory, which survives the worker."""
    add_workers()
    script, output = tmp_path / "worker.py", tmp_path / "lines"
    script.write_text(WRITES_DOWN)
    deadly = [(kill + 1) * count // (kills + 2) for kill in range(kills)]
    command = json.dumps([sys.executable, str(script), str(output), ",".join(map(str, deadly))])
    steps = f"""
  steps:
  - {{name: source, ref: {{name: numbers}}, with: {{count: {count}, ids: n}}}}
  - {{name: sink, ref: {{name: written-down}}, needs: [source], execution: {{retry: {{maxRetries: 2, delay: 10ms}}}}}}
"""
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        await engine.apply([AppliedDocument("worker.yaml", WORKER.replace("COMMAND", command))])
        if "nats" in replay:
            await apply_nats(engine)
        handle = await engine.start(story(steps, transport(replay)), None)
        shown = await Played(engine, handle.id).end(1_000)

    rows = [tuple(map(int, line.split())) for line in output.read_text().splitlines()]
    firsts = list(dict.fromkeys(rows))
    assert firsts == [(number, number + 1) for number in range(count)], "in order, without a gap"
    assert kills <= len(rows) - count <= kills * 200, "only what was not acknowledged came again"
    sink = stream_of(shown, "sink")
    assert (sink["received"], sink["delivered"], sink["acked"]) == (count, count, count)
    assert shown["status"]["phase"] == "Succeeded"


def perdure_filter() -> Any:
    from perdure.stores.protocol import RunFilter

    return RunFilter()


@pytest.mark.parametrize("replay", ["memory", "durable", "nats memory", "nats"])
async def test_another_owner_takes_the_topology_up(tmp_path: Path, replay: str) -> None:
    """STR-026 STR-065 STR-080 STR-120: hooks are not sent again, and what durable replay keeps is there."""
    add_workers()
    SEEN.clear()
    steps = """
  steps:
  - {name: source, ref: {name: add}, with: {by: 1}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [source], if: '{{ ne packet.kind "x" }}'}
  - {name: greet, ref: {name: collect}, with: {into: greet}, if: '{{ eq packet.type "storyrun.ready" }}'}
"""
    store = f"sqlite:///{tmp_path}/runs.db"
    first = perdure.Engine(store)
    await first.__aenter__()
    if "nats" in replay:
        await apply_nats(first)
    handle = await first.start(story(steps, transport(replay)), None)
    run = Played(first, RunId(handle.id))
    await run.until(lambda shown: len(SEEN["greet"]) == 1)
    for number in range(5):
        await first.publish(run.id, "source", {"n": number})
    await run.until(lambda shown: len(SEEN["sink"]) == 5)
    await run.until(lambda shown: stream_of(shown, "sink")["acked"] == 5)
    await first.runtime.die()

    async with perdure.Engine(store) as second:
        run = Played(second, RunId(handle.id))
        shown = await run.until(
            lambda shown: (
                states(shown).get("sink") == "Running"
                and "runs.bubustack.io/restart-count" in shown["stepRuns"]["sink"]["metadata"]["annotations"]
            )
        )
        await second.publish(run.id, "source", {"n": 5})
        await run.until(lambda shown: len(SEEN["sink"]) == 6)
        await second.cancel(run.id)
        shown = await run.end()

    assert [payload["n"] for _, payload, *_ in SEEN["sink"]] == [1, 2, 3, 4, 5, 6]
    assert len(SEEN["greet"]) == 1, "a new hub does not greet twice"
    assert stream_of(shown, "sink")["received"] == 6


@pytest.mark.parametrize("replay", ["durable", "nats"])
async def test_a_new_owner_knows_what_was_joined_and_what_is_open(tmp_path: Path, replay: str) -> None:
    """STR-054 STR-066 STR-110: a late part of a complete join opens no other; parts of an open one are kept."""
    add_workers()
    SEEN.clear()
    steps = """
  steps:
  - {name: left, ref: {name: add}}
  - {name: right, ref: {name: add}}
  - {name: third, ref: {name: add}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [left, right, third]}
"""
    store = f"sqlite:///{tmp_path}/runs.db"
    first = perdure.Engine(store)
    await first.__aenter__()
    if replay == "nats":
        await apply_nats(first)
    handle = await first.start(story(steps, transport(replay, "fanIn: {mode: quorum, quorum: 2}")), None)
    run = Played(first, RunId(handle.id))
    await run.until(lambda shown: set(states(shown).values()) == {"Running"})

    async def send(engine: perdure.Engine, step: str, key: str) -> None:
        await engine.publish(run.id, step, {"n": 1}, metadata={"bubu.join.key": key}, message_id=f"{step}-{key}")

    await send(first, "left", "a")
    await send(first, "right", "a")
    await send(first, "left", "b")
    await run.until(lambda shown: stream_of(shown, "sink")["acked"] == 1 and stream_of(shown, "left")["published"] == 2)
    await first.runtime.die()

    async with perdure.Engine(store) as second:
        run = Played(second, run.id)
        await run.until(lambda shown: "runs.bubustack.io/restart-count" in str(shown["stepRuns"]["sink"]["metadata"]))
        await send(second, "third", "a")
        await send(second, "third", "b")
        await run.until(lambda shown: len(SEEN["sink"]) == 2)
        await second.cancel(run.id)
        shown = await run.end()

    assert [set(payload) for _, payload, *_ in SEEN["sink"]] == [{"left", "right"}, {"left", "third"}]
    assert stream_of(shown, "sink")["received"] == 2, "the late part of the first join counts nowhere"


async def test_durable_replay_works_on_postgresql(postgres_url: str) -> None:
    """STR-066 STR-111: rows of streams are written by the same fenced commits there."""
    add_workers()
    SEEN.clear()
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 30, ids: n}}
  - {name: plus, ref: {name: add}, with: {by: 1}, needs: [source]}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [plus]}
"""
    async with perdure.Engine(as_url(postgres_url)) as engine:
        handle = await engine.start(story(steps, transport("durable")), None)
        run = Played(engine, RunId(handle.id))
        shown = await run.end()
        kept = await engine.store.stream_rows(run.id)

    assert [payload["n"] for _, payload, *_ in SEEN["sink"]] == list(range(1, 31))
    assert shown["status"]["phase"] == "Succeeded" and stream_of(shown, "sink")["acked"] == 30
    assert len(kept) == 1, "only the life that they belong to"


@pytest.mark.parametrize("replay", ["memory", "durable", "nats"])
@pytest.mark.parametrize(
    "strategy", ["rolling", "drain_cutover", pytest.param("blue_green", marks=pytest.mark.sampled(4))]
)
async def test_a_worker_of_a_process_that_ends_finishes_what_it_has_or_stops_at_once(
    tmp_path: Path, strategy: str, replay: str
) -> None:
    """STR-088: with `rolling` what is in hand comes again with the next owner, where it is kept; else it is finished.

    The next owner is another process, so the old workers are always stopped before the new ones start.
    """
    add_workers()
    SEEN.clear()
    if "engram:finishes@1.0.0" not in shared_engrams.streaming:

        @perdure.streaming_engram("finishes")
        async def finishes(config: Any, messages: Any, context: Any) -> None:
            """Holds the first message until it is asked to stop, and is done with it a little later."""
            async for message in messages:
                SEEN["begun"].append(message.payload["n"])
                if len(SEEN["begun"]) == 1:
                    await context.wait_cancelled()
                    for _ in range(10):
                        await asyncio.sleep(0.01)
                SEEN["finished"].append(message.payload["n"])
                await message.done()

    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 3, ids: n, stays: true}}
  - {name: sink, ref: {name: finishes}, needs: [source]}
"""
    store = f"sqlite:///{tmp_path}/runs.db"
    settings = transport(replay, f"lifecycle: {{strategy: {strategy}, drainTimeoutSeconds: 60}}")
    async with perdure.Engine(store) as first:
        if replay == "nats":
            await apply_nats(first)
        handle = await first.start(story(steps, settings), None)
        await Played(first, handle.id).until(lambda shown: len(SEEN["begun"]) == 1 and len(SEEN["published"]) == 1)
    is_finished = strategy != "rolling"
    assert SEEN["finished"] == ([0] if is_finished else []), "before the process has ended"

    async with perdure.Engine(store) as second:
        run = Played(second, RunId(handle.id))
        await run.until(lambda shown: 2 in SEEN["finished"] and states(shown).get("sink") == "Running")
        handoff = (await run.show())["stepRuns"]["sink"]["status"]["handoff"]
        await second.cancel(run.id)
        await run.end()

    assert (handoff["strategy"], handoff["phase"]) == (strategy, "ready")
    if replay == "memory":
        assert SEEN["finished"][-3:] == [0, 1, 2], "what only memory has kept is gone; the source sends it again"
    else:
        assert SEEN["finished"] == [0, 1, 2], "nothing is lost, and what was done does not come again"
        assert SEEN["begun"].count(0) == (1 if is_finished else 2)


async def test_a_process_that_ends_hands_its_topology_over(tmp_path: Path) -> None:
    """STR-026 STR-088: nothing ends with the process; the next one goes on, and `status.handoff` says so."""
    add_workers()
    SEEN.clear()
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 20, ids: n, stays: true}}
  - {name: nap, type: sleep, needs: [source], with: {duration: 1h}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [source]}
  finally: [{name: tidy, ref: {name: echo}}]
"""
    settings = "lifecycle: {strategy: drain_cutover, drainTimeoutSeconds: 1}"
    store = f"sqlite:///{tmp_path}/runs.db"
    async with perdure.Engine(store) as first:
        handle = await first.start(story(steps, transport("durable", settings)), None)
        await Played(first, handle.id).until(lambda shown: len(SEEN["sink"]) == 20)

    async with perdure.Observer(store) as observer:
        between = await observer.show(handle.id)
    assert states(between) == {
        "source": "Paused", "nap": "Running", "sink": "Paused"
    }  # fmt: skip
    assert between["stepRuns"]["sink"]["status"]["handoff"]["phase"] == "draining"
    async with perdure.Engine(store) as second:
        run = Played(second, RunId(handle.id))
        after = await run.until(lambda shown: states(shown).get("sink") == "Running")
        await second.publish(run.id, "sink", {"n": 99})
        await run.until(lambda shown: len(SEEN["sink"]) == 21)
        await second.cancel(run.id)
        shown = await run.end(60)

    handoff = after["stepRuns"]["sink"]["status"]["handoff"]
    assert (handoff["strategy"], handoff["phase"]) == ("drain_cutover", "ready")
    assert [payload["n"] for _, payload, *_ in SEEN["sink"]] == [*range(20), 99], "what was done does not come again"
    assert stream_of(shown, "sink")["received"] == 21 and stream_of(shown, "nap")["received"] == 20
    assert (shown["status"]["phase"], states(shown)["tidy"]) == ("Finished", "Succeeded")
