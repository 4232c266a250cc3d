"""Warm subprocesses, each with one call at a time. The worker sets how many there are.

A child is started on demand, reused, and replaced after a number of calls. One that runs user code forgets everything
between two families of runs; one with a memory limit runs none, and keeps nothing between its calls. Its death is an
outcome of the call it had, and of nothing else.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, nullcontext
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from perdure.kernel.ids import family_of
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Code, Failed, Outcome
from perdure.kernel.tasks.assignments import NOT_IMPORTED
from perdure.providers.failure import ProviderFailure
from perdure.providers.isolation import frames
from perdure.providers.isolation.connections import TAIL, ChildConnection, ChildOutput
from perdure.providers.process import Process, inherited_environment, open_read_pipe
from perdure.providers.registry import Provider
from perdure.providers.text import excerpt_of_end

RequestHandler = Callable[[str, tuple[Any, ...]], Awaitable[Any]]
NotificationHandler = Callable[[str, tuple[Any, ...]], None]

DATA_LIMIT = "RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS"
"""The limit of what a process may write to; unlike address space, libraries do not reserve it in advance."""

_OUT_OF_MEMORY = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS})  # how libraries exit that get none
_MOST_REQUESTS = 16  # of one child at a time; its own side sends one, and waits


class MemoryLimit(NamedTuple):
    """What a child may use: address space, set by the worker, or written memory, set by its provider."""

    limit: str
    bytes: int


class ProcessPools:
    """All children of one worker: different sizes are kept apart, and so are calls that must run alone."""

    def __init__(
        self, *, idle_children: int, limit_apart: int, calls_per_child: int, memory: int | None, grace: float
    ) -> None:
        """`idle_children`: how many children of a size may be idle."""
        self._idle_children, self._calls_per_child = idle_children, calls_per_child
        self._alone = asyncio.Semaphore(limit_apart)
        self._size = MemoryLimit("RLIMIT_AS", memory) if memory else None
        self._grace = grace
        self._pools: dict[tuple[bool, MemoryLimit | None], ProcessPool] = {}
        self._exclusive: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(
        self,
        call: frames.CallRequest,
        provider: Provider,
        key: str,
        on_request: RequestHandler,
        on_notification: NotificationHandler,
    ) -> Outcome:
        """Execute a call; of calls with the same `key`, unless it is empty, one at a time."""
        is_apart = call.assignment.apart
        size = self._size if provider.memory is None else MemoryLimit(DATA_LIMIT, provider.memory())
        pool = self._pools.get((is_apart, size))
        if pool is None:
            calls_per_child = 1 if is_apart else self._calls_per_child
            pool = self._pools[is_apart, size] = ProcessPool(self._idle_children, calls_per_child, size, self._grace)
        family = family_of(call.assignment.run) if provider.memory is None else ""
        lock = self._exclusive.setdefault(key, asyncio.Lock()) if key else nullcontext()
        async with lock, self._alone if is_apart else nullcontext():
            try:
                return await pool.run(call, family, on_request, on_notification)
            except ChildDied as death:
                if provider.memory is not None and death.by in _OUT_OF_MEMORY:
                    return _too_large(provider, death)
                return death.outcome

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()


def _too_large(provider: Provider, death: "ChildDied") -> Failed:
    message = f"{death.outcome.message}, probably because it ran out of memory; ask for less at a time"
    return Failed(f"Provider.Call.{provider.prefix}.TooLarge", message, False, death.outcome.details)


class ProcessPool:
    """Children of one size."""

    def __init__(self, idle_children: int, calls_per_child: int, size: MemoryLimit | None, grace: float) -> None:
        self._kept = idle_children
        self._calls_per_child = calls_per_child
        self._size = size
        self._grace = grace
        self._idle: list[ChildProcess] = []
        self._all: set[ChildProcess] = set()

    async def run(
        self, call: frames.CallRequest, family: str, on_request: RequestHandler, on_notification: NotificationHandler
    ) -> Outcome:
        """Execute one call; raises `ChildDied`. Cancelling this stops the child: SIGTERM, grace, SIGKILL.

        A child that was asked to stop is never used again: the signal may arrive after the call has ended.
        """
        child = await self._take(family)
        is_reusable = False
        try:
            result = await child.execute(call, on_request, on_notification)
            is_reusable = not result.is_worn and child.calls < self._calls_per_child
            if not result.is_found and call.assignment.apart:
                return Failed(NOT_IMPORTED, "its function cannot be imported by another process", False)
            return result.outcome
        except asyncio.CancelledError:
            await child.stop(self._grace)
            raise
        finally:
            if is_reusable and len(self._idle) < self._kept:
                self._idle.append(child)
            else:
                self._drop(child)

    async def close(self) -> None:
        """Kill every child and wait until it is gone."""
        children = list(self._all)
        for child in children:
            self._drop(child)
        await asyncio.gather(*(child.process.exited for child in children))

    async def _take(self, family: str) -> "ChildProcess":
        self._idle.sort(key=lambda child: child.family == family)  # those of the family are used first
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                if child.family != family:
                    await child.renew(family)
                return child
            self._drop(child)  # it was killed while it was idle
        child = await ChildProcess.start(self._size, family)
        self._all.add(child)
        return child

    def _drop(self, child: "ChildProcess") -> None:
        self._all.discard(child)
        child.kill()


class ChildDied(Exception):
    def __init__(self, outcome: Failed, code: int) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome
        self.by = -code  # the signal, if it was one


class ChildProcess:
    """The parent's side of one child."""

    process: Process
    _talk: "ChildConnection"
    _pipe: asyncio.ReadTransport
    _raw: "ChildOutput"

    def __init__(self, control: socket.socket) -> None:
        self.calls = 0
        self.family = ""
        self._control = control
        self._ended: asyncio.Future[frames.CallResult | None] | None = None  # None: it died
        self._on_request: RequestHandler | None = None
        self._on_notification: NotificationHandler | None = None
        self._misspoken: Failed | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, size: MemoryLimit | None, family: str) -> "ChildProcess":
        # -P: a file in the working directory must not stand in for a module of the standard library.
        argv = [sys.executable, "-P", "-m", "perdure.providers.isolation.child", *map(str, size or ())]
        with ExitStack() as ours, ExitStack() as theirs:
            near, far = socket.socketpair()
            child = cls(near)
            ours.callback(near.close)
            theirs.callback(far.close)
            await child.renew(family)
            ours.callback(child._talk.abort)
            child._pipe, child._raw, output = await open_read_pipe(lambda: ChildOutput(child.overhear))
            ours.callback(child._pipe.close)
            theirs.pop_all()  # from here on they belong to the process
            child.process = await Process.start(
                argv, stdin=far.detach(), stdout=output, stderr=output, env=inherited_environment()
            )
            ours.pop_all()
        return child

    async def renew(self, family: str) -> None:
        """From now on it works for this family, and knows nothing of its earlier calls."""
        near, far = socket.socketpair()
        with far:
            before = getattr(self, "_talk", None)
            _, self._talk = await asyncio.get_running_loop().create_connection(lambda: ChildConnection(self), sock=near)
            self.family = family
            if before is not None:
                before.abort()
            socket.send_fds(self._control, [b"."], [far.fileno()])

    @property
    def is_alive(self) -> bool:
        return not self._talk.is_over

    async def execute(
        self, call: frames.CallRequest, on_request: RequestHandler, on_notification: NotificationHandler
    ) -> frames.CallResult:
        self.calls += 1
        self._ended = asyncio.get_running_loop().create_future()
        self._on_request, self._on_notification = on_request, on_notification
        self._raw.begin()
        self._talk.take_up_to(call.result_limit + frames.SLACK)
        self._talk.say(call)
        # Shielded: a cancelled call is still read until `stop` has finished.
        result = await asyncio.shield(self._ended)
        if self._misspoken is not None:
            self.kill()
            raise ChildDied(self._misspoken, await asyncio.shield(self.process.exited))
        if result is None:
            raise await self._explain_death()
        self._ended = self._on_request = self._on_notification = None
        return result

    async def stop(self, grace: float) -> None:
        """Let the function end by itself within the grace period; then end the process."""
        self.process.signal(signal.SIGTERM)
        try:
            if self._ended is not None:
                await asyncio.wait([self._ended], timeout=grace)
        finally:
            self.kill()
        await asyncio.shield(self.process.exited)

    def kill(self) -> None:
        self.process.signal(signal.SIGKILL)
        self._talk.abort()
        self._control.close()
        self._pipe.close()
        for task in self._answering:
            task.cancel()

    def on_frame(self, frame: frames.Frame) -> None:
        match frame:
            case frames.ParentRequest(verb, arguments):
                if len(self._answering) >= _MOST_REQUESTS or self._talk.has_much_unread:
                    raise ValueError("it asks, and does not wait for answers")
                task = asyncio.get_running_loop().create_task(self._reply(verb, tuple(arguments)))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case frames.Notification(verb, arguments) if self._on_notification is not None:
                self._on_notification(verb, tuple(arguments))
            case frames.CallResult() if self._ended is not None and not self._ended.done():
                self._ended.set_result(frame)

    def misspoke(self, error: Exception) -> None:
        """It violates the protocol: some code that it runs has taken the connection."""
        if isinstance(error, frames.FrameTooLarge):
            facts = {"size": error.size, "limit": error.limit}
            message = f"the subprocess has sent too much: {error}"
            failure = Failed(Code.RESULT_TOO_LARGE, message, False, jsontext.encode_finite(facts))
        else:
            failure = Failed(Code.PROVIDER_FAULT, f"the subprocess has broken its protocol: {error}", False)
        self._misspoken = failure
        self._talk.abort()
        self.lost(self._talk)

    def lost(self, talk: "ChildConnection") -> None:
        if talk is self._talk and self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def overhear(self, line: str) -> None:
        if self._on_notification is not None:
            self._on_notification("log", ("info", line, {"stream": "raw"}))

    async def _reply(self, verb: str, arguments: tuple[Any, ...]) -> None:
        assert self._on_request is not None
        try:
            reply: frames.Frame = frames.ParentReply(await self._on_request(verb, arguments))
        except ProviderFailure as failure:
            reply = frames.ParentRefusal(failure.code, failure.message)
        except Exception as error:
            reply = frames.ParentRefusal(None, f"{type(error).__name__}: {error}")
        self._talk.say(reply)

    async def _explain_death(self) -> ChildDied:
        # It ends with its fork, unless that continues with its socket closed, which is of no use.
        await asyncio.wait([self.process.exited], timeout=0.5)
        self.process.signal(signal.SIGKILL)
        code = await asyncio.shield(self.process.exited)
        await asyncio.wait([self._raw.ended], timeout=0.5)
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        facts = {"pid": self.process.pid, "exit_code": code, "output": excerpt_of_end(bytes(self._raw.tail), TAIL)}
        message = f"the subprocess was {how}" if code < 0 else f"the subprocess {how}"
        return ChildDied(Failed(Code.WORKER_DIED, message, True, jsontext.encode_finite(facts)), code)
