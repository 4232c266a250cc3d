"""The command line as its users have it: real processes in a folder of their own."""

import fcntl
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn

from tests.cli.fork_server import Forked, ForkServer, is_suited

from perdure.cli.main import main

PERDURE = [sys.executable, str(Path(__file__).with_name("perdure_with_drill.py"))]
"""The words that call `perdure`. Tests write small documents in its test language."""

PATIENCE = 120.0  # seconds; only a bound, nothing waits so long when it works


def strict_json(text: str) -> Any:
    """Exactly one JSON value: no repeated member, no NaN, nothing behind it."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        assert len(pairs) == len(members), f"a member is repeated: {pairs}"
        return members

    def refuse(token: str) -> NoReturn:
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return strict_json(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The JSON error: with --json the one value on stdout."""
        error: dict[str, Any] = self.json["error"]
        return error


class Running:
    """A command that was started and goes on."""

    def __init__(self, process: "subprocess.Popen[str] | Forked", timeout: float = PATIENCE) -> None:
        self.process = process
        self.heard: list[str] = []
        self.printed = ""
        self._watchdog = threading.Timer(timeout, process.kill)
        self._watchdog.daemon = True  # a test that failed does not hold the others up
        self._watchdog.start()

    def hear(self, fragment: str) -> str:
        """Wait for a line of talk."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.heard.append(line)
            if fragment in line:
                return line
        raise AssertionError(f"{fragment!r} was never said:\n{''.join(self.heard)}")

    @property
    def run(self) -> str:
        """The id of the run it announced."""
        return self.hear("run ").split()[1]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> Done:
        """Wait for the end. Both streams are short, so they can be read one after the other."""
        assert self.process.stderr is not None and self.process.stdout is not None
        if not self.process.stderr.closed:
            self.heard.append(self.process.stderr.read())
        if not self.process.stdout.closed:
            self.printed += self.process.stdout.read()
        code = self.process.wait()
        self._watchdog.cancel()
        self.process.stderr.close()
        self.process.stdout.close()
        return Done(code, self.printed, "".join(self.heard))

    def kill(self) -> None:
        """End it as the power cut does. What it wrote is read, but not waited for: its children may go on."""
        self.process.kill()
        self.process.wait()
        self._watchdog.cancel()
        self.heard.append(_read_rest(self.process.stderr))
        self.printed += _read_rest(self.process.stdout)


def _read_rest(stream: IO[str] | None) -> str:
    """What is there of a stream, which is closed then."""
    if stream is None or stream.closed:
        return ""
    with stream:
        os.set_blocking(stream.fileno(), False)
        return (stream.buffer.read() or b"").decode(errors="replace") if isinstance(stream, io.TextIOWrapper) else ""


@dataclass
class CommandLine:
    folder: Path
    started: list[Running] = field(default_factory=list)
    timeout: float = PATIENCE  # for each command

    def __call__(self, *words: str, code: int | None = 0, stdin: str | None = None, **env: str) -> Done:
        """Run a command to its end; `code` is the exit code it must have."""
        with ExitStack() as stack:
            streams = [stack.enter_context(TemporaryFile("w+")) for _ in range(3)]
            streams[0].write(stdin or "")
            streams[0].seek(0)
            process = self._start(words, env, streams)
            try:
                ended = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            for stream in streams:
                stream.seek(0)
            done = Done(ended, streams[1].read(), streams[2].read())
        assert code is None or code == done.code, f"{words}: exit {done.code}\n{done.out}\n{done.err}"
        assert "Traceback" not in done.err, done.err
        return done

    def here(self, *words: str, code: int | None = 0) -> Done:
        """The same in this process, which is quicker: for what a test prepares and looks at, not for what it tries."""
        out, err = io.StringIO(), io.StringIO()
        with chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
            ended = main(words)
        assert code is None or code == ended, f"{words}: exit {ended}\n{out.getvalue()}\n{err.getvalue()}"
        return Done(ended, out.getvalue(), err.getvalue())

    def start(self, *words: str, **env: str) -> Running:
        out, theirs_out = os.pipe()
        err, theirs_err = os.pipe()
        with (
            Path(os.devnull).open() as nothing,
            os.fdopen(theirs_out, "w") as stdout,
            os.fdopen(theirs_err, "w") as stderr,
        ):
            process = self._start(words, env, [nothing, stdout, stderr])
        process.stdout, process.stderr = os.fdopen(out), os.fdopen(err)
        self.started.append(Running(process, self.timeout))
        return self.started[-1]

    def _start(
        self, words: tuple[str, ...], more: dict[str, str], streams: Sequence[IO[str]]
    ) -> "subprocess.Popen[str] | Forked":
        """Servers of tests answer no requests unless they are told where: the default address is one for all."""
        apart = ("--listen", "off") if words[:1] == ("serve",) and "--listen" not in words else ()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE", "NO_COLOR"))}
        env = {**kept, **more}
        if is_suited(words, env):
            return fork_server().start((*words, *apart), self.folder, env, [stream.fileno() for stream in streams])
        stdin, stdout, stderr = streams
        command = [*PERDURE, *words, *apart]
        return subprocess.Popen(command, cwd=self.folder, env=env, stdin=stdin, stdout=stdout, stderr=stderr, text=True)

    def drill(self, *steps: dict[str, Any], name: str = "drill") -> str:
        """Write a document; the name of its file."""
        (self.folder / f"{name}.json").write_text(json.dumps({"drill": 1, "name": name, "steps": steps}))
        return f"{name}.json"

    def row(self, run: str) -> dict[str, Any]:
        (row,) = [row for row in self.here("ps", "--json").json if row["id"] == run]
        assert isinstance(row, dict)
        return row

    def end_all(self) -> None:
        for process in self.started:
            if process.process.stderr and not process.process.stderr.closed:
                process.kill()


@cache
def fork_server() -> ForkServer:
    """The one of this test process."""
    return ForkServer()


def end_fork_server() -> None:
    """Waited for, so that its processes are among what the tests have cost."""
    if fork_server.cache_info().currsize:
        fork_server().close()
        fork_server.cache_clear()


ROWS = 24


def _open_terminal(columns: int) -> tuple[int, int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    return ours, theirs


def _read_all(descriptor: int) -> bytes:
    """All that is written to a terminal, until its last writer is gone."""
    seen = b""
    while True:
        try:
            piece = os.read(descriptor, 65_536)
        except OSError:  # Linux says so when the last writer is gone
            break
        if not piece:
            break
        seen += piece
    os.close(descriptor)
    return seen


def in_terminal_here(folder: Path, *words: str, columns: int = 80) -> tuple[int, str]:
    """What a command writes to a pseudo-terminal, in this process: for pages that look the same in a process."""
    ours, theirs = _open_terminal(columns)
    seen: list[bytes] = []
    reader = threading.Thread(target=lambda: seen.append(_read_all(ours)))
    reader.start()
    try:
        terminal = os.fdopen(theirs, "w", encoding="utf-8")
        with terminal, chdir(folder), redirect_stdout(terminal), redirect_stderr(terminal):
            code = main(words)
    finally:
        reader.join(PATIENCE)
    return code, seen[0].decode().replace("\r\n", "\n")


def in_terminal(folder: Path, *words: str, columns: int = 80, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """What a program writes to a pseudo-terminal that is both its stdout and its stderr."""
    ours, theirs = _open_terminal(columns)
    process = _start_in_terminal(folder, words, theirs, env or {})
    os.close(theirs)
    seen = _read_all(ours)
    return process.wait(PATIENCE), seen.decode()


def _start_in_terminal(
    folder: Path, words: Sequence[str], terminal: int, more: Mapping[str, str]
) -> "subprocess.Popen[bytes] | Forked":
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    env = {**kept, "TERM": "xterm", **more}
    if is_suited(words, env):
        return fork_server().start(words, folder, env, [terminal] * 3)
    return subprocess.Popen([*PERDURE, *words], cwd=folder, env=env, stdin=terminal, stdout=terminal, stderr=terminal)


class LiveTerminal:
    """A command at work in a pseudo-terminal that somebody looks at and types into."""

    def __init__(self, process: "subprocess.Popen[bytes] | Forked", ours: int) -> None:
        self.process = process
        self._ours = ours
        self.seen = b""

    def look_until(self, is_enough: Callable[[str], bool]) -> str:
        """All that was seen so far, once it is enough."""
        until = time.monotonic() + PATIENCE
        while not is_enough(text := self.seen.decode(errors="ignore")):
            assert time.monotonic() < until, text
            if select.select([self._ours], [], [], 0.2)[0]:
                self.seen += os.read(self._ours, 65_536)
        return text

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)


@contextmanager
def live_terminal(folder: Path, *words: str, columns: int = 80) -> Iterator[LiveTerminal]:
    """Its process is killed at the end, should it still be there. The terminal must be as it was before."""
    ours, theirs = _open_terminal(columns)
    before = termios.tcgetattr(theirs)
    process = _start_in_terminal(folder, words, theirs, {})
    try:
        yield LiveTerminal(process, ours)
    finally:
        process.kill()
        process.wait(PATIENCE)
    after = termios.tcgetattr(theirs)
    os.close(theirs)
    os.close(ours)
    assert after == before
