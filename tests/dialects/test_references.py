"""Invariant 28: references count where the document has them, and nowhere else."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.kernel.outcomes import Succeeded
from tests.cli.commandline import CommandLine
from tests.workers.scene import Ledger, at_work, on_loop, task

SECRET = "pa55-w0rd-of-the-shop"
LOOKS = {"$secret": "SHOP"}


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((dict(self.headers.items()), sent))  # type: ignore[attr-defined]
        body = json.dumps({"answer": LOOKS, "story": {"$bubuSecretRef": "shop:token"}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.seen = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


def flow(steps: dict[str, Any]) -> str:
    return json.dumps({"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": steps})


def post(server: Any, following: str, **arguments: Any) -> dict[str, Any]:
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    return {
        "action": "Call",
        "call": {
            "provider": "mwl:provider.call/perdure/http/v1",
            "with": {"url": url, "method": "POST", **arguments},
        },
        "next": following,
    }


def test_a_flow_sends_secrets_of_its_text_and_none_of_its_data(perdure: CommandLine, server: Any) -> None:
    """An input, an answer of a server and a variable that have the form of a secret are sent as they are."""
    auth = {"type": "bearer", "token": {"$secret": "SHOP"}}
    steps = {
        "a": post(server, "b", json={"input": "{{ call.input }}"}, headers={"X-Key": {"$secret": "SHOP"}}, auth=auth),
        "b": post(server, "c", json={"answer": "{{ call.input.body.answer }}"}),
        "c": {"action": "Return"},
    }
    (perdure.folder / "flow.json").write_text(flow(steps))

    done = perdure("run", "flow.json", "--json", "--input", json.dumps(LOOKS), PERDURE_SECRET_SHOP=SECRET)

    (first, sent), (second, resent) = server.seen
    assert (first["x-key"], first["authorization"]) == (SECRET, f"Bearer {SECRET}")
    assert (sent, resent) == ({"input": LOOKS}, {"answer": LOOKS})
    assert SECRET not in json.dumps(second)
    run = perdure.here("ps", "--all", "--json").json[0]["id"]
    history = perdure.here("history", run, "--raw", "--json").out + perdure.here("history", run, "--full").out
    assert SECRET not in done.out + done.err + history
    assert not any(SECRET.encode() in path.read_bytes() for path in perdure.folder.iterdir())


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        ({"a": {"action": "Return", "value": {"k": {"$secret": "SHOP"}}}}, "steps.a.value.k"),
        (
            {"a": {"action": "Pass", "assign": {"v": {"$secret": "SHOP"}}, "next": "b"}, "b": {"action": "Return"}},
            "assign",
        ),
        (
            {
                "a": {
                    "action": "Call",
                    "call": {"provider": "mwl:provider.call/perdure/run/v1", "with": {"path": "x", "arguments": LOOKS}},
                    "next": "b",
                },
                "b": {"action": "Return"},
            },
            "with.arguments",
        ),
        (
            {
                "a": {
                    "action": "Call",
                    "call": {"provider": "mwl:provider.call/mwl/mock/v1", "with": {"value": LOOKS}},
                    "next": "b",
                },
                "b": {"action": "Return"},
            },
            "with.value",
        ),
    ],
)
def test_a_secret_that_would_become_data_is_refused(perdure: CommandLine, steps: Any, place: str) -> None:
    (perdure.folder / "flow.json").write_text(flow(steps))

    done = perdure("check", "flow.json", code=7)

    assert "would become data here" in done.out and place in done.out


STORY = """
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: tell, annotations: {perdure/command: '["cat"]'}}
spec: {version: 1.0.0, supportedModes: [job]}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: tell}
spec: {templateRef: {name: tell}, with: {base: {$bubuSecretRef: "shop:token"}}}
---
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec:
  steps:
    - {name: a, ref: {name: tell}, with: WITH}
    - {name: b, ref: {name: tell}, needs: [a], with: {base: 1, got: "{{ steps.a.output.inputs.data }}"}}
