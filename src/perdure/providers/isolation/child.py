"""The subprocess: executes one call at a time for its parent, and ends when the parent does.

It consists of two processes. The *head* imports what every call needs, runs no user code, and forks; the *fork*
executes calls of one family of runs. For another family it is replaced by a new fork, so that nothing that one run
leaves in memory (modules, variables, working directory, environment) is visible to another.

The protocol has its own socket, one per fork. What user code prints becomes log lines; what it writes directly to the
file descriptors goes into a pipe that the parent reads, so nothing can be mistaken for a frame.
"""

import asyncio
import faulthandler
import io
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from inspect import iscoroutine
from types import FrameType
from typing import Any, NoReturn

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Code, Failed
from perdure.providers.context import BlockingContext, CallPort, Cancellation
from perdure.providers.effects import EffectQueue
from perdure.providers.failure import Exhausted, ProviderFailure
from perdure.providers.isolation import frames
from perdure.providers.policy import Policy, of_api_document, use_policy
from perdure.providers.registry import SHIPPED, Provider, shared
from perdure.providers.source_loading import load
from perdure.providers.task_outcomes import describe, to_outcome

_CHUNK = 1 << 16
_TERMINATED = 128 + signal.SIGTERM
_OUTPUT_LIMIT = 1 << 20  # bytes per call and stream that become log lines
_MOST_LINES = 10_000  # of these
_GROWN = 256 * 1024 * 1024  # bytes of memory after which a child with a limit is replaced

PARENT_GONE = 81  # exit code of a fork that its parent no longer needs


