"""Workers of streaming steps that start, hang, and do not end when they are asked to."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.services.story.engrams.registry import shared_engrams
from perdure.services.story.streams.live_topology import TOPOLOGIES
from perdure.services.story.streams.stream_session import CHANNEL
from tests.streams.topologies import SEEN, Played, add_workers, played, states, story, stream_of, transport

GO = threading.Event()


@pytest.fixture(autouse=True)
def workers() -> Iterator[None]:
    add_workers()
    SEEN.clear()
    GO.clear()
    if "engram:holds@1.0.0" not in shared_engrams.streaming:

        @perdure.streaming_engram("holds", retry={"recommendedMaxRetries": 20, "recommendedBaseDelay": "10ms"})
        def holds(config: Any, message: Any, context: Any) -> Any:
            """Does not return from the first call until the test lets it go."""
            SEEN["calls"].append(message.message_id)
            if len(SEEN["calls"]) == 1:
                GO.wait(60)
            return message.payload

        @perdure.streaming_engram("talks")
        def talks(config: Any, message: Any, context: Any) -> Any:
            """Uses all of its context, without awaiting anything."""
            context.log(f"got {message.payload['n']}", "warning", n=message.payload["n"])
            context.heartbeat({"n": message.payload["n"]})
            context.emit_signal("last", message.payload["n"])
            context.record_effect(f"n{message.payload['n']}", "ok")
            mine = threading.get_ident()
            paid = context.effect_once(
                "pay", lambda: {"paid": message.payload["n"], "here": threading.get_ident() == mine}
            )
            with contextlib.suppress(ValueError):
                context.effect_once("fail", lambda: int("x"))
            heard = [event["payload"] for event in context.replay_signals()["events"]]
            return {**paid, "heard": heard}

    yield
    GO.set()


LINE = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 60, ids: p, stays: STAYS}}
  - {name: held, ref: {name: holds}, needs: [source]}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [held]}
"""


async def test_a_channel_of_sixteen_is_between_the_hub_and_a_worker(tmp_path: Path) -> None:
    """STR-076: a function that does not return has no more than that in hand; the others wait in the buffer."""
    steps = LINE.replace("STAYS", "false")
    async with played(tmp_path, story(steps, transport("memory", "flowControl: {mode: none}"))) as run:
        await run.until(lambda shown: bool(SEEN["calls"]) and stream_of(shown, "source")["published"] == 60)
        inlet = TOPOLOGIES[run.id].hub.inlets["held"]
        assert (len(inlet.pending), len(inlet.waiting)) == (CHANNEL, 60 - CHANNEL)
        GO.set()
        await run.end()

    assert [payload["n"] for _, payload, *_ in SEEN["sink"]] == list(range(60))


async def test_a_plain_function_uses_its_context_as_in_a_batch(tmp_path: Path) -> None:
    """STR-091 STR-095: log, heartbeat, signals and effects answer at once; effects run in its own thread."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 2}}
  - {name: talk, ref: {name: talks}, needs: [source]}
  output: {talk: "{{ steps.talk.output }}"}
"""
    async with played(tmp_path, story(steps)) as run:
        shown = await run.end()
        history = await run.history()

    assert shown["status"]["output"] == {"talk": {"paid": 1, "here": True, "heard": [0, 1]}}
    status = shown["stepRuns"]["talk"]["status"]
    assert status["signals"] == {"last": 1} and len(status["effects"]) == 4
    logged = [event["payload"]["log"] for event in history if event["event_type"] == "step.logged"]
    assert [[line["message"] for line in lines] for lines in logged] == [["got 0", "got 1"]]


