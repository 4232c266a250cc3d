"""What is seen of streams: metrics as text, `top` of a topology, recorded packets."""

import asyncio
import base64
import json
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.health import health_page
from perdure.engine.runs.retention import delete_run
from perdure.services.story.streams.metrics import METRICS, PREFIX, metrics_of, samples_of
from perdure.services.story.streams.recording import (
    LARGEST_TAIL,
    PacketRecorder,
    latest_packets,
    read_recordings,
    redact_fields,
    remove_expired,
)
from perdure.streams.hub import Hub
from perdure.streams.inlet import Counters
from perdure.streams.stream_graph import SECOND, Settings, StreamStep, Topology
from perdure.streams.stream_messages import make_message
from perdure.views.administration.prometheus_text import metrics_text
from perdure.views.errors import BadRequest
from perdure.views.runs.live_overview import TopologyOverview
from tests.cli.commandline import CommandLine
from tests.streams.test_simulation import RUN, NoExpressions
from tests.streams.topologies import SEEN, Played, add_workers, played, states, story, transport

LABELS = {"namespace": "default", "storyrun": 'a "run"'}


@pytest.fixture(autouse=True)
def workers() -> None:
    add_workers()
    SEEN.clear()


def numbers(text: str) -> dict[str, float]:
    """The series of a text for Prometheus; every line is checked."""
    numbers = {}
    for line in text.splitlines():
        match = re.fullmatch(r'([a-z_]+\{[a-z]+="(?:[^"\\]|\\.)*"(?:,[a-z]+="(?:[^"\\]|\\.)*")*\}) ([0-9.e+-]+)', line)
        assert match or re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+", line), line
        if match:
            assert match[1] not in numbers
            numbers[match[1]] = float(match[2])
    return numbers


def test_metrics_have_the_original_names() -> None:
    """STR-097 STR-098: sizes, drops, flushes, watermark and lag, acknowledgements and recordings of every step."""
    kept = Settings(at_least_once=True, replay="memory", ordering="per_stream", watermark="payload.at", flow="none")
    steps = (
        StreamStep("a"),
        StreamStep("b", needs=("a",), settings=kept),
        StreamStep("c", needs=("a",), settings=Settings(max_messages=2)),
        StreamStep("d", needs=("a",), settings=Settings(has_metrics=False)),
    )
    hub = Hub(Topology(steps), NoExpressions(), RUN)
    for number in range(5):
        hub.publish("a", make_message(str(number), 0, payload={"at": 1_000 * (number + 1)}), 0)
    hub.connect("b", 0)
    for _ in range(3):
        hub.take("b", 0)
    hub.acknowledge("b", 1, 0)
    samples = numbers(metrics_text(metrics_of(list(samples_of(hub.inlets, LABELS, 9 * SECOND)))))

    def of(name: str, step: str, more: str = "") -> float:
        return samples[f'{PREFIX}{name}{{namespace="default",storyrun="a \\"run\\"",step="{step}"{more}}}']

    assert (of("buffer_current_size", "b"), of("buffer_current_size", "c")) == (2, 2)
    assert of("buffer_current_bytes", "c") == 2 * len(b'{"at":1000}')
    assert of("messages_dropped_total", "c", ',reason="buffer_full"') == 3
    assert of("buffer_flushed_total", "b") == 3
    assert (of("event_time_watermark_seconds", "b"), of("event_time_lag_seconds", "b")) == (5, 4)
    assert (of("replay_last_ack", "b", ',partition=""'), of("replay_unacked_current", "b")) == (1, 2)
    assert of("stream_recordings_total", "a") == 0
    assert not any('step="d"' in series for series in samples), "observability.metrics.enabled: false"
    assert {series.partition("{")[0].removeprefix(PREFIX) for series in samples} == set(METRICS)


async def test_the_health_page_has_the_metrics_of_its_process(tmp_path: Path) -> None:
    """STR-097."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 3, stays: true}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [source]}
"""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with played(tmp_path, story(steps)) as run, health_page(port):
        await run.until(lambda shown: len(SEEN["sink"]) == 3)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        name = (await run.show())["metadata"]["name"]
        await run.engine.cancel(run.id)
        await run.end()

    assert head.startswith("HTTP/1.1 200") and "text/plain; version=0.0.4" in head
    assert numbers(body)[f'{PREFIX}buffer_current_size{{namespace="default",storyrun="{name}",step="sink"}}'] == 0


