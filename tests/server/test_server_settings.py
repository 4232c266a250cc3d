"""What an operator sets for a server: limits, addresses that tasks may reach; and a disk that is full."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import RETURNS, WAITS, Api, Server
from tests.stores.test_sqlite_small_disk import small_disk

__all__ = ["small_disk"]

SETTINGS = '[limits]\nstreams = 2\n[policy]\naddresses = ["127.0.0.2/32"]\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "settings.toml").write_text(SETTINGS)
    running = Server.start(folder, "--config", "settings.toml")
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


class Receiver(ThreadingHTTPServer):
    """Answers `/`, redirects `/away` to the same port on another address, and counts who came."""

    def __init__(self, host: str, port: int = 0) -> None:
        self.paths: list[str] = []
        super().__init__((host, port), Answering)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    server: Receiver

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        if self.path == "/away":
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/secret")
        else:
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *words: Any) -> None:
        pass


def test_a_stream_too_many_is_429_and_one_that_ends_gives_its_place_back(server: Server) -> None:
    """SRV-011, SRV-015: also a watch of the Kubernetes API, and a stream of all runs."""
    admin = server.admin
    run = admin.start(WAITS)
    path = f"/api/v1/runs/{run}/events"
    streams = [admin.follow(path), admin.follow("/api/v1/events")]
    assert [stream.response.status for stream in streams] == [200, 200]
    next(streams[0].events())
    for further in (path, "/api/v1/events"):
        refused = admin("GET", further, Accept="text/event-stream", timeout=30)
        assert refused.problem == (429, "TOO-MANY-REQUESTS") and int(refused.headers["retry-after"]) >= 1
    watch = admin("GET", "/apis/bubustack.io/v1alpha1/stories?watch=true", timeout=30)
    assert (watch.status, watch.json["reason"]) == (429, "TooManyRequests")
    assert server.role("viewer")("GET", "/api/v1/whoami").status == 200, "another token has its own"
    admin("POST", f"/api/v1/runs/{run}/cancel", {})
    assert list(streams[0].events())[-1]["event"] == "RunEnded"
    again = admin.follow(f"/api/v1/runs/{admin.start(WAITS)}/events")
    assert again.response.status == 200
    for stream in (again, streams[1]):
        stream.close()


def test_tasks_reach_only_addresses_that_the_operator_allows(server: Server) -> None:
    """SRV-024: judged by address, whatever it is called, and again at a redirect; nothing is tried twice."""
    open_one = Receiver("127.0.0.2")
    closed = Receiver("127.0.0.1", open_one.server_port)
    port = open_one.server_port

    def fetch(url: str) -> Any:
        call = {"provider": "mwl:provider.call/perdure/http/v1", "with": {"method": "GET", "url": url}}
        flow = {
            "$schema": "https://mwl.dev/v0.1/flow/schema.json",
            "entrypoint": "get",
            "steps": {"get": {"action": "Call", "call": call, "next": "end"}, "end": {"action": "Return", "value": 1}},
        }
        return server.admin("POST", "/api/v1/runs", {"document": flow}, Prefer="wait=60").json

    try:
        assert fetch(f"{open_one.url}/")["status"] == "succeeded"
        forbidden = [
            f"{open_one.url}/away",
            f"http://127.0.0.1:{port}/",
            f"http://localhost:{port}/",
            f"http://[::ffff:127.0.0.1]:{port}/",
            "http://0.0.0.0/",
            "http://100.64.0.1/",
            "http://169.254.169.254/latest/meta-data",
            "http://[::1]/",
            "http://[64:ff9b::7f00:1]/",
            server.url,
        ]
        for url in forbidden:
            ended = fetch(url)
            assert (ended["status"], ended["error"]["code"]) == ("failed", "Provider.Call.Http.AddressRefused"), url
        assert (open_one.paths, closed.paths) == (["/", "/away"], [])
    finally:
        for receiver in (open_one, closed):
            receiver.shutdown()
            receiver.server_close()


def test_a_full_store_is_503_and_still_answers_what_it_has(tmp_path: Path, small_disk: Path) -> None:
    """SRV-003, SRV-011: `/readyz` says so too; what was answered before is there."""
    server = Server.start(tmp_path, "--db", f"sqlite:///{small_disk}/runs.db", "--data", "data")
    api = Api(server.url, (tmp_path / "data" / "admin-token").read_text().strip())
    try:
        started: list[str] = []
        while True:
            reply = api("POST", "/api/v1/runs", {"document": WAITS, "input": "x" * 200_000})
            if reply.status != 202:
                break
            started.append(reply.json["id"])
        assert reply.problem == (503, "STORE-FULL") and int(reply.headers["retry-after"]) >= 1
        assert started and api("GET", f"/api/v1/runs/{started[-1]}").json["status"] == "waiting"
        assert server.nobody("GET", "/readyz").status == 503
        assert api("POST", "/api/v1/runs", {"document": RETURNS}).problem[0] == 503
        listed = {item["id"] for item in api("GET", "/api/v1/runs").json["items"]}
        assert listed == set(started), "what was refused is not there"
    finally:
        server.process.kill()
        server.commands.end_all()