async def test_a_worker_that_hangs_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STR-087: no sign of life for the limit, with messages in hand; its packets come again, in order."""
    monkeypatch.setenv("PERDURE_STORY_SETTINGS", json.dumps({"hub.hang-timeout": "1s"}))
    async with played(tmp_path, story(LINE.replace("STAYS", "false"), transport("memory"))) as run:
        shown = await run.end(90)
        history = await run.history()

    assert [payload["n"] for _, payload, *_ in SEEN["sink"]] == list(range(60))
    assert SEEN["calls"].count("p-0") >= 2 and shown["status"]["phase"] == "Succeeded"
    lost = [event for event in history if event["event_type"] == "WorkerLost"]
    assert "no activity for 1 s" in json.dumps(lost[0])


async def test_an_idle_stream_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STR-087: a worker that waits for messages does not hang, whatever it has not acknowledged yet."""
    monkeypatch.setenv("PERDURE_STORY_SETTINGS", json.dumps({"hub.hang-timeout": "100ms"}))
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 1, stays: true}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [source]}
"""
    async with played(tmp_path, story(steps, transport("memory"))) as run:
        await run.until(lambda shown: len(SEEN["sink"]) == 1)
        await asyncio.sleep(0.5)
        shown = await run.show()
        assert states(shown) == {"source": "Running", "sink": "Running"}
        assert not [event for event in await run.history() if event["event_type"] == "WorkerLost"]
        await run.engine.cancel(run.id)
        await run.end()


async def test_a_worker_that_does_not_end_is_left_behind(tmp_path: Path) -> None:
    """STR-090: the topology ends without it, and what it answers later does not count."""
    settings = "lifecycle: {drainTimeoutSeconds: 1}"
    async with played(tmp_path, story(LINE.replace("STAYS", "true"), transport("memory", settings))) as run:
        await run.until(lambda shown: bool(SEEN["calls"]))
        await run.engine.cancel(run.id)
        shown = await run.end(60)
        assert not GO.is_set(), "the function has not returned"
        GO.set()

    assert shown["status"]["phase"] == "Finished"
    assert set(states(shown).values()) == {"Finished"}
    assert SEEN["sink"] == []


async def test_a_worker_is_ready_when_its_code_is_entered(tmp_path: Path) -> None:
    """STR-085: not while its configuration cannot be made; then it fails, and says what is missing."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 1, stays: true}}
  - {name: sink, ref: {name: collect}, needs: [source], with: {into: sink, key: {$bubuConfigMapRef: 'nowhere:x'}}}
"""
    async with played(tmp_path, story(steps)) as run:
        shown = await run.end()
        history = await run.history()

    changes = [event for event in history if event["event_type"] == "stream.state"]
    ready = {event["step"] for event in changes if event["payload"]["state"] == "ready"}
    assert "source" in ready and "sink" not in ready
    error = shown["stepRuns"]["sink"]["status"]["error"]
    assert (error["type"], states(shown)["sink"]) == ("initialization_error", "Failed")
    assert "config map" in error["message"]


async def test_a_topology_waits_for_room_in_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STR-078: the run is Pending, reason Queued, until others have ended; one that can never fit is refused."""
    monkeypatch.setenv("PERDURE_STORY_SETTINGS", json.dumps({"hub.max-streams": 3}))
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 3, stays: true}}
  - {name: sink, ref: {name: collect}, with: {into: guarded}, needs: [source]}
"""
    third = "  - {name: again, ref: {name: collect}, with: {into: guarded}, needs: [source]}\n"
    async with played(tmp_path, story(steps)) as first:
        await first.until(lambda shown: states(shown).get("sink") == "Running")
        waiting = Played(first.engine, (await first.engine.start(story(steps, name="second"), None)).id)
        given_up = Played(first.engine, (await first.engine.start(story(steps, name="third"), None)).id)
        queued = await waiting.until(lambda shown: shown["status"]["phase"] == "Pending" and states(shown) != {})
        await given_up.until(lambda shown: shown["status"]["phase"] == "Pending" and states(shown) != {})
        await first.engine.cancel(given_up.id)
        assert (await given_up.end())["status"]["phase"] == "Finished"
        await first.engine.cancel(first.id)
        await first.end()
        running = await waiting.until(lambda shown: states(shown).get("sink") == "Running")
        await first.engine.cancel(waiting.id)
        await waiting.end()
        refused = await first.engine.start(story(steps + third + third.replace("again", "more"), name="large"), None)
        large = await Played(first.engine, refused.id).end()

    assert {condition["reason"] for condition in queued["status"]["conditions"]} == {"Queued"}
    assert set(states(queued).values()) == {"Pending"}
    assert running["status"]["phase"] == "Running"
    assert large["status"]["phase"] == "Failed" and "hub.max-streams" in str(large["status"])
