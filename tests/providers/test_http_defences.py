"""What a response, a redirect or an address cannot do to the `http` provider."""

import asyncio
import gzip
import json
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.workers.scene import Ledger, at_work, details_of, failure_of, on_loop, outcome_of, task, value_of

from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Outcome
from perdure.providers import addresses
from perdure.providers.addresses import is_allowed
from perdure.providers.http_bodies import LARGEST_BODY, ResponseMemory
from perdure.providers.policy import Policy, use_policy
from perdure.providers.registry import shared
from perdure.providers.text import family_at_work

BOMB = gzip.compress(b"\0" * 50_000_000, 9)


class Server(ThreadingHTTPServer):
    other = ""  # where redirects lead
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, dict[str, str], str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((f"{self.command} {self.path}", headers, body))
        kind, _, rest = self.path.strip("/").partition("/")
        if kind == "to":
            status, _, path = rest.partition("/")
            self.reply(
                b"", status=int(status), Location=f"{self.server.other}/{path}", Set_Cookie="via=redirect; Path=/"
            )
        elif kind == "encoded":
            self.reply(*BODIES[rest])
        elif kind == "large":
            self.reply(b"x" * 3_000_000)
        elif kind == "cookie":
            self.reply(b"", Set_Cookie="session=of-another-run; Path=/")
        else:
            self.reply(json.dumps({"headers": headers, "body": body}).encode(), Content_Type="application/json")

    do_POST = do_GET  # noqa: N815

    def reply(self, body: bytes, encoding: str = "", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the client has read enough


def _raw_deflate(data: bytes) -> bytes:
    squeezer = zlib.compressobj(wbits=-15)
    return squeezer.compress(data) + squeezer.flush()


BODIES: dict[str, tuple[bytes, str]] = {
    "gzip": (gzip.compress(b"hello"), "gzip"),
    "members": (gzip.compress(b"hel") + gzip.compress(b"lo"), "gzip"),
    "deflate": (zlib.compress(b"hello"), "deflate"),
    "raw-deflate": (_raw_deflate(b"hello"), "deflate"),
    "identity": (b"hello", "identity"),
    "bomb": (BOMB, "gzip"),
    "twice": (gzip.compress(gzip.compress(b"hello")), "gzip, gzip"),
    "double-bomb": (gzip.compress(BOMB), "gzip, gzip"),
    "brotli": (b"\x0b\x02\x80hello\x03", "br"),
    "broken": (b"this is not gzip", "gzip"),
    "cut": (gzip.compress(b"hello" * 1000)[:-12], "gzip"),
}


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def other(server: Server) -> Iterator[Server]:
    with serving() as other:
        server.other = other.url
        yield other


@pytest.fixture(autouse=True)
def no_policy_is_left() -> Iterator[None]:
    yield
    use_policy(None)


@contextmanager
def policy(**members: Any) -> Iterator[None]:
    use_policy(Policy(**members))
    try:
        yield
    finally:
        use_policy(None)


async def http(url: str, **arguments: Any) -> Outcome:
    return await outcome_of("http", {"url": url, **arguments})


@pytest.mark.parametrize("name", ["gzip", "members", "deflate", "raw-deflate", "identity"])
def test_an_encoded_body_is_read(server: Server, name: str) -> None:
    @on_loop
    async def read() -> None:
        assert value_of(await http(f"{server.url}/encoded/{name}"))["body"] == "hello"

    read()


@on_loop
async def test_a_body_is_never_inflated_beyond_its_bound(server: Server) -> None:
    """A few kilobytes that stand for many megabytes cost what the bound says, not what they stand for."""
    await http(server.url)  # the library is imported
    tracemalloc.start()
    try:
        outcome = await http(f"{server.url}/encoded/bomb", max_bytes=1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert failure_of(outcome) == ("Provider.Call.Http.TooLarge", False)
    assert peak < 6_000_000


@pytest.mark.parametrize("name", ["twice", "double-bomb", "brotli", "broken"])
def test_codings_that_are_not_understood_are_refused_before_anything_is_inflated(server: Server, name: str) -> None:
    @on_loop
    async def read() -> None:
        assert failure_of(await http(f"{server.url}/encoded/{name}")) == ("Provider.Call.Http.BadEncoding", False)

    read()


@on_loop
async def test_an_encoded_body_that_ends_too_early_is_not_a_body(server: Server) -> None:
    assert failure_of(await http(f"{server.url}/encoded/cut")) == ("Provider.Call.Http.BadEncoding", True)


@on_loop
async def test_a_document_cannot_raise_the_bound_of_bodies_above_the_engines(server: Server) -> None:
    BODIES["at-large"] = (gzip.compress(b"x" * (LARGEST_BODY + 1), 1), "gzip")
    outcome = await http(f"{server.url}/encoded/at-large", max_bytes=10**12)

    assert failure_of(outcome) == ("Provider.Call.Http.TooLarge", False)
    assert details_of(outcome)["limit"] == LARGEST_BODY


@on_loop
async def test_another_origin_learns_nothing_by_a_redirect(server: Server, other: Server) -> None:
    secret_headers = {"X-Api-Key": "k3y", "Cookie": "a=b", "Proxy-Authorization": "p", "Accept": "text/plain"}
    basic = {"type": "basic", "username": "ada", "password": "pw"}
    value_of(await http(f"{server.url}/to/302/there", method="POST", json={"card": 1}, headers=secret_headers))
    value_of(await http(f"{server.url}/to/307/there", auth=basic, headers=secret_headers))

    for line, headers, body in other.requests:
        assert (line, body) == ("GET /there", "")
        assert set(headers) <= {"host", "accept", "accept-encoding", "accept-language", "user-agent"}
        assert headers["accept"] == "text/plain"
    assert len(other.requests) == 2


@on_loop
async def test_a_body_is_not_sent_to_another_origin(server: Server, other: Server) -> None:
    for status in (307, 308):
        outcome = await http(f"{server.url}/to/{status}/there", method="POST", json={"card": 1})
        assert failure_of(outcome) == ("Provider.Call.Http.RedirectRefused", False)

    assert other.requests == []


@on_loop
async def test_the_same_origin_keeps_headers_and_body(server: Server) -> None:
    server.other = server.url
    seen = value_of(await http(f"{server.url}/to/307/echo", method="POST", body="text", headers={"X-Api-Key": "k3y"}))[
        "body"
    ]

    assert (seen["body"], seen["headers"]["x-api-key"]) == ("text", "k3y")
    assert seen["headers"]["idempotency-key"] == "r1/main/step"
    assert seen["headers"]["cookie"] == "via=redirect"  # cookies live as long as one exchange


@on_loop
async def test_runs_share_no_cookies(server: Server) -> None:
    """Two tasks of one worker share its connections, nothing else."""
    from tests.workers.scene import Ledger, at_work, task

    async with at_work() as worker:
        await worker.run(task("http", {"url": f"{server.url}/cookie"}), Ledger())
        seen = value_of(await worker.run(task("http", {"url": f"{server.url}/echo"}), Ledger()))["body"]

    assert "cookie" not in seen["headers"]


FORBIDDEN = [
    "127.0.0.1",
    "127.8.9.10",
    "10.0.0.1",
    "172.16.5.4",
    "172.31.255.255",
    "192.168.1.1",
    "168.63.129.16",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "0.1.2.3",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "192.0.0.1",
    "198.18.0.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12::1",
    "fec0::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:a00:1",
    "::127.0.0.1",
    "2002:7f00:1::",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "fd00:ec2::254",
    "2001:0:7f00:1::",
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_closed_network_forbids_addresses_that_are_not_public(address: str) -> None:
    """SRV-024."""
    assert not is_allowed(Policy(network="closed"), "name", address)
    assert is_allowed(Policy(), "name", address)


def test_a_closed_network_forbids_the_server_s_own_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """SRV-024: public ones, too. This machine has none for sure: those of loopback stand for them."""
    monkeypatch.setattr(addresses, "_FORBIDDEN", ())
    assert not is_allowed(Policy(network="closed"), "name", "127.0.0.1")
    assert is_allowed(Policy(network="closed"), "name", "192.0.2.1")
    assert is_allowed(Policy(network="closed", addresses=["127.0.0.1"]), "name", "127.0.0.1")


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:4700:4700::1111"])
def test_a_closed_network_allows_public_addresses(address: str) -> None:
    assert is_allowed(Policy(network="closed"), "name", address)
    assert not is_allowed(Policy(denied_addresses=["0.0.0.0/0", "::/0"]), "name", address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:0.0.0.0", "::ffff:0:0"])
def test_the_address_of_nobody_is_the_loopback(address: str) -> None:
    """A system connects there."""
    assert not is_allowed(Policy(denied_addresses=["127.0.0.0/8", "::1"]), "name", address)
    assert not is_allowed(Policy(network="closed"), "name", address)
    assert is_allowed(Policy(denied_addresses=["10.0.0.0/8"]), "name", address)


def test_the_operator_opens_networks_and_exact_names() -> None:
    chosen = Policy(network="closed", addresses=["10.1.0.0/16", "db.internal"], denied_addresses=["10.1.9.0/24"])

    assert is_allowed(chosen, "any", "10.1.2.3")
    assert is_allowed(chosen, "any", "::ffff:10.1.2.3")
    assert is_allowed(chosen, "DB.internal", "192.168.7.7")
    assert not is_allowed(chosen, "evil.db.internal", "192.168.7.7")
    assert not is_allowed(chosen, "any", "10.2.0.1")
    assert not is_allowed(chosen, "any", "10.1.9.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"])
def test_a_closed_network_refuses_loopback_however_it_is_spelled(server: Server, host: str) -> None:
    @on_loop
    async def ask() -> None:
        with policy(network="closed"):
            outcome = await http(f"http://{host}:{server.server_address[1]}/echo")
        assert failure_of(outcome) == ("Provider.Call.Http.AddressRefused", False)
        assert server.requests == []

    ask()


@on_loop
async def test_a_redirect_is_judged_again(server: Server, other: Server) -> None:
    """The first address is allowed, the one that it leads to is not."""
    server.other = other.url.replace("127.0.0.1", "127.0.0.2")
    with policy(network="closed", addresses=["127.0.0.1"]):
        outcome = await http(f"{server.url}/to/302/there")

    assert failure_of(outcome) == ("Provider.Call.Http.AddressRefused", False)
    assert (len(server.requests), other.requests) == (1, [])


@on_loop
async def test_an_allowed_address_is_reached_under_a_closed_network(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies of the environment would go round the rule: they are not used."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with policy(network="closed", addresses=["localhost"]):
        seen = value_of(await http(f"http://localhost:{server.server_address[1]}/echo"))["body"]

    assert seen["headers"]["host"] == f"localhost:{server.server_address[1]}"


@on_loop
async def test_a_document_does_not_say_where_a_request_ends() -> None:
    """Runs share connections: what is left over of one request would begin the next, which is another run's."""
    output = {"Content-Length": "3", "transfer-ENCODING": "chunked", "Connection": "upgrade", "Upgrade": "h2c"}
    with serving() as server:
        await outcome_of(
            "http", {"url": server.url, "method": "POST", "body": "hello", "headers": {**output, "X-Own": "1"}}
        )
        [(_, headers, body)] = server.requests

    assert (headers["content-length"], headers["x-own"], body) == ("5", "1", "hello")
    assert not {"transfer-encoding", "upgrade"} & headers.keys()
    assert headers["connection"] == "keep-alive"


@pytest.mark.parametrize("policy", [Policy(), Policy(network="closed", addresses=["127.0.0.0/8"])])
def test_names_that_nobody_resolves_hold_up_no_other_run(
    server: Server, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 33: a run that asks for many such names, and gives each up at once, has a few threads at a time."""
    asked: list[str] = []
    answer = threading.Event()
    real = socket.getaddrinfo

    def slow(host: str, *rest: Any, **named: Any) -> Any:
        if host.endswith(".hostile"):
            asked.append(host)
            answer.wait(20)
            raise socket.gaierror("no answer")
        return real(host, *rest, **named)

    @on_loop
    async def attempt() -> None:
        use_policy(policy)
        async with at_work(shared) as worker:

            def ask(url: str, number: int, run: str) -> Coroutine[Any, Any, Outcome]:
                value = {"url": url, "timeout": 0.02 if run == "hostile" else 10}
                return worker.run(task("http", value, task=number, run=RunId(run)), Ledger())

            outcomes = await asyncio.gather(*(ask(f"http://a{n}.hostile/", n, "hostile") for n in range(100)))
            assert {failure_of(item)[0] for item in outcomes} == {"Provider.Call.Http.Timeout"}
            answered = await ask(server.url.replace("127.0.0.1", "localhost"), 1, "good")
            assert value_of(answered)["status"] == 200
        answer.set()

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        attempt()
    finally:
        answer.set()
    assert len(asked) == 8


@on_loop
async def test_a_name_with_several_addresses_is_tried_at_the_next_while_one_is_silent(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = server.server_address[1]
    silent = socket.socket()
    silent.bind(("127.0.0.2", 0))  # nobody listens there: refused; the name has both

    def both(host: str, *rest: Any, **named: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (item, port)) for item in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with silent:
        outcome = await outcome_of("http", {"url": f"http://several.example:{port}/"})

    assert value_of(outcome)["status"] == 200


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:10.0.0.1]", "localhost", "a.localhost."]
)
@on_loop
async def test_a_proxy_is_not_asked_for_an_address_that_is_closed(server: Server, host: str) -> None:
    """What names lead to is the proxy's to judge; addresses, in any spelling, and listed names are judged before."""
    use_policy(Policy(network="closed", proxy=server.url, denied_addresses=["evil.example"]))
    for refused in (host, "evil.example", "EVIL.example."):
        code, _ = failure_of(await outcome_of("http", {"url": f"http://{refused}/"}))
        assert code == "Provider.Call.Http.AddressRefused"
    assert server.requests == []
    assert value_of(await outcome_of("http", {"url": "http://good.example/"}))["status"] == 200


@on_loop
async def test_large_answers_of_a_family_are_read_a_few_at_a_time() -> None:
    """Invariant 33: many that are asked for at once take the memory of a few, and hold up no other family."""
    reading: list[str] = []
    may_end = asyncio.Event()

    async def read(family: str) -> None:
        family_at_work.set(family)
        async with ResponseMemory() as room:
            await room.reserve(1_000)
            await room.reserve(2_000_000)
            async with ResponseMemory() as page:  # has the room of the one around it
                await page.reserve(2_000_000)
                reading.append(family)
                await may_end.wait()

    tasks = [asyncio.create_task(read("hostile")) for _ in range(20)]
    while len(reading) < 2:
        await asyncio.sleep(0)
    tasks.append(asyncio.create_task(read("good")))
    while "good" not in reading:
        await asyncio.sleep(0)

    assert reading == ["hostile", "hostile", "good"]
    tasks[5].cancel()
    may_end.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert reading.count("hostile") == 19


@on_loop
async def test_large_answers_all_come_in_the_end(server: Server) -> None:
    async with at_work(shared) as worker:
        asked = [
            worker.run(task("http", {"url": f"{server.url}/large", "max_bytes": 4_000_000}, task=n), Ledger())
            for n in range(8)
        ]
        for outcome in await asyncio.gather(*asked):
            assert len(value_of(outcome)["body"]) == 3_000_000