class ParentConnection:
    """The socket to the parent; a request is answered before anything else is sent."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = frames.FrameReader()
        self.limit: int | None = None  # bytes that the parent accepts at once
        self._sending = threading.Lock()  # user code may log from its own threads
        self._asking = threading.Lock()

    def receive(self) -> frames.Frame:
        while (frame := self._reader.next()) is None:
            data = self._socket.recv(_CHUNK)
            if not data:
                _leave()
            self._reader.feed(data)
        return frame  # type: ignore[no-any-return]

    def send(self, frame: frames.Frame) -> None:
        """Raises `ProviderFailure` for a frame that the parent would not accept."""
        data = frames.encode_frame(frame)
        if self.limit is not None and len(data) > self.limit:
            raise ProviderFailure(
                Code.RESULT_TOO_LARGE,
                f"a message of {len(data)} bytes is too large: {self.limit} are allowed",
                retryable=False,
            )
        with self._sending:
            self._socket.sendall(data)

    def request(self, verb: str, *arguments: Any) -> Any:
        with self._asking:
            self.send(frames.ParentRequest(verb, list(arguments)))
            answer = self.receive()
        match answer:
            case frames.ParentReply(value):
                return value
            case frames.ParentRefusal(code, message) if code is not None:
                raise ProviderFailure(code, message)
            case frames.ParentRefusal(_, message):
                raise RuntimeError(message)
            case _:
                raise AssertionError(f"the parent answered with {type(answer).__name__}")

    def notify(self, verb: str, *arguments: Any) -> None:
        self.send(frames.Notification(verb, list(arguments)))


class ParentSecrets:
    """Secrets stay with the parent, which must know what to keep out of the logs."""

    def __init__(self, line: ParentConnection) -> None:
        self._line = line

    def __getitem__(self, name: str) -> str:
        value: str = self._line.request("secret", name)
        return value

    def config(self, name: str, key: str) -> str | None:
        value: str | None = self._line.request("config", name, key)
        return value

    def are_in(self, text: str) -> bool:
        is_found: bool = self._line.request("is_secret_in", text)
        return is_found

    def redact(self, value: Any) -> Any:
        return jsontext.decode(self._line.request("redact", jsontext.encode(value)))


class LogStream(io.RawIOBase):
    """Turns what user code prints into log lines, in order with its other messages."""

    def __init__(self, line: ParentConnection, stream: str) -> None:
        self._line = line
        self._fields = {"stream": stream}
        self._begun = b""
        self._room, self._lines = _OUTPUT_LIMIT, _MOST_LINES

    def as_text(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(self, "utf-8", "backslashreplace", write_through=True)

    @property
    def name(self) -> str:
        return f"<{self._fields['stream']}>"

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = bytes(data[: max(0, self._room)])
        if self._room > 0:
            self._room -= len(data)
            *whole, self._begun = (self._begun + text).split(b"\n", self._lines)
            for line in whole:
                self._say(line.decode("utf-8", "replace"))
            self._lines -= len(whole)
            if self._room <= 0 or self._lines <= 0:
                self._room, self._begun = 0, b""
                self._say(f"[more than {_OUTPUT_LIMIT} bytes or {_MOST_LINES} lines printed; the rest is not shown]")
        return len(data)

    def finish(self) -> None:
        """The call has ended: the next one starts a new line, with a new limit."""
        if self._begun:
            self.write(b"\n")
        self._room, self._lines = _OUTPUT_LIMIT, _MOST_LINES

    def _say(self, line: str) -> None:
        self._line.notify("log", "info", line, self._fields)


class CallRunner:
    """Executes calls; at most one at a time."""

    def __init__(self, line: ParentConnection) -> None:
        self._line = line
        self._cancellation: Cancellation | None = None  # set while a function runs that can notice a cancel
        self._interrupt: Callable[[], object] | None = None  # set while a coroutine runs
        self._out = LogStream(line, "stdout")
        self._err = LogStream(line, "stderr")

    def serve(self) -> NoReturn:
        signal.signal(signal.SIGTERM, self._on_terminate)
        sys.stdout, sys.stderr = self._out.as_text(), self._err.as_text()
        while True:
            call = self._line.receive()
            assert isinstance(call, frames.CallRequest)
            self._line.limit = call.result_limit + frames.SLACK
            result = self._execute(call)
            self._out.finish()
            self._err.finish()
            try:
                self._line.send(result)
            except ProviderFailure as failure:  # its message or its details are too large
                result = frames.CallResult(describe(failure, ""), is_worn=result.is_worn)
                self._line.send(result)
            if result.is_worn:
                _leave()

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        if self._interrupt is not None:
            self._interrupt()
        elif self._cancellation is not None and self._cancellation.is_heeded:
            self._cancellation.request()
        else:
            os._exit(_TERMINATED)  # nobody would notice

    def _execute(self, call: frames.CallRequest) -> frames.CallResult:
        try:
            _go_to(call.folder)
            use_policy(msgspec.json.decode(call.policy, type=Policy))
            of_api_document.set(call.assignment.from_api)
            provider = _find(call)
        except Exception as error:
            return frames.CallResult(Failed(Code.PROVIDER_FAULT, str(error), False), is_found=False)
        try:
            return frames.CallResult(
                to_outcome(self._call(provider, call), call.result_limit), is_worn=_has_grown(provider)
            )
        except BaseException as error:  # SystemExit of a user's function ends the task, not the child
            is_worn = isinstance(error, MemoryError | Exhausted) or _has_grown(provider)
            return frames.CallResult(describe(error, provider.prefix), is_worn)
        finally:
            self._cancellation = None

    def _call(self, provider: Provider, call: frames.CallRequest) -> Any:
        function = provider.function
        context: Any = None
        if function.wants_context:
            self._cancellation = Cancellation()
            port = CallPort(self._line.request, self._line.notify)
            secrets, effects = ParentSecrets(self._line), EffectQueue()
            context = BlockingContext(call.assignment, port, secrets, self._cancellation, effects)
            if function.is_coroutine:
                context = context.for_coroutines
        payload = jsontext.decode(call.assignment.input) if function.wants_input else None
        value = function.invoke(jsontext.decode(call.assignment.arguments), payload, context)
        return asyncio.run(self._await(value)) if iscoroutine(value) else value

    async def _await(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            if self._cancellation is not None:
                self._cancellation.request()
            task.cancel()

        self._interrupt = lambda: loop.call_soon_threadsafe(stop)  # a signal alone would not wake the loop
        try:
            return await coroutine
        finally:
            self._interrupt = None


def _find(call: frames.CallRequest) -> Provider:
    if sys.path != call.import_path:
        sys.path[:] = call.import_path
    name = call.assignment.provider
    if call.origin == SHIPPED.get(name) and (ours := shared.find(name)) is not None and ours.memory is not None:
        return ours  # needs nothing from users
    for source in call.sources:
        load(source)
    provider = shared.find(name)
    if provider is None:
        load(call.origin)  # registered by an import of the host itself
        provider = shared.find(name)
    if provider is None:
        raise LookupError(f"{call.origin!r} does not register a provider {name!r} when it is imported")
    return provider


def _go_to(folder: str) -> None:
    """Relative names mean the same as in the parent, whatever the previous call has done."""
    try:
        os.chdir(folder)
    except OSError:
        pass  # it is gone: whatever needs it will report that


def _has_grown(provider: Provider) -> bool:
    """For a provider with a limit: memory that one call has needed is not kept for calls that need little."""
    if provider.memory is None:
        return False
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit > _GROWN


def _leave_with_parent(connection: socket.socket) -> None:
    """A function that never returns must not outlive the engine either: wait for the other end to close."""
    poller = select.poll()
    poller.register(connection.fileno(), 0)  # no events requested: a hang-up is always reported
    poller.poll()
    _leave()


def _leave() -> NoReturn:
    os._exit(PARENT_GONE)  # at once, without waiting for threads of user code


class ForkServer:
    """Forks, and ends with the exit status of its fork, unless that ended in order."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._fork = 0
        self._woken, self._waking = socket.socketpair()

    def serve(self) -> None:
        self._waking.setblocking(False)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the whole group gets it; it is meant for the fork
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._waking.fileno())
        while True:
            ready, _, _ = select.select([self._control, self._woken], [], [])
            if self._woken in ready:
                self._woken.recv(_CHUNK)
                self._reap(os.WNOHANG)
            if self._control in ready:
                self._begin()

    def _begin(self) -> None:
        """The parent sends the socket of the next fork, or is gone."""
        _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        if self._fork:
            os.kill(self._fork, signal.SIGKILL)
            os.waitpid(self._fork, 0)
            self._fork = 0
            os.killpg(0, signal.SIGTERM)  # what it has started and left running
        if not descriptors:
            os._exit(0)
        self._fork = os.fork()
        if self._fork == 0:
            self._become_fork(descriptors[0])
        os.close(descriptors[0])

    def _reap(self, flags: int) -> None:
        if not self._fork:
            return
        pid, status = os.waitpid(self._fork, flags)
        if not pid:
            return
        self._fork = 0
        code = os.waitstatus_to_exitcode(status)
        if code == PARENT_GONE:
            return
        if code < 0:
            if -code != signal.SIGKILL:
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)

    def _become_fork(self, descriptor: int) -> NoReturn:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in (self._control, self._woken, self._waking):
            inherited.close()
        connection = socket.socket(fileno=descriptor)
        threading.Thread(target=_leave_with_parent, args=(connection,), daemon=True).start()
        CallRunner(ParentConnection(connection)).serve()


def main(limit: str | None, memory: int) -> None:
    if limit is not None:
        import resource

        resource.setrlimit(getattr(resource, limit), (memory, memory))
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    faulthandler.enable(file=2)  # a crash in C code prints its place into the pipe that the parent reads
    ForkServer(control).serve()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2])) if len(sys.argv) > 1 else main(None, 0)
