"""Data choose no secret: not by the project, vault or version that make the address of one with its name."""

import asyncio
import json
import secrets
import threading
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.dialects.playbook.world import playbook


class _Manager(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        body = json.dumps({"payload": {"data": b64encode(b"of-the-manager").decode()}, "value": "of-the-manager"})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


@pytest.fixture
def manager() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Manager)
    server.asked = []
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


ELSEWHERE = "p/secrets/admin/versions/latest:access?x="
CASES = {
    "project": ("gcp", 'endpoint: "ADDRESS", project: "{{ workload.w }}"', ELSEWHERE),
    "version": ("gcp", 'endpoint: "ADDRESS", project: p, version: "{{ workload.w }}"', "1/../../../admin/versions/1"),
    "endpoint": ("gcp", 'endpoint: "{{ workload.w }}", project: p', "ADDRESS/v1/projects/p/secrets/admin?x="),
    "vault": ("azure", 'vault: "{{ workload.w }}"', "ADDRESS/secrets/admin?x="),
}


@pytest.mark.parametrize("kind", ["entry", "task"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_default", [False, True])
async def test_the_address_of_a_secret_is_the_documents_own(
    tmp_path: Path, manager: Any, monkeypatch: pytest.MonkeyPatch, kind: str, case: str, is_default: bool
) -> None:
    """What the document gives by its own defaults counts."""
    monkeypatch.setenv("PERDURE_SECRET_CLOUD", f"c-{secrets.token_hex(8)}")
    address = f"http://127.0.0.1:{manager.server_address[1]}"
    provider, fields, template = CASES[case]
    fields, template = fields.replace("ADDRESS", address), template.replace("ADDRESS", address)
    entry = f"provider: {provider}, auth: cloud, {fields}, map: {{k: public}}"
    cloud = "{name: cloud, kind: secret_manager, map: {token: CLOUD}}"
    if kind == "entry":
        keychain = f"[{cloud}, {{name: it, kind: secret_manager, {entry}}}]"
        task = '{kind: shell, cmds: "true", env: {K: "{{ keychain.it.k }}"}}'
    else:
        keychain = f"[{cloud}]"
        task = f"{{kind: secrets, {entry}}}"
    default = json.dumps({"w": template if is_default else ""})
    text = playbook(f"workload: {default}\nkeychain: {keychain}\nworkflow: [{{step: s, tool: {task}}}]")

    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        run = await engine.start(text.encode(), {} if is_default else {"w": template})
        await asyncio.wait_for(engine.wait(run.id), 60)
        shown = await run.show()

    assert bool(manager.asked) is is_default, shown
    assert ("into the document" in json.dumps(shown)) is not is_default
