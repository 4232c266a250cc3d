"""The subprocess: takes one order at a time from its parent, and ends when the parent does.

It is two processes. The *head* imports what every order needs, runs nothing of a user, and forks; the *fork* carries
out orders of one family of runs. For another family it is replaced by a new fork, so that nothing which one run leaves
in memory (modules, variables, working directory, environment) is there for another.

The protocol has its own socket, one per fork. What user code prints becomes log lines; what it writes past Python
lands in a pipe that the parent reads, so nothing can be mistaken for a frame.
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

from perdure.kernel import jsontext
from perdure.kernel.outcomes import Code, Failed
from perdure.providers.context import BlockingContext, CallPort, Cancellation
from perdure.providers.effects import EffectQueue
from perdure.providers.failure import Exhausted, ProviderFailure
from perdure.providers.isolation import frames
from perdure.providers.policy import Policy, use_policy
from perdure.providers.registry import SHIPPED, Provider, shared
from perdure.providers.source_loading import load
from perdure.providers.task_outcomes import describe, settle

_CHUNK = 1 << 16
_TERMINATED = 128 + signal.SIGTERM
_OUTPUT_LIMIT = 1 << 20  # bytes per order and stream that become log lines
_GROWN = 256 * 1024 * 1024  # bytes in memory after which a child with a bound makes room for a new one

PARENT_GONE = 81  # exit code of a fork that its parent needs no more


class ParentConnection:
    """The socket to the parent, with the rule that a question is answered before anything else comes."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = frames.FrameReader()
        self._sending = threading.Lock()  # user code may log from threads of its own
        self._asking = threading.Lock()

    def receive(self) -> frames.Frame:
        while (frame := self._reader.next()) is None:
            data = self._socket.recv(_CHUNK)
            if not data:
                _leave()
            self._reader.feed(data)
        return frame

    def send(self, frame: frames.Frame) -> None:
        data = frames.encode_frame(frame)
        with self._sending:
            self._socket.sendall(data)

    def ask(self, verb: str, *arguments: Any) -> Any:
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

    def tell(self, verb: str, *arguments: Any) -> None:
        self.send(frames.Notification(verb, list(arguments)))


class ParentSecrets:
    """Secrets stay with the parent, which must know which ones to keep out of the logs."""

    def __init__(self, line: ParentConnection) -> None:
        self._line = line

    def __getitem__(self, name: str) -> str:
        value: str = self._line.ask("secret", name)
        return value

    def are_in(self, text: str) -> bool:
        is_found: bool = self._line.ask("is_secret_in", text)
        return is_found

    def redact(self, value: Any) -> Any:
        return jsontext.decode(self._line.ask("redact", jsontext.encode(value)))


