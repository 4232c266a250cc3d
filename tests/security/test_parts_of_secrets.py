"""A secret that is JSON or a URL is hidden with its parts: whoever is given one reads them, and says them again."""

import json
import secrets
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import perdure as perdure_engine
from perdure.kernel.secrets.secret_masking import Mask
from tests.cli.commandline import CommandLine
from tests.dialects.planting import everything_said

STORY = """
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: tell, annotations: {perdure/command: '["cat"]'}}
spec: {version: 1.0.0, supportedModes: [job]}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: tell}
spec: {templateRef: {name: tell}}
---
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec:
  steps:
    - {name: a, ref: {name: tell}, with: {x: {$bubuSecretRef: "shop:login"}}}
"""


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


def test_members_of_a_json_secret_are_in_no_history(perdure: CommandLine) -> None:
    """An Engram gets such a secret as an object, and its members one by one are what it says again."""
    password, token = (f"p-{secrets.token_urlsafe(12)}" for _ in range(2))
    login = json.dumps({"user": "bob", "password": password, "more": {"tokens": [token]}}, indent=1)
    (perdure.folder / "story.yaml").write_text(STORY)

    done = perdure("run", "story.yaml", "--json", PERDURE_SECRET_shop_login=login)

    inputs = done.json["stepRuns"]["a"]["status"]["output"]["inputs"]["x"]
    assert inputs == {"user": "bob", "password": "[redacted]", "more": {"tokens": ["[redacted]"]}}
    texts = everything_said(perdure, done, written=frozenset({"story.yaml"}))
    assert [where for where, text in texts.items() if password.encode() in text or token.encode() in text] == []


@pytest.mark.parametrize("form", ["postgresql://bob:{}@db/shop?x=1", "amqp://:{}@queue", "https://u:{}@h:99/p"])
def test_the_password_of_a_url_is_hidden_alone(form: str) -> None:
    password = f"{secrets.token_hex(8)}%2F{secrets.token_hex(4)}"
    mask = Mask()
    mask.add(form.format(password))

    assert mask.text(f"refused: {password} of bob") == "refused: [redacted] of bob"
    assert mask.text(f"refused: {password.replace('%2F', '/')}") == "refused: [redacted]"


@pytest.mark.parametrize(
    "form", ["host=db password={} user=bob", "host=db password = '{}'", "Server=db;Uid=bob;Pwd={};"]
)
def test_the_password_of_a_connection_is_hidden_alone(form: str) -> None:
    password = secrets.token_hex(8)
    mask = Mask()
    mask.add(form.format(password))

    assert mask.text(f"refused: {password} of bob") == "refused: [redacted] of bob"


def test_what_is_public_in_a_secret_stays() -> None:
    mask = Mask()
    mask.add(json.dumps({"host": "db.internal", "client_email": "bob@example.org", "mode": "live", "pin": 987654321}))

    text = "bob@example.org asked db.internal, which is live"
    assert mask.text(text) == text
    assert mask.data({"pin": 987654321}) == {"pin": "[redacted]"}


@pytest.mark.parametrize("secret", ["{not json", "[" * 5_000, "{" + "x" * 70_000, "https://nobody", '["\ud800"]'])
def test_what_only_looks_as_if_it_had_parts_is_hidden_whole(secret: str) -> None:
    mask = Mask()
    mask.add(secret)

    assert mask.text(f"<{secret}>") == "<[redacted]>"


class _NotThere(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        body = json.dumps({"path": self.path, "segment": self.path.partition("?")[0].rpartition("/")[2]}).encode()
        self.send_response(404 if "lost" in self.path else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.parametrize("form", ["http://127.0.0.1:{}/lost/T0/{}?wait={}", "HTTP://Localhost:{}/there/T0/{}?wait={}"])
async def test_an_address_that_is_a_secret_is_in_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """As those of webhooks are: a failure names the address without its query, and a server repeats its path."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _NotThere)
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    key, other = secrets.token_hex(12), secrets.token_hex(6)
    monkeypatch.setenv("PERDURE_SECRET_HOOK", form.format(server.server_address[1], key, other))
    call = {"provider": "mwl:provider.call/perdure/http/v1", "with": {"url": {"$secret": "HOOK"}}}
    steps = {"a": {"action": "Call", "call": call, "next": "b"}, "b": {"action": "Return"}}
    flow = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": steps}
    try:
        async with perdure_engine.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
            run = await engine.start(flow)
            await engine.wait(run.id)
            output = json.dumps([await run.show(), await run.history(raw=True)])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert "[redacted]" in output and key not in output and other not in output
    assert key.encode() not in stored and other.encode() not in stored
