"""NoETL's own pages in a browser, behind a proxy that also serves a Perdure server, as the guide describes it.

They are not in a registry. `PERDURE_TEST_NOETL_GUI` names a folder in which they were built from their source
(`npm ci && npx vite build` in a checkout of noetl/gui makes `dist`).
"""

import http.client
import json
import mimetypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.server.serving import Server

CONSOLE = Path(__file__).parents[2] / "console"
PAGES = os.environ.get("PERDURE_TEST_NOETL_GUI", "")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or ""
HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "accept-encoding"})

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="PERDURE_TEST_NOETL_GUI does not name a build of NoETL's pages"),
    pytest.mark.skipif(not BROWSER, reason="no Chromium is installed here"),
    pytest.mark.skipif(
        not (CONSOLE / "node_modules" / "playwright-core").exists(), reason="`make console` has not run"
    ),
]


class _Proxy(BaseHTTPRequestHandler):
    """Files for the browser, `/api` for the server, on one origin."""

    protocol_version = "HTTP/1.1"
    target = token = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/"):
            return self._pass_on()
        if path == "/env-config.js":
            origin = f"http://{self.headers['Host']}"
            values = {"VITE_API_MODE": "direct", "VITE_API_BASE_URL": origin, "VITE_ALLOW_SKIP_AUTH": "true"}
            return self._send(200, {"Content-Type": "text/javascript"}, b"window.__NOETL_ENV__=%s" % _json(values))
        file = Path(PAGES) / path.lstrip("/")
        file = file if file.is_file() else Path(PAGES) / "index.html"
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return self._send(200, {"Content-Type": kind}, file.read_bytes())

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        connection = http.client.HTTPConnection(self.target, timeout=60)
        connection.request(self.command, self.path, body, {**headers, "Authorization": f"Bearer {self.token}"})
        answer = connection.getresponse()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP}
        self._send(answer.status, kept, answer.read())
        connection.close()

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        pass


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


@contextmanager
def behind_proxy(folder: Path) -> Iterator[tuple[Server, str]]:
    """A server that knows the address of the proxy, and that address."""
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _Proxy)
    address = f"127.0.0.1:{proxy.server_address[1]}"
    (folder / "settings.toml").write_text(f'[server]\nhosts = ["{address}"]\n')
    server = Server.start(folder, "--config", "settings.toml")
    _Proxy.target, _Proxy.token = urlsplit(server.url).netloc, server.role("author").token or ""
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield server, f"http://{address}"
        server.stop()
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.commands.end_all()


def test_its_pages_run_stop_edit_and_show_playbooks(tmp_path: Path) -> None:
    """Section 9: catalog, forms, executions with their events, cancel and stop, the editor, credentials."""
    admit = {"rules": [{"when": "{{ ctx.approved | default(false) }}", "then": {"allow": True}}]}
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "hello", "path": "examples/hello"},
        "workload": {"who": "world"},
        "workflow": [{"step": "publish", "spec": {"policy": {"admit": admit}}, "tool": {"kind": "noop"}}],
    }
    with behind_proxy(tmp_path) as (server, url):
        author = server.role("author")
        assert author("POST", "/api/catalog/register", {"content": json.dumps(document)}).status == 200
        credential = {"name": "partner", "type": "bearer", "data": {"token": "env:PARTNER"}}
        assert author("POST", "/api/credentials", credential).status == 200
        script = Path(__file__).with_name("noetl_pages.mjs")
        settings = {"console": str(CONSOLE), "chromium": BROWSER, "url": url}
        done = subprocess.run(
            ["node", str(script)], input=json.dumps(settings), capture_output=True, text=True, timeout=280, check=False
        )
        report = json.loads(done.stdout or "{}")
        assert report.get("problems") == [] and report["refused"] == [], (report, done.stderr)
        assert report["valid"] is True and report["saved"] == "success"
        assert "GET /api/catalog/examples/hello/ui_schema" in report["calls"]
        words = [execution["status"] for execution in author("GET", "/api/executions").json]
        assert words == ["CANCELLED", "CANCELLED"]
