"""Workers as processes of their own: `perdure worker`, and those of `examples/workers`; stopped, killed, cut off."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commandline import CommandLine, Running
from tests.server.serving import PATIENCE, Api, Server

EXAMPLES = Path(__file__).parents[2] / "examples" / "workers"

CODE = '''
import pathlib, time
import perdure

@perdure.provider("mark")
def mark(name: str, context) -> str:
    """Each execution leaves a line."""
    with open("marks", "a") as marks:
        marks.write(name + "\\n")
    print("marking", name)
    return name

@perdure.provider("hold")
def hold(name: str, context) -> str:
    """Works until it is let go, or asked to stop."""
    with open("held", "a") as held:
        held.write(name + "\\n")
    while not pathlib.Path("let-go").exists():
        context.raise_if_cancelled() if hasattr(context, "raise_if_cancelled") else None
        time.sleep(0.02)
    with open("marks", "a") as marks:
        marks.write(name + "\\n")
    return name

@perdure.provider("pay")
async def pay(amount: int, context) -> dict:
    async def charge() -> dict:
        with open("payments", "a") as payments:
            payments.write(f"{amount}\\n")
        return {"paid": amount}
    return await context.effect_once("pay", charge)
'''


def calls(provider: str, **arguments: Any) -> dict[str, Any]:
    return {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "go",
        "steps": {
            "go": {
                "action": "Call",
                "call": {"provider": f"mwl:provider.call/perdure/{provider}/v1", "with": arguments},
                "next": "done",
            },
            "done": {"action": "Return"},
        },
    }


ROUTES = [word for name in ("mark", "hold", "pay", "greet", "charge", "upper") for word in ("--route", f"{name}=gpu")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "settings.toml").write_text("[workers]\nlease = 3.0\n")
    running = Server.start(tmp_path, "--config", "settings.toml", *ROUTES)
    try:
        yield running
    finally:
        running.commands.end_all()


def token_file(server: Server) -> str:
    path = server.commands.folder / "token"
    path.write_text(f"{server.role('worker').token}\n")
    return f"@{path}"


def start_worker(server: Server, *words: str, url: str | None = None) -> Running:
    command = ("worker", "--server", url or server.url, "--token", token_file(server), "--load", "./code.py", *words)
    worker = server.commands.start(*command)
    worker.hear("working for gpu")
    return worker


def result(api: Api, run: str) -> Any:
    while (reply := api("GET", f"/api/v1/runs/{run}/result?wait=20", timeout=60)).status == 202:
        pass
    assert reply.status == 200, reply.text
    return reply.json


def lines(server: Server, name: str) -> list[str]:
    path = server.commands.folder / name
    return path.read_text().split() if path.exists() else []


def wait_for_log(server: Server, run: str, text: str) -> None:
    """Logs are written some time after they were sent."""
    for _ in range(600):
        if text in server.commands.here("logs", run).out:
            return
        time.sleep(0.1)
    raise AssertionError(f"{text!r} is not in the log of {run}")


def wait_for_line(server: Server, name: str, count: int = 1) -> None:
    for _ in range(6_000):
        if len(lines(server, name)) >= count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{name} has {lines(server, name)}")


def test_a_worker_does_what_it_is_sent_and_drains_when_stopped(server: Server) -> None:
    """SRV-031: on SIGTERM what is in hand is finished, and nothing is doubled; what it printed is the run's."""
    worker = start_worker(server, "--slots", "2")
    admin = server.admin
    runs = [admin.start(calls("mark", name=f"m{n}")) for n in range(6)]
    assert [result(admin, run)["value"] for run in runs] == [f"m{n}" for n in range(6)]
    assert result(admin, admin.start(calls("pay", amount=5)))["value"] == {"paid": 5}
    held = admin.start(calls("hold", name="h"))
    wait_for_line(server, "held")
    worker.send(signal.SIGTERM)
    worker.hear("stopping; 1 tasks in hand may end")
    (server.commands.folder / "let-go").touch()
    done = worker.end()
    assert done.code == 0, done
    assert result(admin, held)["value"] == "h"
    assert sorted(lines(server, "marks")) == ["h", *(f"m{n}" for n in range(6))]
    assert lines(server, "payments") == ["5"]
    wait_for_log(server, runs[0], "marking m0")
    server.stop()


def test_a_killed_worker_s_task_is_the_next_delivery_of_another(server: Server) -> None:
    """SRV-033: kill -9 and SIGSTOP alike; who comes back late changes nothing."""
    killed, stopped = (start_worker(server, "--slots", "1", "--name", name) for name in ("killed", "stopped"))
    admin = server.admin
    runs = [admin.start(calls("hold", name=f"h{n}")) for n in range(2)]
    wait_for_line(server, "held", 2)
    killed.kill()
    stopped.send(signal.SIGSTOP)
    start_worker(server, "--slots", "2", "--name", "heir")
    wait_for_line(server, "held", 4)
    (server.commands.folder / "let-go").touch()
    assert [result(admin, run)["value"] for run in runs] == ["h0", "h1"]
    stopped.send(signal.SIGCONT)
    stopped.send(signal.SIGTERM)
    assert stopped.end().code == 0
    for run in runs:
        history = admin("GET", f"/api/v1/runs/{run}/events?raw=true").json["items"]
        names = [event["event"] for event in history]
        assert names.count("TaskEnded") == 1 and names.count("TaskRedelivered") >= 1, names
    server.stop()