async def test_top_of_a_topology(tmp_path: Path) -> None:
    """Rates, lag, fill, drops and pauses of every step; a run without a topology is refused."""
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 40, stays: true}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [source]}
  - {name: nap, type: sleep, needs: [source], with: {duration: 1h}}
"""
    settings = "backpressure: {buffer: {maxMessages: 20}}, observability: {watermark: {enabled: true}},"
    settings += " flowControl: {mode: window, initialCredits: {messages: 2}}, lifecycle: {drainTimeoutSeconds: 1}"
    async with played(tmp_path, story(steps, transport("none", settings))) as run:
        overview = TopologyOverview(run.engine, run.id, run.engine.clock)
        await run.until(lambda shown: "nap" in states(shown))
        first = await overview.read()
        await run.until(lambda shown: shown["status"]["stepStates"]["nap"]["stream"]["received"] == 40)
        second = await overview.read()
        look = ("top", run.id, "--every", "100ms", "--db", f"sqlite:///{tmp_path}/runs.db")
        text = await asyncio.to_thread(CommandLine(tmp_path), *look, "--once")
        shown = await asyncio.to_thread(CommandLine(tmp_path), *look, "--json")
        batch = await run.engine.start(story("  steps: [{name: a, type: sleep, with: {duration: 1h}}]").replace(
            b"streaming", b"batch"), None)  # fmt: skip
        with pytest.raises(BadRequest, match="has no topology"):
            await TopologyOverview(run.engine, batch.id, run.engine.clock).read()
        await run.engine.cancel(batch.id)
        await run.engine.cancel(run.id)
        await run.end(90)

    assert first["steps"][0]["rates"] is None
    by_step = {step["step"]: step for step in second["steps"]}
    nap, sink = by_step["nap"], by_step["sink"]
    assert (nap["waiting"], nap["fill"], nap["paused"], nap["dropped"]) == (20, 100, True, {"buffer_full": 18})
    assert sink["received"] == 40 and sink["rates"]["in"] >= 0 and sink["lag_seconds"] >= 0
    assert by_step["source"]["published"] == 40
    assert {(edge["from"], edge["to"]): edge["passed"] for edge in second["edges"]} == {
        ("source", "sink"): 40,
        ("source", "nap"): 40,
    }
    assert "STEP" in text.out and "18 buffer_full" in text.out and "paused" in text.out
    assert {step["step"] for step in shown.json["steps"]} == {"source", "sink", "nap"}


def test_fields_are_redacted_wherever_they_are() -> None:
    """STR-096: below lists, in keys of metadata that have dots, and in the frame that mirrors a payload."""
    packet = {
        "payload": {"users": [{"name": "a", "key": 1}, {"name": "b", "key": 2}], "plain": 1},
        "binary": {"payload": base64.b64encode(b'{"users":[{"key":1}]}').decode(), "mimeType": "application/json"},
        "metadata": {"auth.token": "secret", "auth": "x"},
    }
    shown = json.dumps(redact_fields(packet, ["payload.users.key", "metadata.auth.token", "payload.absent", "nothing"]))

    assert packet["payload"]["users"] == [{"name": name, "key": "[REDACTED]"} for name in ("a", "b")]  # type: ignore[index]
    assert packet["binary"]["payload"] == "[REDACTED]"  # type: ignore[index]
    assert packet["metadata"] == {"auth.token": "[REDACTED]", "auth": "x"}
    assert "secret" not in shown


def test_what_was_recorded_is_removed_after_its_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STR-096: what is older has a date and is neither shown nor kept after it."""
    monkeypatch.setenv("PERDURE_STORAGE_DIR", str(tmp_path))
    settings: dict[str, dict[str, Any]] = {
        "a": {"mode": "payload", "retentionSeconds": 3600},
        "b": {"mode": "metadata"},
    }
    recorder = PacketRecorder(settings, RUN, lambda shown: shown)
    for step in ("a", "b"):
        recorder.add(step, make_message(f"{step}-1", 5, payload={"n": 1}, metadata={"m": "x"}), Counters())
    recorder.write(is_last=True)

    packets = list(read_recordings("default", "run"))
    assert [(packet["step"], packet["messageId"], packet.get("payload")) for packet in packets] == [
        ("a", "a-1", {"n": 1}),
        ("b", "b-1", None),
    ]
    assert packets[1]["metadata"] == {
        "m": "x", "storyrun-name": "run", "storyrun-namespace": "default", "current-step-id": "b"
    }  # fmt: skip
    (dated,) = (tmp_path / "recordings/default/run/a").iterdir()
    remove_expired(tmp_path / "recordings", time.time() + 3500)
    assert dated.exists()
    remove_expired(tmp_path / "recordings", time.time() + 3700)
    assert [packet["step"] for packet in read_recordings("default", "run")] == ["b"]


