"""Whoever can connect to a server, with a token or without, takes neither its time nor its descriptors."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.server.serving import RETURNS, Server

LIMITS = "[limits]\nconnections = 20\nread_seconds = 3.0\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("server")
    (folder / "settings.toml").write_text(LIMITS)
    running = Server.start(folder, "--config", "settings.toml")
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


def _connect(server: Server) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


def _is_cut(connection: socket.socket, trickle: bytes) -> bool:
    """Whether the server ends a connection on which something arrives all the time."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            connection.sendall(trickle)
            connection.settimeout(0.2)
            if connection.recv(1 << 16) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_a_header_of_very_many_fields_is_refused(server: Server) -> None:
    """Each field was counted again with each further one: 32 KiB took a second of the event loop."""
    with _connect(server) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 500 + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 431 ")


CHUNKED = (
    b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
)


def test_a_trailer_that_does_not_end_is_cut(server: Server) -> None:
    """What had arrived of a field was copied with each further piece: 100 MB took 15 s of the event loop."""
    with _connect(server) as connection:
        connection.sendall(CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX-Long: ")
        assert _is_cut(connection, b"a" * 100_000)


def test_a_trailer_that_ends_is_not_taken_for_the_head(server: Server) -> None:
    """Whoever stands in between has judged the head: a trailer told who called, and brought a token."""
    token = f"Authorization: Bearer {server.admin.token}\r\n".encode()
    with _connect(server) as connection:
        connection.sendall(CHUNKED + b"\r\n2\r\n{}\r\n0\r\n" + token + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")
    with _connect(server) as connection:
        connection.sendall(CHUNKED + token + b"\r\n2\r\n{}\r\n0\r\nX-Digest: 0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")  # it has a document neither in its body nor by name


LIVE = b'{"live":true}'
ASKS = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_requests_that_wait_for_the_one_before_are_few(server: Server) -> None:
    """With each answer thousands more were read: a dozen connections, without a token, took 2 GB and all the time."""
    with _connect(server) as connection:
        connection.sendall(ASKS * 50)
        answers = connection.makefile("rb")
        for _ in range(50):
            while answers.readline() != b"\r\n":
                pass
            assert answers.read(len(LIVE)) == LIVE
    before = _memory(server)
    with ExitStack() as held:
        for _ in range(8):
            connection = held.enter_context(_connect(server))
            with suppress(OSError):  # it is cut
                connection.sendall(ASKS * 20_000)
        assert _is_cut(connection, ASKS)
        assert _memory(server) - before < 40_000


def _memory(server: Server) -> int:
    """KiB of the process."""
    status = Path(f"/proc/{server.process.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.parametrize(
    ("request_text", "trickle"),
    [
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n"),
        (b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    ],
    ids=["empty lines", "a body nobody waits for"],
)
def test_a_connection_without_a_request_is_cut(server: Server, request_text: bytes, trickle: bytes) -> None:
    with _connect(server) as connection:
        connection.sendall(request_text)
        assert connection.recv(100).startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 401 "))
        assert _is_cut(connection, trickle)


def test_more_connections_than_allowed_take_no_descriptors_from_the_engine(server: Server) -> None:
    """Counted when they are accepted: the engine of the same process goes on to work."""
    descriptors = Path(f"/proc/{server.process.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    with ExitStack() as held:
        for _ in range(200):
            held.enter_context(_connect(server))
        assert len(list(descriptors.iterdir())) <= before + 25
    for _ in range(600):  # those of this test are free soon
        try:
            assert server.admin("GET", "/api/v1/whoami").status == 200
            break
        except OSError:
            time.sleep(0.05)
    assert server.admin.result(server.admin.start(RETURNS))["value"] == 17


def test_connections_leave_descriptors_to_the_engine() -> None:
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 1_500))\n"
        "from perdure.server.listener import places_for_connections\n"
        "print(places_for_connections(10_000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["750", "1500"]