def test_a_worker_outlives_a_killed_server(server: Server) -> None:
    """SRV-031: the server dies with a task in a worker's hand and comes back: the answer counts, once."""
    port = server.url.rpartition(":")[2]
    worker = start_worker(server, "--slots", "1", "--name", "patient")
    run = server.admin.start(calls("hold", name="h"))
    wait_for_line(server, "held")
    admin = server.admin
    server.process.kill()
    (server.commands.folder / "let-go").touch()
    wait_for_line(server, "marks")
    again = CommandLine(server.commands.folder, timeout=PATIENCE)
    try:
        process = again.start("serve", "--listen", f"127.0.0.1:{port}", "--config", "settings.toml", *ROUTES)
        process.hear("listening on ")
        assert result(admin, run)["value"] == "h"
        history = admin("GET", f"/api/v1/runs/{run}/events?raw=true").json["items"]
        assert [event["event"] for event in history].count("TaskEnded") == 1
        worker.send(signal.SIGTERM)
        assert worker.end().code == 0
        process.send(signal.SIGTERM)
        assert process.end().code == 0
    finally:
        again.end_all()


STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: hello}
spec:
  steps: [{name: greet, ref: teller, with: {name: Ada}}]
  output: {text: "{{ steps.greet.output.text }}"}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: teller, annotations: {perdure.dev/pool: gpu}}
spec: {templateRef: {name: teller}}
---
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: teller}
spec: {version: 1.0.0, image: "example.org/teller:1", supportedModes: [job]}
"""
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: signs, path: signs}
executor: {spec: {pool: gpu}}
keychain: [{name: shop, kind: secret_manager, provider: env, map: {token: SHOP_TOKEN}}]
workflow:
  - step: sign
    tool:
      - sign: {kind: sign, token: "{{ keychain.shop.token }}", text: hi}
      - say: {kind: mark, args: {name: "{{ _prev.length }}"}}
"""
ELSEWHERE = """
@perdure.engram("teller", version="1.0.0")
def tell(inputs, context):
    return {"text": "Hello, " + inputs["name"]}

@perdure.provider("sign")
def sign(token: str, text: str, context) -> dict:
    print("signing with", token)
    return {"length": str(len(token)), "token": token}
"""


def test_every_language_reaches_its_pool_and_secrets_stay_with_the_worker(tmp_path: Path) -> None:
    """SRV-030, SRV-073, PBK-197: a document names the pool; a sealed task goes only to who opens it."""
    (tmp_path / "code.py").write_text(CODE + ELSEWHERE)
    (tmp_path / "story.yaml").write_text(STORY)
    routes = (
        "--route",
        "sign=other",
        "--route",
        "mark=other",
    )  # they declare the providers; the document's pool counts
    server = Server.start(tmp_path, "--apply", "story.yaml", *routes)
    try:
        admin = server.admin
        playbook = admin.start(PLAYBOOK)
        body = {"worker": "stranger", "pools": ["gpu"], "wait": 0}
        assert server.role("worker")("POST", "/api/v1/worker/lease", body).json["tasks"] == []
        assert "opens playbook" in server.commands.here("show", playbook).out
        secret = "s3cr3t-of-the-worker"
        words = ("worker", "--server", server.url, "--token", token_file(server), "--load", "./code.py")
        worker = server.commands.start(*words, PERDURE_SECRET_SHOP_TOKEN=secret)
        ended = result(admin, playbook)
        assert ended["status"] == "succeeded", ended
        reply = admin("POST", "/api/v1/runs", {"name": "hello"})
        assert reply.status == 202, reply.text
        assert result(admin, reply.json["id"])["value"] == {"text": "Hello, Ada"}
        assert lines(server, "marks") == [str(len(secret))]
        wait_for_log(server, playbook, "signing with")
        logs = server.commands.here("logs", playbook).out
        worker.send(signal.SIGTERM)
        assert worker.end().code == 0
        server.stop()
        stored = b"".join(path.read_bytes() for path in tmp_path.glob("perdure.db*") if path.is_file())
        assert secret.encode() not in stored and secret not in logs
    finally:
        server.commands.end_all()


def test_a_wrong_token_and_missing_words_are_told(server: Server) -> None:
    refused = server.commands("worker", "--server", server.url, "--token", "pdr_wrong", code=10)
    assert "access token" in refused.err
    assert "--server" in server.commands("worker", "--token", "x", code=2).err
    assert "cannot be read" in server.commands("worker", "--server", server.url, "--token", "@none", code=2).err
    server.stop()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_the_worker_in_javascript_works_as_it_is(server: Server) -> None:
    """SRV-032: about 100 lines, Node's standard library only."""
    source = EXAMPLES / "worker.mjs"
    assert len(source.read_text().splitlines()) <= 110
    command = ["node", str(source), server.url, str(server.role("worker").token), "gpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        greeted = [server.admin.start(calls("greet", name=f"Ada {n}")) for n in range(10)]
        charged = server.admin.start(calls("charge", amount=7))
        failed = server.admin.start(calls("charge"))
        assert [result(server.admin, run)["value"] for run in greeted] == [f"Hello, Ada {n}!" for n in range(10)]
        assert result(server.admin, charged)["value"] == {"amount": 7}
        assert result(server.admin, failed)["value"] == {}
        wait_for_log(server, charged, "charging 7")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    server.stop()


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")
def test_the_worker_in_shell_works_as_it_is(server: Server) -> None:
    env = {"PATH": "/usr/bin:/bin", "URL": server.url, "TOKEN": str(server.role("worker").token), "POOL": "gpu"}
    process = subprocess.Popen(["sh", str(EXAMPLES / "worker.sh")], env=env, stderr=subprocess.PIPE, text=True)
    try:
        runs = [server.admin.start(calls("upper", text=text)) for text in ("ada", 'quo"te\\ and\nline')]
        empty = server.admin.start(calls("upper"))
        assert [result(server.admin, run)["value"] for run in runs] == ["ADA", 'QUO"TE\\ AND\nLINE']
        assert result(server.admin, empty)["error"]["code"] == "Upper.NoText"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    server.stop()
