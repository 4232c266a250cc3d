"""A document reaches no file, and exhausts nothing, by the database server that it names."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.outcomes import Outcome
from perdure.providers import postgres as provider
from perdure.providers.policy import Policy, use_policy
from tests.workers.scene import failure_of, outcome_of

PIECE = 1 << 20
MOST = 600 * PIECE  # that the server tries to send
MEMORY = 300 * PIECE  # that the subprocess may use here
NO_ENCRYPTION = {struct.pack(">I", code) for code in (80877103, 80877104)}  # requests of TLS and of GSSAPI


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


@dataclass
class HostileServer:
    """Speaks the protocol of PostgreSQL, for one connection at a time."""

    listener: socket.socket
    sends: str  # what it answers a statement with; `password`: it asks for one
    sent: int = 0
    heard: bytes = b""

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        with suppress(OSError, struct.error):
            while True:
                connection, _ = self.listener.accept()
                with connection, suppress(OSError, struct.error):
                    self._talk(connection)

    def _read(self, connection: socket.socket) -> bytes:
        (size,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
        return connection.recv(size - 4, socket.MSG_WAITALL)

    def _talk(self, connection: socket.socket) -> None:
        while self._read(connection) in NO_ENCRYPTION:
            connection.sendall(b"N")
        if self.sends == "password":
            connection.sendall(message(b"R", struct.pack(">I", 3)))
            assert connection.recv(1) == b"p"
            self.heard = self._read(connection)
            return
        settings = ((b"server_version", b"18.0"), (b"client_encoding", b"UTF8"))
        connection.sendall(message(b"R", struct.pack(">I", 0)))
        connection.sendall(b"".join(message(b"S", b"%b\0%b\0" % setting) for setting in settings))
        connection.sendall(message(b"K", struct.pack(">II", 1, 1)) + message(b"Z", b"I"))
        while kind := connection.recv(1):
            text = self._read(connection)
            if kind == b"Q" and text.startswith(b"BEGIN"):
                connection.sendall(message(b"C", b"BEGIN\0") + message(b"Z", b"T"))
            elif kind in (b"Q", b"S"):
                self._flood(connection)
                connection.sendall(message(b"C", b"SELECT 1\0") + message(b"Z", b"T"))

    def _flood(self, connection: socket.socket) -> None:
        if self.sends == "a row":
            head = struct.pack(">hi", 1, MOST)
            column = b"x\0" + struct.pack(">IHIhih", 0, 0, 25, -1, -1, 0)
            connection.sendall(message(b"T", struct.pack(">h", 1) + column))
            connection.sendall(b"D" + struct.pack(">I", 4 + len(head) + MOST) + head)
            piece = b"x" * PIECE
        else:
            piece = message(b"A", struct.pack(">I", 1) + b"name\0" + b"x" * 5_000 + b"\0") * 200
        while self.sent < MOST:
            connection.sendall(piece)
            self.sent += len(piece)


@contextmanager
def hostile_server(sends: str) -> Iterator[HostileServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = HostileServer(listener, sends)
        threading.Thread(target=server.serve, daemon=True).start()
        yield server


async def ask(server: HostileServer, **arguments: Any) -> Outcome:
    defaults = {"port": server.port, "user": "u", "dbname": "d", "query": "SELECT 1", "timeout": 60}
    return await outcome_of("postgres", defaults | arguments)


@pytest.mark.parametrize("sends", ["a row", "notifications"])
async def test_what_a_server_sends_is_kept_outside_of_the_engine(sends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library keeps it until it is complete: gigabytes, which nobody can count before."""
    monkeypatch.setattr(provider, "subprocess_memory", lambda memory: MEMORY)
    with hostile_server(sends) as server:
        outcome = await ask(server, host="127.0.0.1")
    assert failure_of(outcome) == ("Provider.Call.Postgres.TooLarge", False), outcome
    assert server.sent <= MEMORY + 64 * PIECE


@pytest.mark.parametrize("setting", ["passfile", "service"])
async def test_no_document_names_a_file_with_passwords(setting: str, tmp_path: Path) -> None:
    """The host chooses the password, and `hostaddr` who gets it."""
    file = tmp_path / "passwords"
    file.write_text("production:*:*:*:hunter2-of-the-user\n")
    file.chmod(0o600)
    use_policy(Policy())
    try:
        with hostile_server("password") as server:
            auth = {"hostaddr": "127.0.0.1", setting: str(file)}
            outcome = await ask(server, host="production", auth=auth)
    finally:
        use_policy(None)
    assert b"hunter2" not in server.heard
    assert failure_of(outcome) == ("Provider.Call.Postgres.Forbidden", False)
