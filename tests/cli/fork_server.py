"""Processes of `perdure` without the half second of imports: each is forked from one that has imported everything.

A process of a fork server is a real one: it has its own number, folder, environment, streams and end, and signals reach
it. It differs from `python -m perdure` in what is imported; `test_start_up.py`, the examples and the pages of the
documentation use new interpreters. The file is both sides: `ForkServer` in tests, and the program that forks.
"""

import atexit
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

SCRIPT = Path(__file__).with_name("perdure_with_drill.py")
LONGEST = 100_000  # bytes of words and environment; what is longer needs an interpreter of its own
AT_START = ("PYTHON", "LC_", "LANG", "TZ", "MALLOC")  # variables that an interpreter reads when it starts


class Forked:
    """A running process; as much of `subprocess.Popen` as tests use."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], 0)[0]:
                self.returncode = int(os.read(self._status, 20) or b"-9")
                os.close(self._status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = 60.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            with contextlib.suppress(OSError, ValueError):  # another thread has seen the end
                select.select([self._status], [], [], left)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Of one test process; it ends with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    def start(self, words: Sequence[str], folder: Path, env: Mapping[str, str], streams: Sequence[int]) -> Forked:
        status, theirs = os.pipe()
        request = json.dumps([words, str(folder), dict(env)]).encode()
        answer = b""
        with self._lock, os.fdopen(theirs, "wb"), contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._requests, [request], [*streams, theirs])
            answer = self._requests.recv(20)
        if not answer:
            os.close(status)
            raise RuntimeError(
                f"the process that forks commands for tests has ended with code {self._process.wait()};"
                " its message on stderr says why"
            )
        return Forked(int(answer), status)

    def close(self) -> None:
        self._requests.close()
        self._process.wait()


def is_suited(words: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether the process does without an interpreter of its own."""
    size = sum(len(text.encode(errors="replace")) for text in (*words, *env, *env.values()))
    differs = {name for name in env if name.startswith(AT_START) and env[name] != os.environ.get(name)}
    differs |= {name for name in os.environ if name.startswith(AT_START) and name not in env}
    return size < LONGEST and not differs


# The program that forks.


def _import_everything() -> None:
    """All modules but those of extras that are not installed: a command that needs one says so itself."""
    import perdure

    for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
        if not module.name.startswith("perdure.testing") and not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if (error.name or "perdure").partition(".")[0] == "perdure":
                    raise
    importlib.import_module("perdure.testing.drill")


def _serve(requests: socket.socket) -> None:
    """Returns in each new process."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ends: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 1_000)
            _report_ends(ends)
        if requests.fileno() not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(requests, 2 * LONGEST, 4, socket.MSG_CMSG_CLOEXEC)
        if not request:
            os._exit(0)
        process = os.fork()
        if process == 0:
            _become(request, descriptors[:3])
            return
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        ends[process] = descriptors[3]
        requests.send(str(process).encode())


def _report_ends(ends: dict[int, int]) -> None:
    for process in list(ends):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            with contextlib.suppress(BrokenPipeError):
                os.write(ends[process], str(os.waitstatus_to_exitcode(status)).encode())
            os.close(ends.pop(process))


def _become(request: bytes, streams: Sequence[int]) -> None:
    """What a new interpreter would be in this folder, with these words, variables and streams."""
    words, folder, env = json.loads(request)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, 1_000)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = words
    sys.stdin = os.fdopen(0, "r", -1, sys.stdin.encoding, sys.stdin.errors, closefd=False)
    sys.stdout = os.fdopen(1, "w", -1, sys.stdout.encoding, sys.stdout.errors, closefd=False)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty(), write_through=bool(env.get("PYTHONUNBUFFERED")))
    sys.stderr = os.fdopen(2, "w", 1, sys.stderr.encoding, sys.stderr.errors, closefd=False)
    if env.get("PYTHONFAULTHANDLER"):
        faulthandler.enable(2)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def _end(ended: SystemExit) -> None:
    """As an interpreter ends, without taking all modules apart: that is most of the time of a short command."""
    if isinstance(ended.code, int | None):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError, ValueError):  # what cannot be written: the interpreter knows what to do
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code or 0)


if __name__ == "__main__":
    _import_everything()
    gc.collect()
    gc.freeze()  # pages that are shared stay so
    _serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    except SystemExit as ended:
        _end(ended)
        raise
