"""Pressure, journeys, sub-runs of packets, commands, effects and recordings of streaming Stories."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.kernel.documents.validation import AppliedDocument
from perdure.services.story.engrams.registry import shared_engrams
from perdure.services.story.streams.live_topology import TOPOLOGIES
from perdure.testing import stream
from tests.streams.topologies import SEEN, add_workers, apply_nats, played, states, story, stream_of, transport


@pytest.fixture(autouse=True)
def workers() -> None:
    add_workers()
    SEEN.clear()
    if "engram:slow@1.0.0" in shared_engrams.streaming:
        return

    @perdure.streaming_engram("slow")
    async def slow(config: Any, messages: Any, context: Any) -> None:
        async for message in messages:
            SEEN["fill"].append(len(TOPOLOGIES[next(iter(TOPOLOGIES))].hub.inlets["sink"].waiting))
            while config.get("last") and not SEEN["published"]:
                await asyncio.sleep(0.001)
            for _ in range(50):  # turns of the loop, in which a publisher that may go on does so
                await asyncio.sleep(0)
            SEEN["slow"].append((message.payload["n"], message.cancelled))
            message.done()

    @perdure.streaming_engram("hasty")
    async def hasty(config: Any, messages: Any, context: Any) -> None:
        """Publishes many numbers at the same time, in order."""
        under_way = []
        for number in range(config["count"]):
            under_way.append(asyncio.ensure_future(context.publish({"n": number})))
            if number % 3 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*under_way)

    @perdure.streaming_engram("answers")
    async def answers(config: Any, messages: Any, context: Any) -> None:
        """Does not wait until what it has done is kept."""
        async for message in messages:
            await context.publish(message.payload, reply_to=message)
            message.done()

    @perdure.streaming_engram("pays")
    async def pays(config: Any, messages: Any, context: Any) -> None:
        async for message in messages:
            await context.effect_once("pay", lambda n=message.payload["n"]: SEEN["paid"].append(n))
            await context.emit_signal("last", message.payload["n"])
            if message.payload["n"] == 3 and not SEEN["broken"]:
                SEEN["broken"].append(True)
                raise perdure.EngramError("after the effect, before it is done", retryable=True)
            message.done()


@pytest.mark.parametrize("replay", ["memory", "durable", "nats"])
async def test_a_slow_consumer_holds_its_publisher_back(tmp_path: Path, replay: str) -> None:
    """STR-073 STR-075 STR-126 STR-135, the third thing: PAUSE at 90 %, RESUME at 50 %, and memory stays flat."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 200, together: true}}
  - {name: sink, ref: {name: slow}, needs: [source]}
"""
    settings = "backpressure: {buffer: {maxMessages: 20}}, flowControl: {mode: credits, initialCredits: {messages: 5},"
    settings += " ackEvery: {messages: 2}, pauseThreshold: {bufferPct: 90}, resumeThreshold: {bufferPct: 50}}"
    async with played(tmp_path, story(steps, transport(replay, settings))) as run:
        shown = await run.end()
        history = await run.history()

    assert [number for number, _ in SEEN["slow"]] == list(range(200)) and stream_of(shown, "sink")["dropped"] == {}
    assert max(SEEN["fill"]) <= 18, "90 % of 20"
    assert min(SEEN["fill"][20:100]) >= 9, "it goes on below 50 %, before the buffer is empty"
    pauses = [event for event in history if event["event_type"] in ("StreamPaused", "StreamResumed")]
    assert [event["event_type"] for event in pauses[:2]] == ["StreamPaused", "StreamResumed"]
    assert len(pauses) <= 4, "the first is told at once, the others are counted"


@pytest.mark.parametrize("replay", ["memory", "durable", "nats"])
async def test_publications_that_wait_for_room_keep_their_order(tmp_path: Path, replay: str) -> None:
    """STR-062 STR-073: one that comes just when there is room again does not overtake those that have waited."""
    steps = """
  steps:
  - {name: source, ref: {name: hasty}, with: {count: 200}}
  - {name: relay, ref: {name: answers}, needs: [source]}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [relay]}
"""
    settings = "backpressure: {buffer: {maxMessages: 4}}, "
    settings += "flowControl: {mode: credits, initialCredits: {messages: 2}, ackEvery: {messages: 1}}"
    async with played(tmp_path, story(steps, transport(replay, settings))) as run:
        await run.end()

    assert [payload["n"] for _, payload, *_ in SEEN["sink"]] == list(range(200))


async def test_best_effort_never_waits_for_a_pause(tmp_path: Path) -> None:
    """STR-126: PAUSE is told, and what does not fit is dropped."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 200}}
  - {name: sink, ref: {name: slow}, with: {last: true}, needs: [source]}
