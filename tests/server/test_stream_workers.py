"""Streaming steps that workers elsewhere do, each over a WebSocket of its own (STR-112, STR-088)."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.cli.commandline import Running
from tests.server.serving import Server

EXAMPLES = Path(__file__).parents[2] / "examples" / "workers"

LOCAL = '''
import asyncio, pathlib
import perdure

@perdure.streaming_engram("count")
async def count(config, messages, context):
    """Repeats everything when it is started again: chosen ids are taken once."""
    for number in range(config["count"]):
        await context.publish({"n": number}, message_id=f"n-{number}")

@perdure.streaming_engram("note")
def note(config, message, context):
    with open("noted", "a") as file:
        file.write(f"{message.payload['n']} {message.payload.get('by', '')}\\n")
'''

REMOTE = """
import os, pathlib, time
import perdure

@perdure.streaming_engram("double")
def double(config, message, context):
    while message.payload["n"] == 200 and not pathlib.Path("go").exists():
        time.sleep(0.02)
    paid = context.effect_once("pay", lambda: {"paid": message.payload["n"]})
    assert paid == {"paid": message.payload["n"]}
    return {"n": 2 * message.payload["n"], "by": f"{config['name']}-{os.getpid()}"}
"""

RESOURCES = """
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: double, annotations: {perdure.dev/pool: gpu}}
spec: {version: 1.0.0, supportedModes: [deployment]}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: double}
spec: {mode: deployment, templateRef: {name: double}}
"""

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: remote}
spec:
  pattern: streaming
  steps:
  - {name: source, ref: {name: count}, with: {count: COUNT}}
  - {name: twice, ref: {name: double}, needs: [source], with: {name: ada}}
  - {name: sink, ref: {name: note}, needs: [twice]}
  transports:
  - name: t
    transportRef: local
    streaming: {SETTINGS}
"""

DURABLE = "delivery: {semantics: at_least_once, replay: {mode: durable, checkpointInterval: 50ms}}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "local.py").write_text(LOCAL)
    (tmp_path / "remote.py").write_text(REMOTE)
    (tmp_path / "resources.yaml").write_text(RESOURCES)
    running = Server.start(tmp_path, "--load", "./local.py", "--apply", "resources.yaml")
    try:
        yield running
    finally:
        running.commands.end_all()


def start(server: Server, count: int, settings: str = DURABLE) -> str:
    return server.admin.start(STORY.replace("COUNT", str(count)).replace("SETTINGS", settings))


def start_worker(server: Server) -> Running:
    token = server.commands.folder / "token"
    token.write_text(f"{server.role('worker').token}\n")
    words = ("worker", "--server", server.url, "--token", f"@{token}", "--load", "./remote.py")
    worker = server.commands.start(*words)
    worker.hear("working for gpu")
    return worker


def noted(server: Server) -> list[tuple[int, str]]:
    path = server.commands.folder / "noted"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(number), by) for number, _, by in (line.partition(" ") for line in lines)]


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(6_000):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it never came true")


def shown(server: Server, run: str) -> Any:
    reply = server.admin("GET", f"/api/v1/runs/{run}/picture")
    assert reply.status == 200, reply.text
    return reply.json


def test_a_worker_and_a_server_that_are_killed_lose_nothing(server: Server) -> None:
    """STR-064 STR-084 STR-112: the next worker goes on where the last one was; effects happen once."""
    run = start(server, 300)
    first = start_worker(server)
    wait_until(lambda: len(noted(server)) >= 40)
    first.process.kill()
    start_worker(server)
    wait_until(lambda: len({by for _, by in noted(server)}) == 2)
    wait_until(lambda: len(noted(server)) >= 150)
    wait_until(lambda: b"WorkerLost" in server.admin("GET", f"/api/v1/runs/{run}/events?limit=1000").text)

    port = server.url.rpartition(":")[2]
    server.process.process.kill()
    server.process.process.wait()
    again = server.commands.start("serve", "--listen", f"127.0.0.1:{port}", "--load", "./local.py")
    again.hear("listening on ")
    (server.commands.folder / "go").touch()
    result = server.admin("GET", f"/api/v1/runs/{run}/result?wait=60", timeout=120)

    assert result.status == 200, result.text
    rows = noted(server)
    assert {number for number, _ in rows} == {2 * number for number in range(300)}
    firsts = list(dict.fromkeys(number for number, _ in rows))
    assert firsts == sorted(firsts), "the order stays"
    assert len({by for _, by in rows}) == 2