class LogStream(io.RawIOBase):
    """Turns what user code prints into log lines, in order with everything else it says."""

    def __init__(self, line: ParentConnection, stream: str) -> None:
        self._line = line
        self._fields = {"stream": stream}
        self._begun = b""
        self._room = _OUTPUT_LIMIT

    def as_text(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(self, "utf-8", "backslashreplace", write_through=True)

    @property
    def name(self) -> str:
        return f"<{self._fields['stream']}>"

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = bytes(data)
        if self._room > 0:
            self._room -= len(text)
            *whole, self._begun = (self._begun + text).split(b"\n")
            for line in whole:
                self._say(line.decode("utf-8", "replace"))
            if self._room <= 0:
                self._begun = b""
                self._say(f"[more than {_OUTPUT_LIMIT} bytes printed; the rest is not shown]")
        return len(text)

    def finish(self) -> None:
        """The order has ended: the next one starts a line of its own, with fresh room."""
        if self._begun:
            self.write(b"\n")
        self._room = _OUTPUT_LIMIT

    def _say(self, line: str) -> None:
        self._line.tell("log", "info", line, self._fields)


class CallRunner:
    """Carries out orders; at most one is current."""

    def __init__(self, line: ParentConnection) -> None:
        self._line = line
        self._cancellation: Cancellation | None = None  # present while a function runs that can hear a cancel
        self._interrupt: Callable[[], object] | None = None  # present while a coroutine runs
        self._out = LogStream(line, "stdout")
        self._err = LogStream(line, "stderr")

    def serve(self) -> NoReturn:
        signal.signal(signal.SIGTERM, self._on_terminate)
        sys.stdout, sys.stderr = self._out.as_text(), self._err.as_text()
        while True:
            order = self._line.receive()
            assert isinstance(order, frames.CallRequest)
            ended = self._carry_out(order)
            self._out.finish()
            self._err.finish()
            self._line.send(ended)
            if ended.is_worn:
                _leave()

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        if self._interrupt is not None:
            self._interrupt()
        elif self._cancellation is not None and self._cancellation.is_heeded:
            self._cancellation.request()
        else:
            os._exit(_TERMINATED)  # nobody would listen

    def _carry_out(self, order: frames.CallRequest) -> frames.CallResult:
        try:
            _go_to(order.folder)
            use_policy(msgspec.json.decode(order.policy, type=Policy))
            provider = _find(order)
        except Exception as error:
            return frames.CallResult(Failed(Code.PROVIDER_FAULT, str(error), False), is_found=False)
        try:
            return frames.CallResult(
                settle(self._call(provider, order), order.result_limit), is_worn=_has_grown(provider)
            )
        except BaseException as error:  # SystemExit of a user's function ends the task, not the child
            is_worn = isinstance(error, MemoryError | Exhausted) or _has_grown(provider)
            return frames.CallResult(describe(error, provider.prefix), is_worn)
        finally:
            self._cancellation = None

    def _call(self, provider: Provider, order: frames.CallRequest) -> Any:
        function = provider.function
        context: Any = None
        if function.wants_context:
            self._cancellation = Cancellation()
            port = CallPort(self._line.ask, self._line.tell)
            secrets, effects = ParentSecrets(self._line), EffectQueue()
            context = BlockingContext(order.assignment, port, secrets, self._cancellation, effects)
            if function.is_coroutine:
                context = context.for_coroutines
        payload = jsontext.decode(order.assignment.input) if function.wants_input else None
        value = function.invoke(jsontext.decode(order.assignment.arguments), payload, context)
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


def _find(order: frames.CallRequest) -> Provider:
    if sys.path != order.import_path:
        sys.path[:] = order.import_path
    name = order.assignment.provider
    if order.origin == SHIPPED.get(name) and (ours := shared.find(name)) is not None and ours.memory is not None:
        return ours  # which needs nothing of users
    for source in order.sources:
        load(source)
    provider = shared.find(name)
    if provider is None:
        load(order.origin)  # registered by an import of the host's own
        provider = shared.find(name)
    if provider is None:
        raise LookupError(f"{order.origin!r} does not register a provider {name!r} when it is imported")
    return provider


def _go_to(folder: str) -> None:
    """Relative names mean the same as for the parent, whatever the order before has done."""
    try:
        os.chdir(folder)
    except OSError:
        pass  # it is gone: whoever needs it tells


def _has_grown(provider: Provider) -> bool:
    """Of a provider with a bound: memory that one call has needed is not kept for those that need little."""
    if provider.memory is None:
        return False
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit > _GROWN


def _leave_with_parent(connection: socket.socket) -> None:
    """Also a function that never returns must not outlive the engine: wait for the other end to close."""
    poller = select.poll()
    poller.register(connection.fileno(), 0)  # no events asked for: a hang-up is always told
    poller.poll()
    _leave()


def _leave() -> NoReturn:
    os._exit(PARENT_GONE)  # at once, without waiting for threads of user code


class ForkServer:
    """Forks, and ends as its fork has ended, unless that was in order."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._fork = 0
        self._woken, self._waking = socket.socketpair()

    def serve(self) -> None:
        self._waking.setblocking(False)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the whole group gets it; it is for the fork
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
        """The parent sends the socket of the next fork, or has gone."""
        _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        if self._fork:
            os.kill(self._fork, signal.SIGKILL)
            os.waitpid(self._fork, 0)
            self._fork = 0
            os.killpg(0, signal.SIGTERM)  # what it has started and left behind
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
    faulthandler.enable(file=2)  # a crash in C code says where, in the pipe the parent reads
    ForkServer(control).serve()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2])) if len(sys.argv) > 1 else main(None, 0)