"""
    settings = "backpressure: {buffer: {maxMessages: 20}}"
    async with played(tmp_path, story(steps, transport("none", settings))) as run:
        shown = await run.end()
        history = await run.history()

    sink = stream_of(shown, "sink")
    assert sink["dropped"]["buffer_full"] >= 150
    assert [event["step"] for event in history if event["event_type"] == "StreamPaused"] == ["source"]
    assert sink["received"] == 200 == sink["delivered"] + sum(sink["dropped"].values())


async def test_journeys_follow_each_other_or_the_next_one_cancels(tmp_path: Path) -> None:
    """STR-002 STR-077: serial waits; cancelPrevious drops what is left and tells workers."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 6}}
  - {name: plus, ref: {name: add}, needs: [source]}
  - {name: sink, ref: {name: slow}, with: {last: LAST}, needs: [plus]}
  concurrency: {mode: MODE}
"""
    async with played(tmp_path, story(steps.replace("MODE", "serial").replace("LAST", "false"))) as run:
        await run.end()
    assert [number for number, _ in SEEN["slow"]] == list(range(6))
    assert max(SEEN["fill"]) == 0, "no packet waits behind another journey"

    SEEN.clear()
    (tmp_path / "second").mkdir()
    async with played(
        tmp_path / "second", story(steps.replace("MODE", "cancelPrevious").replace("LAST", "true"))
    ) as run:
        shown = await run.end()
    assert SEEN["slow"][-1] == (5, False)
    assert len(SEEN["slow"]) < 6
    dropped = stream_of(shown, "sink")["dropped"].get("cancelled", 0)
    dropped += stream_of(shown, "plus")["dropped"].get("cancelled", 0)
    assert dropped or any(was_cancelled for _, was_cancelled in SEEN["slow"])


CHILD = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: child}
spec:
  steps: [{name: double, ref: {name: echo}, with: {m: "{{ mul 2 (int inputs.n) }}"}}]
  output: {m: "{{ steps.double.output.m }}"}
"""


@pytest.mark.parametrize("replay", ["none", "memory", "durable", "nats"])
async def test_a_packet_starts_one_sub_run_and_goes_on_with_its_output(tmp_path: Path, replay: str) -> None:
    """STR-058 STR-134, the ninth thing: a packet that comes again finds the run that it has started."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 3, ids: p}}
  - {name: call, type: executeStory, needs: [source], with: {storyRef: {name: child}},
     runtime: {n: '{{ packet.payload.n }}'}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [call]}
"""
    async with played(tmp_path, story("  steps: [{name: a, ref: {name: numbers}}]", name="first")) as run:
        await run.end()
        await run.engine.apply([AppliedDocument("child.yaml", CHILD)])
        if replay == "nats":
            await apply_nats(run.engine)
        handle = await run.engine.start(story(steps, transport(replay)), None)
        run.id = handle.id
        shown = await run.end()
        topology_runs = [event for event in await run.history() if event["event_type"] == "SubStoryRunCreated"]

    assert [payload for _, payload, *_ in SEEN["sink"]] == [{"m": "0"}, {"m": "2"}, {"m": "4"}]
    assert len(topology_runs) == 3
    assert shown["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize("replay", ["memory", "durable", "nats"])
async def test_the_same_packet_finds_its_sub_run_again(tmp_path: Path, replay: str) -> None:
    """STR-058, the ninth thing: asked twice for one packet, the run starts one child."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 0, stays: true}}
  - {name: call, type: executeStory, needs: [source], with: {storyRef: {name: child}, with: {n: 4}}}
  - {name: later, type: executeStory, needs: [source],
     with: {storyRef: {name: child}, with: {n: 4}, waitForCompletion: false}}
"""
    async with played(tmp_path, story("  steps: [{name: a, ref: {name: numbers}}]", name="first")) as run:
        await run.end()
        await run.engine.apply([AppliedDocument("child.yaml", CHILD)])
        if replay == "nats":
            await apply_nats(run.engine)
        handle = await run.engine.start(story(steps, transport(replay)), None)
        run.id = handle.id
        await run.until(lambda shown: states(shown).get("source") == "Running")
        topology = TOPOLOGIES[run.id]
        request = {"step": "call", "packet": "p-1", "with": {"n": 4}, "waits": True}
        await run.engine.publish(run.id, "later", {"n": 4}, message_id="p-2")
        await run.until(lambda shown: stream_of(shown, "later")["published"] == 1)
        assert topology.children == {}, "nothing is kept of what nobody waits for"
        first = await topology.report({"child": request})
        await run.until(lambda shown: True)
        async with asyncio.timeout(60):
            while (again := await topology.report({"child": request}))["isOpen"]:
                await asyncio.sleep(0.02)
        history = await run.history()
        await run.engine.cancel(run.id)
        await run.end()

    assert first["subRun"] == again["subRun"] and again["output"] == {"m": "8"}
    assert len([event for event in history if event["event_type"] == "SubStoryRunCreated"]) == 2


@pytest.mark.parametrize("replay", ["durable", "nats"])
async def test_effects_are_performed_once_for_each_packet(tmp_path: Path, replay: str) -> None:
    """STR-068 STR-095: a packet that comes again finds its effect done; signals are data beside the payload."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 6}}
  - {name: pay, ref: {name: pays}, needs: [source], execution: {retry: {maxRetries: 3, delay: 10ms}}}
"""
    async with played(tmp_path, story(steps, transport(replay))) as run:
        shown = await run.end()

    assert SEEN["paid"] == list(range(6))
    assert shown["stepRuns"]["pay"]["status"]["signals"] == {"last": 5}
    assert len(shown["stepRuns"]["pay"]["status"]["effects"]) == 6


COMMAND = """
import json, os, sys
config = json.loads(os.environ["PERDURE_STREAM_CONFIG"])
for line in sys.stdin:
    message = json.loads(line)
    number = message["payload"]["n"] + config["by"]
    print(json.dumps({"payload": {"n": number}, "replyTo": message["messageId"]}), flush=True)
    print(json.dumps({"done": message["messageId"]}), flush=True)
"""


@pytest.mark.parametrize("replay", ["none", "durable"])
async def test_a_command_speaks_json_lines(tmp_path: Path, replay: str) -> None:
    """STR-093: messages in, messages and `done` out; it ends when its input does."""
    script = tmp_path / "worker.py"
    script.write_text(COMMAND)
    resources = f"""
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata:
  name: commanded
  annotations: {{perdure/command: '{json.dumps([sys.executable, str(script)])}'}}
spec: {{version: 1.0.0, supportedModes: [deployment]}}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {{name: commanded}}
spec: {{mode: deployment, templateRef: {{name: commanded}}}}
"""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 5}}
  - {name: command, ref: {name: commanded}, with: {by: 7}, needs: [source]}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [command]}