# The protocol, with the test as the worker.


class Frames:
    """A worker that says what the test says."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def send(self, type: str, **members: Any) -> None:
        self.socket.send(json.dumps({"type": type, **members}))

    def hear(self, *types: str, within: float = 60.0) -> Any:
        """The next frame of one of these types; others are passed over."""
        while True:
            frame = json.loads(self.socket.recv(timeout=within))
            if frame["type"] in types:
                return frame

    def hear_nothing(self, *types: str, within: float = 0.5) -> None:
        with pytest.raises(TimeoutError):
            self.hear(*types, within=within)

    def offer(self, *, pools: tuple[str, ...] = ("gpu",), credits: int = 100) -> Any:
        self.send("offer", worker="a test", pools=pools, providers=["engram:double@1.0.0"])
        step = self.hear("step")
        self.send("ready", credits=credits)
        return step

    def take(self, count: int) -> list[Any]:
        return [self.hear("message") for _ in range(count)]


@contextmanager
def connected(server: Server, token: str | None = None) -> Iterator[Frames]:
    headers = {"Authorization": f"Bearer {token or server.role('worker').token}"}
    url = server.url.replace("http:", "ws:") + "/api/v1/worker/stream"
    with connect(url, additional_headers=headers, open_timeout=60) as socket:
        yield Frames(socket)


def test_a_worker_gets_what_it_has_credits_for_and_what_it_left_comes_again(server: Server) -> None:
    """STR-064 STR-074 STR-112: frames, credits, acknowledgements, publications, and a reconnect."""
    run = start(server, 6)
    with connected(server) as worker:
        step = worker.offer(credits=3)
        assert (step["step"], step["run"], step["provider"]) == ("twice", run, "engram:double@1.0.0")
        assert step["arguments"]["inputs"] == {"name": "ada"}
        first, second, third = worker.take(3)
        worker.hear_nothing("message")
        assert [packet["message"]["payload"] for packet in (first, second, third)] == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert first["message"]["envelope"]["sequence"] == 1
        worker.send("publish", number=1, replyTo=first["id"], message={"payload": {"n": 100}})
        assert worker.hear("published")["number"] == 1
        worker.send("publish", number=2, replyTo=second["id"], message={"kind": "hook", "payload": 1})
        assert worker.hear("refused") == {"type": "refused", "number": 2, "message": "the kind 'hook' is the hub's"}
        worker.send("done", id=first["id"])
        assert worker.hear("kept")["id"] == first["id"]
        worker.send("credits", messages=1)
        (fourth,) = worker.take(1)
        assert fourth["message"]["payload"] == {"n": 3}
    with connected(server) as worker:
        worker.offer()
        again = worker.take(5)
        assert [packet["message"]["payload"]["n"] for packet in again] == [1, 2, 3, 4, 5]
        assert again[0]["message"]["messageId"] == second["message"]["messageId"]
        for packet in again:
            worker.send(
                "publish", number=packet["id"], replyTo=packet["id"], message={"payload": packet["message"]["payload"]}
            )
            worker.send("done", id=packet["id"])
        worker.hear("end")
        worker.send("returned")
        result = server.admin("GET", f"/api/v1/runs/{run}/result?wait=60", timeout=120)
    assert result.status == 200, result.text
    assert [number for number, _ in noted(server)] == [100, 1, 2, 3, 4, 5]


def test_it_is_shown_who_does_a_step_and_why_nobody_does(server: Server) -> None:
    """STR-100 STR-112: in the status of the step, in `show` and `why`, and in the lists of pools and workers."""
    run = start(server, 3)

    def stream() -> Any:
        return shown(server, run)["status"]["stepStates"]["twice"].get("stream") or {}

    wait_until(lambda: "awaits" in stream())
    lack = "no streaming worker of pool gpu offers engram:double@1.0.0"
    assert stream()["awaits"]["message"] == lack
    assert f"step 'twice' waits: {lack}" in server.admin("GET", f"/api/v1/runs/{run}/why").text.decode()
    assert lack in server.commands("show", run).out
    (pool,) = server.admin("GET", "/api/v1/pools").json["items"]
    assert (pool["name"], pool["waits"]) == ("gpu", [lack])
    with connected(server) as worker:
        worker.offer()
        messages = worker.take(3)
        wait_until(lambda: "worker" in stream())
        assert stream()["worker"]["name"] == "a test of pool gpu" and "awaits" not in stream()
        assert "worker a test of pool gpu since" in server.commands("show", run).out
        wait_until(lambda: bool(server.admin("GET", "/api/v1/workers").json["items"]))
        (row,) = server.admin("GET", "/api/v1/workers").json["items"]
        assert (row["name"], row["pool"], row["present"]) == ("a test", "gpu", True)
        assert [(stream["run"], stream["step"]) for stream in row["streams"]] == [(run, "twice")]
        assert server.admin("GET", "/api/v1/pools").json["items"][0]["waits"] == []
        for packet in messages:
            worker.send("done", id=packet["id"])
        worker.hear("end")
        worker.send("returned")
        worker.hear("stop")
    wait_until(lambda: server.admin("GET", "/api/v1/workers").json["items"][0]["present"] is False)


def test_a_slow_worker_holds_its_publishers_back(server: Server) -> None:
    """STR-073 STR-075 STR-112: memory stays bounded while it does nothing, and it is told when others are full."""
    settings = f"{DURABLE}, backpressure: {{buffer: {{maxMessages: 10}}}}, lifecycle: {{drainTimeoutSeconds: 1}}"
    run = start(server, 200, settings)
    with connected(server) as worker:
        worker.offer(credits=2)
        worker.take(2)

        def stream() -> Any:
            return shown(server, run)["status"]["stepStates"]["twice"].get("stream") or {}

        wait_until(lambda: bool(stream().get("paused")))
        assert stream()["buffered"]["messages"] <= 10 and stream()["unacked"] <= 2
        assert stream()["received"] < 20
        assert server.admin("POST", f"/api/v1/runs/{run}/cancel", {}).status in (200, 202)
        worker.hear("stop")


@pytest.mark.parametrize("strategy", ["drain_cutover", "blue_green"])
def test_a_worker_that_leaves_is_replaced(server: Server, strategy: str) -> None:
    """STR-088: the new one starts first with blue_green, else last; two never have messages at the same time."""
    lifecycle = f"lifecycle: {{strategy: {strategy}, drainTimeoutSeconds: 60, maxInFlight: 3}}"
    run = start(server, 12, f"{DURABLE}, {lifecycle}")
    with connected(server) as old, connected(server) as new:
        old.offer(credits=2)
        in_hand = old.take(2)
        old.send("leaving")
        old.send("credits", messages=10)
        new.send("offer", worker="the next", pools=["gpu"], providers=["engram:double@1.0.0"])
        if strategy == "blue_green":
            in_hand += old.take(1)
            old.hear_nothing("message", "stop")  # three are in flight
            new.hear("step")
            assert '"pending"' in json.dumps(shown(server, run)["stepRuns"]["twice"]["status"]["handoff"])
            new.send("ready", credits=100)
        else:
            old.hear_nothing("message")
            new.hear_nothing("step")
        new.hear_nothing("message")

        def phase() -> str:
            return str((shown(server, run)["stepRuns"]["twice"]["status"].get("handoff") or {}).get("phase"))

        wait_until(lambda: phase() == "draining")
        for packet in in_hand:
            old.send("done", id=packet["id"])
        old.hear("stop")
        if strategy != "blue_green":
            new.hear("step")
            new.send("ready", credits=100)
        rest = new.take(12 - len(in_hand))
        numbers = [packet["message"]["payload"]["n"] for packet in (*in_hand, *rest)]
        assert numbers == list(range(12)), "in order, and each once"
        wait_until(lambda: phase() == "ready")
        for packet in rest:
            new.send("done", id=packet["id"])
        new.hear("end")
        new.send("returned")
    result = server.admin("GET", f"/api/v1/runs/{run}/result?wait=60", timeout=120)
    assert result.status == 200, shown(server, run)["status"]["stepStates"]


def test_a_rolling_step_does_not_wait_for_the_worker_that_leaves(server: Server) -> None:
    """STR-064 STR-088: it is stopped at once; what it had in hand comes again, before everything else."""
    run = start(server, 6, f"{DURABLE}, lifecycle: {{strategy: rolling, drainTimeoutSeconds: 60}}")
    with connected(server) as old, connected(server) as new:
        old.offer(credits=2)
        in_hand = old.take(2)
        old.send("leaving")
        old.hear("stop")
        new.offer()
        messages = new.take(6)
        assert [packet["message"]["payload"]["n"] for packet in messages] == list(range(6))
        assert [packet["message"]["messageId"] for packet in messages[:2]] == [
            packet["message"]["messageId"] for packet in in_hand
        ]
        for packet in messages:
            new.send("done", id=packet["id"])
        new.hear("end")
        wait_until(lambda: shown(server, run)["stepRuns"]["twice"]["status"]["handoff"]["phase"] == "ready")
        assert shown(server, run)["stepRuns"]["twice"]["status"]["handoff"]["strategy"] == "rolling"
        new.send("returned")
    result = server.admin("GET", f"/api/v1/runs/{run}/result?wait=60", timeout=120)
    assert result.status == 200, shown(server, run)["status"]["stepStates"]


def test_who_may_connect(server: Server) -> None:
    """SRV-022, STR-112: only tokens for workers; only their pools and namespaces; a revoked one is sent away."""
    url = server.url.replace("http:", "ws:") + "/api/v1/worker/stream"
    for headers, status in (({}, 401), ({"Authorization": f"Bearer {server.role('viewer').token}"}, 403)):
        with pytest.raises(InvalidStatus) as refused:
            connect(url, additional_headers=headers, open_timeout=60)
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body or b"{}")["status"] == status
    with pytest.raises(InvalidStatus) as elsewhere:
        connect(url.replace("/worker/stream", "/nowhere"), open_timeout=60)
    assert elsewhere.value.response.status_code in (401, 404)
    assert server.role("worker")("GET", "/api/v1/worker/stream").problem[0] == 400
    with connected(server) as worker, pytest.raises(ConnectionClosed, match="not for the pool 'other'"):
        worker.offer(pools=("other",))
    with connected(server) as worker, pytest.raises(ConnectionClosed, match="JSON object"):
        worker.socket.send("no JSON")
        worker.hear("step")
    made = server.admin(
        "POST",
        "/api/v1/tokens",
        {"name": "of-shop", "role": "worker", "pools": ["gpu"], "namespaces": ["shop"]},
    ).json
    start(server, 1)
    with connected(server, made["token"]) as stranger:
        stranger.send("offer", worker="x", pools=["gpu"], providers=["engram:double@1.0.0"])
        stranger.hear_nothing("step")  # the run is in another namespace
        assert server.admin("DELETE", "/api/v1/tokens/of-shop").status in (200, 204)
        with pytest.raises(ConnectionClosed, match="revoked"):
            stranger.hear("step")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_the_streaming_worker_in_javascript_works_as_it_is(server: Server) -> None:
    """STR-112: about 100 lines, without a library."""
    source = EXAMPLES / "stream-worker.mjs"
    assert len(source.read_text().splitlines()) <= 110
    run = start(server, 50)
    command = ["node", "--experimental-websocket", "--no-warnings", str(source), server.url]
    process = subprocess.Popen([*command, str(server.role("worker").token), "gpu"], stderr=subprocess.PIPE, text=True)
    try:
        result = server.admin("GET", f"/api/v1/runs/{run}/result?wait=60", timeout=120)
        assert result.status == 200, result.text
        assert [number for number, _ in noted(server)] == [2 * number for number in range(50)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