def test_the_latest_packets_are_read_from_the_ends_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CON-010: of every step, over several files, the latest first; what is being written is left out."""
    monkeypatch.setenv("PERDURE_STORAGE_DIR", str(tmp_path))
    shown = {"kind": "StoryRun", "metadata": {"namespace": "default", "name": "run"}}
    settings: dict[str, dict[str, Any]] = {step: {"mode": "payload", "retentionSeconds": 3600} for step in ("a", "b")}
    recorder = PacketRecorder(settings, RUN, lambda packet: packet)
    for number in range(6):
        step = "ab"[number % 2]
        recorder.add(step, make_message(f"p-{number}", number, payload={"n": number}), Counters())
        recorder.write(is_last=number == 2)  # the files of the first three get a date
    with (tmp_path / "recordings/default/run/a/packets.jsonl").open("a") as file:
        file.write('{"messageId": "half')

    assert [packet["messageId"] for packet in latest_packets(shown, 4)] == ["p-5", "p-4", "p-3", "p-2"]
    assert len(latest_packets(shown, 100)) == 6 and latest_packets(shown, 0) == []
    assert latest_packets({"kind": "Other"}, 4) == []
    long = make_message("p-9", 9, payload={"text": "x" * LARGEST_TAIL})
    for message in (long, make_message("p-10", 10, payload={"n": 10})):
        recorder.add("b", message, Counters())
    recorder.write()
    assert [packet["messageId"] for packet in latest_packets(shown, 2)] == ["p-10", "p-4"]


@pytest.mark.parametrize("how", ["delete", "prune"])
async def test_recorded_packets_are_shown_and_go_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """STR-096: `history --packets`, with secrets masked; removing the run removes them, and those of no other run."""
    monkeypatch.setenv("PERDURE_STORAGE_DIR", str(tmp_path / "storage"))
    steps = """
  steps:
  - {name: source, ref: {name: numbers}, with: {count: 3, ids: p}}
  - {name: sink, ref: {name: collect}, with: {into: sink}, needs: [source]}
"""
    async with played(tmp_path, story(steps, transport("none", "recording: {mode: payload}"))) as run:
        await run.end()
        folder = tmp_path / "storage/recordings/default" / (await run.show())["metadata"]["name"]
        words = ("history", run.id, "--packets", "--db", f"sqlite:///{tmp_path}/runs.db")
        ask = partial(CommandLine(tmp_path), *words, PERDURE_STORAGE_DIR=str(tmp_path / "storage"))
        lines = await asyncio.to_thread(ask)
        shown = await asyncio.to_thread(ask, "--json")
        await asyncio.to_thread(ask, "--raw", code=2)
        assert folder.is_dir()
        other = await run.engine.start(story(steps, transport("none", "recording: {mode: payload}"), "other"), None)
        kept = await Played(run.engine, other.id).end()
        if how == "delete":
            await delete_run(run.engine, run.id)
        else:
            ended_at = (await run.engine.find(run.id)).ended_at
            assert ended_at is not None
            assert await run.engine.prune(ended_at + 1) == 1

    assert [line.split()[2:5] for line in lines.out.splitlines()] == [["source", "data", f"p-{n}"] for n in range(3)]
    assert [packet["payload"]["n"] for packet in shown.json] == [0, 1, 2]
    assert not folder.exists()
    assert (folder.parent / kept["metadata"]["name"] / "source").is_dir()
    assert [note.name for note in (folder.parent.parent / ".runs").iterdir()] == [other.id]
