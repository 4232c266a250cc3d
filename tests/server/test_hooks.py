"""Outgoing hooks: ends of runs as signed CloudEvents, at least once (SRV-043)."""

import base64
import hashlib
import hmac
import json
import signal
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perdure.server.hook_settings import HookSettings, read_hook, read_hooks
from perdure.server.run_hooks import LONGEST_PAUSE, pause_after
from perdure.views.errors import BadRequest
from tests.server.serving import RETURNS, WAITS, Api, Server

SECRET = "whsec_" + base64.b64encode(b"planted-hook-secret").decode()


class Receiver:
    """A real receiver: it checks each signature, and answers as it is told."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], int] = lambda event: 204
        self.changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.check(self.headers, body)
                event = json.loads(body)
                status = receiver.answer(event)
                with receiver.changed:
                    receiver.received.append(event)
                    receiver.changed.notify_all()
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def check(self, headers: Any, body: bytes) -> None:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        made = hmac.new(b"planted-hook-secret", signed, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(made).decode()}"
        assert headers["Content-Type"] == "application/cloudevents+json"
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 300
        assert json.loads(body)["id"] == headers["webhook-id"]

    def wait(self, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        with self.changed:
            assert self.changed.wait_for(lambda: enough(self.received), 120), self.received
            return list(self.received)

    def url(self, path: str) -> str:
        return f"http://someone:planted-password@127.0.0.1:{self.http.server_port}{path}?key=planted-key"


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.http.shutdown()
        thread.join(60)
        receiver.http.server_close()


def settings(folder: Path, *hooks: dict[str, Any]) -> str:
    """A settings file with these hooks."""
    (folder / "secret").write_text(SECRET)
    lines = []
    for hook in hooks:
        lines.append("[[hooks]]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in {"secret_file": "secret", **hook}.items()]
    (folder / "settings.toml").write_text("\n".join(lines) + "\n")
    return "settings.toml"


def deliveries(admin: Api, hook: str, state: str, count: int) -> list[dict[str, Any]]:
    """Those in this state, once there are so many."""
    deadline = time.monotonic() + 120
    while len(items := admin("GET", f"/api/v1/hooks/{hook}/deliveries?state={state}").json["items"]) < count:
        assert time.monotonic() < deadline, items
        time.sleep(0.1)
    return list(items)


def test_ends_of_runs_are_sent_signed_and_visibly(tmp_path: Path) -> None:
    """SRV-043: by status, name and label; failures are tried again; given up, paused and resumed by an admin."""
    with receiving() as receiver:
        config = settings(
            tmp_path,
            {"id": "reds", "url": receiver.url("/red"), "status": ["succeeded"], "label": "team=red"},
            {"id": "dying", "url": receiver.url("/dying"), "name": "waits", "give_up": 0},
        )
        refused = {"count": 0}

        def answer(event: dict[str, Any]) -> int:
            if event["data"]["name"] == "waits":
                return 500
            refused["count"] += 1
            return 503 if refused["count"] == 1 else 204

        receiver.answer = answer
        server = Server.start(tmp_path, "--config", config)
        try:
            admin = server.admin
            run = admin.start(RETURNS, labels={"team": "red"})
            admin.start(RETURNS, labels={"team": "blue"})
            events = receiver.wait(lambda received: len(received) >= 2)
            assert events[0] == events[1], "the same event again"
            event = events[0]
            assert (event["specversion"], event["type"], event["subject"]) == ("1.0", "dev.perdure.run.ended", run)
            assert event["source"] == "/perdure/namespaces/default" and event["time"] == event["data"]["at"]
            assert (event["data"]["id"], event["data"]["status"]) == (run, "succeeded")
            (done,) = deliveries(admin, "reds", "delivered", 1)
            assert (done["run"], done["attempts"], done["status"], done["error"]) == (run, 2, 204, None)

            assert admin("POST", "/api/v1/hooks/dying/pause").json == {"name": "dying", "paused": True}
            waits = admin.start(WAITS)
            admin("POST", f"/api/v1/runs/{waits}/signals/go", {"value": 1})
            (kept,) = deliveries(admin, "dying", "open", 1)
            assert kept["attempts"] == 0
            admin("POST", "/api/v1/hooks/dying/resume")
            (dead,) = deliveries(admin, "dying", "dead", 1)
            assert (dead["run"], dead["status"], dead["error"]) == (waits, 500, "answered 500")
            receiver.answer = lambda event: 200
            assert admin("POST", "/api/v1/hooks/dying/retry").json == {"name": "dying", "retried": 1}
            assert deliveries(admin, "dying", "delivered", 1)[0]["run"] == waits

            shown = admin("GET", "/api/v1/hooks")
            assert [hook["name"] for hook in shown.json["items"]] == ["dying", "reds"]
            assert shown.json["items"][1]["address"] == f"http://127.0.0.1:{receiver.http.server_port}/red"
            assert server.role("operator")("GET", "/api/v1/hooks").problem == (403, "ACCESS-DENIED")
            assert admin("POST", "/api/v1/hooks/nobody/pause").problem == (404, "HOOK-NOT-FOUND")
            audited = {item["verb"] for item in admin("GET", "/api/v1/audit").json["items"]}
            assert {"pause_hook", "resume_hook", "retry_hook"} <= audited
            server.stop()
            seen = shown.text + "".join(server.process.heard).encode()
            seen += b"".join(file.read_bytes() for file in tmp_path.glob("perdure.db*") if file.is_file())
            assert b"planted" not in seen and SECRET.encode() not in seen
        finally:
            server.commands.end_all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_killed_server_loses_no_delivery(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    """SRV-043: at least once over kill -9, before and while something is sent; each end is one event."""
    words: list[str] = []
    if store == "postgres":
        from tests.postgres import as_url

        url = as_url(request.getfixturevalue("postgres_url"))
        words = ["--db", url, "--lease", "3s", "--data", "perdure.db-server"]
    with receiving() as receiver:
        config = settings(tmp_path, {"id": "all", "url": receiver.url("/"), "timeout": 1})
        hanging = threading.Event()

        def hang(event: dict[str, Any]) -> int:
            hanging.wait(60)  # the server is killed while it waits for the answer
            return 500

        receiver.answer = hang
        server = Server.start(tmp_path, "--config", config, *words)
        runs = [server.admin.start(RETURNS) for _ in range(5)]
        for run in runs:
            server.admin.result(run)
        deliveries(server.admin, "all", "open", 1)
        server.process.send(signal.SIGKILL)
        server.process.end()
        hanging.set()
        receiver.answer = lambda event: 204
        again = Server.start(tmp_path, "--config", config, *words)
        try:
            done = deliveries(again.admin, "all", "delivered", 5)
            assert sorted(delivery["run"] for delivery in done) == sorted(runs)
            ids = {(event["subject"], event["id"]) for event in receiver.received}
            assert len(ids) == 5 and {run for run, _ in ids} == set(runs)
            again.stop()
        finally:
            again.commands.end_all()


class Endless(socketserver.BaseRequestHandler):
    """Announces its answer for ever."""

    def handle(self) -> None:
        self.request.recv(1 << 16)
        try:
            while True:
                self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)
        except OSError:
            pass


def test_a_hostile_receiver_holds_up_nobody(tmp_path: Path) -> None:
    """SRV-043: one that never answers took the places of all hooks, one that answers for ever stopped the server."""
    silence = threading.Event()
    with (
        receiving() as receiver,
        receiving() as silent,
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Endless) as endless,
    ):
        endless.daemon_threads = True
        threading.Thread(target=endless.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        silent.answer = lambda event: 500 + silence.wait(240)
        config = settings(
            tmp_path,
            {"id": "silent", "url": silent.url("/"), "timeout": 300},
            {"id": "endless", "url": f"http://127.0.0.1:{endless.server_address[1]}/"},
            {"id": "well", "url": receiver.url("/")},
        )
        server = Server.start(tmp_path, "--config", config)
        try:
            runs = {server.admin.start(RETURNS) for _ in range(20)}
            receiver.wait(lambda received: {event["subject"] for event in received} == runs)
            while not (
                errors := [row["error"] for row in deliveries(server.admin, "endless", "open", 1) if row["error"]]
            ):
                time.sleep(0.1)
            assert "more than 1000 headers" in errors[0]
        finally:
            silence.set()
            server.commands.end_all()
            endless.shutdown()


def test_settings_of_a_hook_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for wrong, why in (
        ({"url": "ftp://x"}, "is not an address"),
        ({"url": "http://x"}, "needs one of"),
        ({"url": "http://x", "secret": "a", "secret_env": "B"}, "needs one of"),
        ({"url": "http://x", "secret_env": "PERDURE_NO_SUCH_VARIABLE"}, "is empty"),
        ({"url": "http://x", "secret_file": str(tmp_path / "none")}, "cannot be read"),
        ({"url": "http://x", "secret": "a", "status": "running"}, "tells of ends"),
        ({"url": "http://x", "secret": "a", "status": "gone"}, "is not a status"),
        ({"url": "http://x", "secret": "a", "label": "red"}, "is not a label"),
        ({"url": "http://x", "secret": "a", "id": "a/b"}, "without a slash"),
    ):
        with pytest.raises(BadRequest, match=why):
            read_hook(HookSettings(**wrong))  # type: ignore[arg-type]
    same = HookSettings("http://x", secret="a")
    with pytest.raises(BadRequest, match="twice"):
        read_hooks([same, same])
    assert read_hook(HookSettings("https://u:p@x/y?k#f", secret="s")).address == "https://x/y"
    assert read_hook(HookSettings("http://x", secret=SECRET)).key == b"planted-hook-secret"


def test_pauses_between_attempts_double_up_to_an_hour() -> None:
    assert [pause_after(attempts, 0, 0.5) for attempts in (1, 2, 5, 12, 13, 500)] == [1, 2, 16, 2_048, 3_600, 3_600]
    assert pause_after(1, 30, 0.5) == 30 and pause_after(1, 10**6, 0.5) == LONGEST_PAUSE
    assert 0.8 <= pause_after(1, 0, 0.0) < pause_after(1, 0, 1.0) < 1.21
