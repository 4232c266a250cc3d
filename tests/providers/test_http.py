"""The http provider against a real server."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.workers.scene import (
    Ledger,
    at_work,
    details_of,
    failure_of,
    is_cancelled,
    on_loop,
    outcome_of,
    task,
    value_of,
)

from perdure.kernel.outcomes import Outcome
from perdure.providers.http import HttpTimeouts, timeouts_of
from perdure.providers.policy import Policy, use_policy
from perdure.server.tls import OwnCertificate


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.slow_request = threading.Event()  # somebody waits for the slow body
        self.released = threading.Event()  # the slow body may end
        self.huge_was_stopped = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/").replace("-", "_")
        answer: Callable[[], None] = getattr(self, f"answer_{path}", partial(self.reply, 404, b"nothing here"))
        answer()

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def reply(self, status: int, body: bytes, kind: str = "text/plain", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def answer_echo(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        facts = {"method": self.command, "path": self.path, "headers": headers, "body": sent}
        self.reply(200, json.dumps(facts).encode(), "application/json")

    def answer_moved(self) -> None:
        self.reply(302, b"", Location="/echo")

    def answer_circle(self) -> None:
        self.reply(302, b"", Location="/circle")

    def answer_bad_json(self) -> None:
        self.reply(200, b'{"a": NaN}', "application/json")

    def answer_problem(self) -> None:
        self.reply(500, b'{"title": "broken"}', "application/problem+json")

    def answer_busy(self) -> None:
        self.reply(429, b"later", Retry_After="7")

    def answer_busy_until(self) -> None:
        self.reply(503, b"later", Retry_After="Wed, 21 Oct 2015 07:28:00 GMT")

    def answer_binary(self) -> None:
        self.reply(200, b"\xff\x00", "application/octet-stream")

    def answer_latin(self) -> None:
        self.reply(200, "é".encode("latin-1"), "text/plain; charset=iso-8859-1")

    def answer_empty(self) -> None:
        self.reply(200, b"", "application/json")

    def answer_chunked(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (b"one ", b"two"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def answer_slow(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"begun")
        self.wfile.flush()
        self.server.slow_request.set()
        self.server.released.wait(20)
        self.close_connection = True

    def answer_huge(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"x" * 65536)
        except OSError:
            self.server.huge_was_stopped.set()
        self.close_connection = True

    def answer_nonsense(self) -> None:
        self.wfile.write(b"this is not HTTP\r\n\r\n")
        self.close_connection = True

    def answer_hang_up(self) -> None:
        self.close_connection = True


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


async def http(url: str, **arguments: Any) -> Outcome:
    return await outcome_of("http", {"url": url, **arguments})


@on_loop
async def test_a_json_body_is_parsed_and_the_request_is_as_asked(server: Server) -> None:
    result = value_of(
        await http(
            f"{server.url}/echo?in=url",
            method="POST",
            json={"a": [1, None]},
            headers={"X-Color": "red"},
            params={"q": ["a b", 2], "flag": True},
            auth={"type": "bearer", "token": "t0ken"},
        )
    )

    assert result["status"] == 200
    assert result["headers"]["content-type"] == "application/json"
    seen = result["body"]
    assert (seen["method"], seen["path"]) == ("POST", "/echo?in=url&q=a+b&q=2&flag=true")
    assert json.loads(seen["body"]) == {"a": [1, None]}
    assert seen["headers"]["content-type"] == "application/json"
    assert seen["headers"]["x-color"] == "red"
    assert seen["headers"]["authorization"] == "Bearer t0ken"
    assert seen["headers"]["idempotency-key"] == "r1/main/step"


@on_loop
async def test_form_text_and_basic_auth(server: Server) -> None:
    form = value_of(await http(f"{server.url}/echo", method="PUT", form={"a": "1 2"}))["body"]
    text = value_of(await http(f"{server.url}/echo", method="POST", body="plain"))["body"]
    basic = {"type": "basic", "username": "ada", "password": "pw"}
    known = value_of(await http(f"{server.url}/echo", auth=basic))["body"]

    assert (form["body"], form["headers"]["content-type"]) == ("a=1+2", "application/x-www-form-urlencoded")
    assert "idempotency-key" not in form["headers"]
    assert text["body"] == "plain"
    assert known["headers"]["authorization"] == "Basic YWRhOnB3"


@on_loop
async def test_redirects_are_followed_or_shown(server: Server) -> None:
    assert value_of(await http(f"{server.url}/moved"))["body"]["path"] == "/echo"
    view = value_of(await http(f"{server.url}/moved", follow_redirects=False))
    assert (view["status"], view["headers"]["location"], view["body"]) == (302, "/echo", None)
    assert failure_of(await http(f"{server.url}/circle")) == ("Provider.Call.Http.TooManyRedirects", False)


@on_loop
async def test_a_status_is_a_failure_unless_expected(server: Server) -> None:
    missing = await http(f"{server.url}/nowhere?token=abc")

    assert failure_of(missing) == ("Provider.Call.Http.Status404", False)
    assert details_of(missing)["body"] == "nothing here"
    assert "token=abc" not in str(missing)
    assert value_of(await http(f"{server.url}/nowhere", expect=[200, 404]))["status"] == 404
    assert failure_of(await http(f"{server.url}/echo", expect=[201]))[0] == "Provider.Call.Http.Status200"


@on_loop
async def test_a_passing_trouble_may_be_retried_and_says_when(server: Server) -> None:
    busy = await http(f"{server.url}/busy")
    until = await http(f"{server.url}/busy-until")

    assert failure_of(busy) == ("Provider.Call.Http.Status429", True)
    assert details_of(busy)["retry_after"] == 7
    assert failure_of(until) == ("Provider.Call.Http.Status503", True)
    assert details_of(until)["retry_after"] == 0
    assert failure_of(await http(f"{server.url}/problem")) == ("Provider.Call.Http.Status500", True)


@on_loop
async def test_a_body_declared_as_json_must_be_json(server: Server) -> None:
    outcome = await http(f"{server.url}/bad-json")

    assert failure_of(outcome) == ("Provider.Call.Http.InvalidJson", False)
    assert details_of(outcome)["body"] == '{"a": NaN}'


@on_loop
async def test_bodies_of_other_kinds(server: Server) -> None:
    assert value_of(await http(f"{server.url}/chunked"))["body"] == "one two"
    assert value_of(await http(f"{server.url}/latin"))["body"] == "é"
    assert value_of(await http(f"{server.url}/empty"))["body"] is None
    binary = value_of(await http(f"{server.url}/binary"))
    assert (binary["body"], binary["body_encoding"]) == ("/wA=", "base64")


@on_loop
async def test_a_huge_body_is_not_read_to_its_end(server: Server) -> None:
    outcome = await http(f"{server.url}/huge", max_bytes=100_000)

    assert failure_of(outcome) == ("Provider.Call.Http.TooLarge", False)
    assert server.huge_was_stopped.wait(10)


@on_loop
async def test_a_slow_body_runs_into_its_timeout() -> None:
    with serving() as server:
        total = await http(f"{server.url}/slow", timeout=0.2)
        read = await http(f"{server.url}/slow", timeout={"read": 0.2})

    assert failure_of(total) == failure_of(read) == ("Provider.Call.Http.Timeout", True)
    assert (details_of(total)["phase"], details_of(read)["phase"]) == ("total", "read")


@pytest.mark.parametrize(
    ("timeout", "read", "total"),
    [(None, 30.0, 60.0), (200.0, 200.0, 200.0), (5, 5, 5), (HttpTimeouts(total=200.0), 30.0, 200.0)],
)
def test_a_limit_alone_is_the_time_that_a_server_has_to_answer(
    timeout: HttpTimeouts | float | None, read: float, total: float
) -> None:
    times = timeouts_of(timeout)

    assert (times.read, times.total) == (read, total)


@on_loop
async def test_a_request_in_flight_can_be_cancelled() -> None:
    with serving() as server:
        async with at_work() as worker:
            request = task("http", {"url": f"{server.url}/slow"})
            running = asyncio.create_task(worker.run(request, Ledger()))
            await asyncio.to_thread(server.slow_request.wait)
            worker.cancel(request)

            assert is_cancelled(await running)


@on_loop
async def test_no_connection_is_a_failure_that_may_pass(server: Server) -> None:
    with serving() as gone:
        url = gone.url

    assert failure_of(await http(url)) == ("Provider.Call.Http.ConnectionFailed", True)
    assert failure_of(await http(f"{server.url}/hang-up")) == ("Provider.Call.Http.ProtocolError", True)
    assert failure_of(await http(f"{server.url}/nonsense")) == ("Provider.Call.Http.ProtocolError", True)


@on_loop
async def test_tls_with_a_server_that_speaks_none(server: Server) -> None:
    outcome = await http(server.url.replace("http:", "https:"))

    assert failure_of(outcome) == ("Provider.Call.Http.TlsFailed", False)


@on_loop
async def test_a_certificate_is_checked_unless_the_document_says_otherwise(server: Server, tmp_path: Path) -> None:
    """PBK-095 (`verify_ssl`). Where the policy limits addresses it is always checked."""
    server.socket = OwnCertificate(tmp_path, ["127.0.0.1"]).context.wrap_socket(server.socket, server_side=True)
    url = f"{server.url.replace('http:', 'https:')}/echo"

    assert failure_of(await http(url)) == ("Provider.Call.Http.TlsFailed", False)
    assert value_of(await http(url, verify=False))["status"] == 200
    assert failure_of(await http(url)) == ("Provider.Call.Http.TlsFailed", False)  # the connection is not shared
    use_policy(Policy(network="closed", addresses=["127.0.0.1/32"]))
    try:
        assert failure_of(await http(url, verify=False)) == ("Platform.NotAllowed", False)
    finally:
        use_policy(None)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "no scheme", "http://[::bad/", "http://127.0.0.1:99999/", ""])
def test_a_bad_url_is_a_failure(url: str) -> None:
    outcome = asyncio.run(http(url))

    assert failure_of(outcome) == ("Provider.Call.Http.BadUrl", False)


@on_loop
async def test_arguments_are_checked_and_named(server: Server) -> None:
    header = await http(server.url, headers={"bad\nname": "x"})
    both = await http(server.url, method="POST", json=1, body="x")
    typed = await http(server.url, timeout={"connect": "soon"})
    unknown = await http(server.url, methd="GET")

    assert failure_of(header)[0] == "Provider.Call.Http.BadRequest"
    assert {failure_of(item)[0] for item in (both, typed, unknown)} == {"Provider.Call.Http.BadArguments"}
    assert details_of(typed) == {"parameter": "timeout", "path": "timeout.connect"}
    assert "did you mean 'method'?" in str(unknown)
