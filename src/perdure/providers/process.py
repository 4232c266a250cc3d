"""One operating-system process at the head of its own group.

A separate thread starts it and waits for it, so that neither delays the event loop, and no platform's mechanism to
report ended children is needed. When the head has ended, the rest of its group is killed: a task leaves nothing
running. Processes that leave the group on purpose (`setsid`) are not affected.
"""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from perdure.providers.policy import read_keychain
from perdure.providers.text import MARGIN, hide

HIDDEN = ("PERDURE_SECRET", "PERDURE_CREDENTIAL", "PERDURE_DB", "PERDURE_TOKEN")


def inherited_environment() -> dict[str, str]:
    """The environment of this process without secrets: a command gets those that its task names, and no others.

    Secret are also the variables that the operator has listed for the keychain, and the address of the store.
    """
    listed = read_keychain(os.environ).env
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(HIDDEN) and not any(fnmatchcase(name, pattern) for pattern in listed)
    }


class Process:
    """`exited` resolves to the exit code, negative for a signal, once nothing of the group is left."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._lock = threading.Lock()  # between sending a signal and releasing the process id
        self._popen: subprocess.Popen[bytes] | None = None
        self._is_reaped = False
        self._is_unwanted = False

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> "Process":
        """Start `argv` on three file descriptors, which are closed here in any case.

        Raises OSError when there is nothing to execute.
        """
        process = cls()
        options: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr, "cwd": cwd, "env": env}
        threading.Thread(target=process._live, args=(argv, options), name="perdure-process", daemon=True).start()
        try:
            await process._started
        except asyncio.CancelledError:
            process.signal(signal.SIGKILL)
            raise
        return process

    @property
    def pid(self) -> int:
        assert self._popen is not None
        return self._popen.pid

    def signal(self, number: signal.Signals) -> None:
        """Sent to the whole group; no effect after its end."""
        with self._lock:
            if self._popen is None:
                self._is_unwanted = True
            elif not self._is_reaped:
                _signal_group(self._popen.pid, number)

    async def stop(self, grace: float) -> int:
        """SIGTERM, a grace period, SIGKILL."""
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(asyncio.shield(self.exited), grace)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await asyncio.shield(self.exited)
        except asyncio.CancelledError:
            self.signal(signal.SIGKILL)
            raise

    def _live(self, argv: Sequence[str], options: dict[str, Any]) -> None:
        try:
            popen = subprocess.Popen(argv, start_new_session=True, **options)
        except Exception as error:  # OSError, or ValueError for a zero byte in an argument
            self._resolve(self._started, error)
            return
        finally:
            for descriptor in {options["stdin"], options["stdout"], options["stderr"]}:
                os.close(descriptor)
        with self._lock:
            self._popen = popen
            if self._is_unwanted:
                _signal_group(popen.pid, signal.SIGKILL)
        self._resolve(self._started, None)
        if hasattr(os, "waitid"):
            # Wait without reaping: while the head is a zombie its number names this group and no other.
            os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
        else:
            popen.wait()
        with self._lock:
            _signal_group(popen.pid, signal.SIGKILL)
            code = popen.wait()
            self._is_reaped = True
        self._resolve(self.exited, code)

    def _resolve(self, future: asyncio.Future[Any], result: Any) -> None:
        def settle() -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        try:
            self._loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is closed: nobody is waiting
            pass


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # the group is empty, or contains only zombies (which macOS reports as a lack of permission)


class OutputCapture(asyncio.Protocol):
    """Keeps the first bytes of a stream and counts the rest, so that no output can fill the memory."""

    def __init__(self, limit: int) -> None:
        self._received = bytearray()
        self._size = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._limit = limit

    def data_received(self, data: bytes) -> None:
        free = self._limit + MARGIN - len(self._received)
        self._received += data[: max(0, free)]
        self._size += len(data)

    @property
    def is_truncated(self) -> bool:
        return self._size > self._limit

    @property
    def size(self) -> int:
        return len(self._received)

    @property
    def raw(self) -> bytes:
        """What was kept, with secrets in it."""
        return bytes(self._received)

    @property
    def captured(self) -> bytes:
        """The output up to the limit; secrets are masked before it is cut."""
        return hide(bytes(self._received))[: self._limit] if self.is_truncated else hide(bytes(self._received))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def open_read_pipe(protocol: Callable[[], asyncio.Protocol]) -> tuple[asyncio.ReadTransport, Any, int]:
    """A pipe to read from; returns the transport, its protocol and the end for the process."""
    ours, theirs = os.pipe()
    try:
        transport, instance = await asyncio.get_running_loop().connect_read_pipe(protocol, os.fdopen(ours, "rb", 0))
    except BaseException:
        os.close(theirs)
        raise
    return transport, instance, theirs


class InputFeed(asyncio.BaseProtocol):
    """The standard input of a process: written once, then closed. A process that does not read it is not an error."""

    _transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            self._transport.close()  # takes effect once everything is written

    def abort(self) -> None:
        """Drop what is still unwritten."""
        transport = self._transport
        # A closing transport with nothing left to write is closing already; a second abort would break it.
        if transport is not None and (transport.get_write_buffer_size() or not transport.is_closing()):
            transport.abort()


async def open_write_pipe() -> tuple[InputFeed, int]:
    """A pipe to write to; returns the feed and the end for the process."""
    theirs, ours = os.pipe()
    try:
        _, feed = await asyncio.get_running_loop().connect_write_pipe(InputFeed, os.fdopen(ours, "wb", 0))
    except BaseException:
        os.close(theirs)
        raise
    return feed, theirs