"""
    async with played(tmp_path, story("  steps: [{name: a, ref: {name: numbers}}]", name="first")) as run:
        await run.end()
        await run.engine.apply([AppliedDocument("r.yaml", resources)])
        handle = await run.engine.start(story(steps, transport(replay)), None)
        run.id = handle.id
        shown = await run.end()

    assert [payload["n"] for _, payload, *_ in SEEN["sink"]] == [7, 8, 9, 10, 11]
    assert shown["status"]["phase"] == "Succeeded"


async def test_packets_are_recorded_sampled_and_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STR-096 STR-132: below the publisher's name, without the fields that are to be hidden."""
    monkeypatch.setenv("PERDURE_STORAGE_DIR", str(tmp_path / "storage"))
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 4}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [source]}
"""
    recording = "recording: {mode: payload, redactFields: [payload.k]}"
    async with played(tmp_path, story(steps, transport("none", recording))) as run:
        shown = await run.end()

    name = shown["metadata"]["name"]
    lines = (tmp_path / "storage/recordings/default" / name / "source/packets.jsonl").read_text().splitlines()
    assert [json.loads(line)["payload"] for line in lines] == [{"n": n, "k": "[REDACTED]"} for n in range(4)]


async def test_an_engram_can_be_tested_without_a_story() -> None:
    """STR-094 STR-141."""

    async def upper(config: Any, messages: Any, context: Any) -> None:
        async for message in messages:
            await context.publish({"text": message.payload["text"].upper() + config["mark"]}, reply_to=message)
            if message.payload["text"] != "b":
                message.done()

    def each(config: Any, message: Any, context: Any) -> Any:
        return {"n": message.payload["n"] + 1}

    outputs, undone = await stream(upper, [{"text": "a"}, {"text": "b"}], config={"mark": "!"})
    assert [output["payload"]["text"] for output in outputs] == ["A!", "B!"]
    assert undone == ["input-2"]
    outputs, undone = await stream(each, [{"n": 1}, {"message": {"payload": {"n": 2}, "message_id": "x"}}])
    assert [(output["messageId"], output["payload"]["n"]) for output in outputs] == [("input-1", 2), ("x", 3)]
    assert undone == []


async def test_a_tested_engram_has_the_context_of_a_stream() -> None:
    """STR-068 STR-094 STR-130: effects once for each message, ids and metadata of answers, an end for who waits."""

    def pays(config: Any, message: Any, context: Any) -> Any:
        context.heartbeat()
        context.publish({"before": True})
        return context.effect_once("pay", lambda: {"paid": message.payload["n"]})

    async def stays(config: Any, messages: Any, context: Any) -> None:
        await context.emit_signal("here", 1)
        await context.wait_cancelled()
        await context.publish((await context.replay_signals())["events"])

    inputs = [{"n": 1}, {"message": {"payload": {"n": 2}, "metadata": {"k": "v"}}}]
    outputs, _ = await stream(pays, inputs)
    assert [output["messageId"] for output in outputs] == ["input-1", "input-1.1", "input-2", "input-2.1"]
    assert [output["payload"] for output in outputs[1::2]] == [{"paid": 1}, {"paid": 2}]
    assert outputs[3]["metadata"] == {"k": "v"}
    outputs, _ = await stream(stays, [])
    assert outputs[0]["payload"] == [{"seq": 1, "key": "here", "payload": 1}]