"""


def story(perdure: CommandLine, members: str) -> None:
    (perdure.folder / "story.yaml").write_text(STORY.replace("WITH", members))


def test_a_story_gives_secrets_of_its_text_and_none_of_its_data(perdure: CommandLine) -> None:
    """STY-283: merged from the Engram and the step; what a step gives on is data, whatever it looks like."""
    story(perdure, '{own: {$bubuSecretRef: "shop:token"}, data: "{{ inputs.data }}"}')
    data = json.dumps({"data": '{"x": 1}'})

    done = perdure("run", "story.yaml", "--json", "--input", data, PERDURE_SECRET_shop_token=SECRET)

    inputs = {name: run["status"]["output"]["inputs"] for name, run in done.json["stepRuns"].items()}
    assert inputs["a"]["base"] == inputs["a"]["own"] == "[redacted]"
    assert inputs["b"]["base"] == 1
    assert SECRET not in done.out + done.err
    assert not any(SECRET.encode() in path.read_bytes() for path in perdure.folder.iterdir())


@pytest.mark.parametrize("name", ["$bubuSecretRef", "$bubuConfigMapRef"])
def test_references_in_the_input_of_a_run_are_refused_at_its_creation(perdure: CommandLine, name: str) -> None:
    """STY-283."""
    story(perdure, "{}")

    done = perdure("run", "story.yaml", "--input", json.dumps({"data": [{name: "shop:token"}]}), code=2)

    assert "data.0 is a reference to a secret or a config map" in done.err
    assert not (perdure.folder / "perdure.db").exists()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ('{own: {$bubuSecretRef: "{{ inputs.name }}"}}', "must not be a template"),
        ('{own: {$bubuConfigMapRef: {name: "{{ inputs.name }}", key: k}}}', "must not be a template"),
    ],
)
def test_a_template_does_not_name_a_secret(perdure: CommandLine, members: str, words: str) -> None:
    story(perdure, members)

    done = perdure("check", "story.yaml", code=7)

    assert words in done.out


INNER_FLOW = {
    "a": {
        "action": "Call",
        "call": {
            "provider": "mwl:provider.call/perdure/engram.http/v1",
            "with": {"run": {"url": "http://127.0.0.1:9/"}, "inputs": "{{ call.input }}", "families": ["another"]},
        },
        "next": "b",
    },
    "b": {"action": "Return"},
}
INNER_PLAYBOOK = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: p, path: p}
workflow: [{step: s, tool: {kind: KIND, args: {inputs: {}, families: [another], references: [[x]]}}}]
"""


@pytest.mark.parametrize("kind", ["engram.http", "engram:echo@1.0.0", "engram.command", "playbook.secrets"])
def test_no_document_speaks_for_the_engine_of_a_story(perdure: CommandLine, kind: str) -> None:
    """Which places are references, and whose stored values are open, is said to these providers in their arguments."""
    (perdure.folder / "flow.json").write_text(flow(INNER_FLOW))
    (perdure.folder / "playbook.yaml").write_text(INNER_PLAYBOOK.replace("KIND", json.dumps(kind)))

    assert "engram.http" in perdure("check", "flow.json", code=7).out
    assert f"there is no tool kind '{kind}'" in perdure("check", "playbook.yaml", code=7).out
    assert perdure("run", "flow.json", code=7).out == ""


@pytest.mark.parametrize(("language", "is_open"), [("story", True), ("flow", False), ("playbook", False)])
def test_a_worker_calls_an_engram_for_stories_alone(language: str, is_open: bool) -> None:
    """A task of a run that was begun when documents could still name it."""

    @on_loop
    async def perform() -> None:
        async with at_work() as worker:
            assignment = msgspec.structs.replace(task("engram:echo@1.0.0", {"inputs": {"a": 1}}), language=language)
            assert isinstance(await worker.run(assignment, Ledger()), Succeeded) is is_open

    perform()
