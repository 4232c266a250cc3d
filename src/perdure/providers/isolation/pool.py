"""Warm subprocesses, each with one order at a time. The worker says how many there are.

A child is started on demand, used again, and replaced after so many orders. What runs code of users forgets everything
between two families of runs; what has a bound of memory runs none, and keeps nothing between its calls.
Its death is an outcome of the order it held, and of nothing else.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, nullcontext
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from perdure.kernel import jsontext
from perdure.kernel.assignments import NOT_IMPORTED
from perdure.kernel.ids import family_of
from perdure.kernel.outcomes import Code, Failed, Outcome
from perdure.providers.failure import ProviderFailure
from perdure.providers.isolation import frames
from perdure.providers.process import Process, inherited_environment, open_read_pipe
from perdure.providers.registry import Provider
from perdure.providers.text import MARGIN, excerpt_of_end

RequestHandler = Callable[[str, tuple[Any, ...]], Awaitable[Any]]
NotificationHandler = Callable[[str, tuple[Any, ...]], None]

DATA_LIMIT = "RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS"
"""The limit of what a process may write to; unlike address space a library does not take it without need."""

_OUT_OF_MEMORY = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS})  # how libraries end that get none
_TAIL = 4000  # bytes of raw output kept to explain a death
_OUTPUT_LIMIT = 1 << 20  # bytes of raw output per order that become log lines


class MemoryLimit(NamedTuple):
    """What a child may have: address space, as the worker says, or written memory, as its provider does."""

    limit: str
    bytes: int


class ProcessPools:
    """All children of one worker: apart from each other are those of different sizes, and what is to be alone."""

    def __init__(
        self, *, idle_children: int, limit_apart: int, orders_per_child: int, memory: int | None, grace: float
    ) -> None:
        """`kept`: how many of a size may wait for their next order."""
        self._kept, self._orders_per_child = idle_children, orders_per_child
        self._alone = asyncio.Semaphore(limit_apart)
        self._size = MemoryLimit("RLIMIT_AS", memory) if memory else None
        self._grace = grace
        self._pools: dict[tuple[bool, MemoryLimit | None], ProcessPool] = {}
        self._exclusive: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(
        self, order: frames.CallRequest, provider: Provider, key: str, answer: RequestHandler, hear: NotificationHandler
    ) -> Outcome:
        """Carry it out; of orders with the same `key`, unless it is empty, one at a time."""
        is_apart = order.assignment.apart
        size = self._size if provider.memory is None else MemoryLimit(DATA_LIMIT, provider.memory())
        pool = self._pools.get((is_apart, size))
        if pool is None:
            orders = 1 if is_apart else self._orders_per_child
            pool = self._pools[is_apart, size] = ProcessPool(self._kept, orders, size, self._grace)
        family = family_of(order.assignment.run) if provider.memory is None else ""
        lock = self._exclusive.setdefault(key, asyncio.Lock()) if key else nullcontext()
        async with lock, self._alone if is_apart else nullcontext():
            try:
                return await pool.run(order, family, answer, hear)
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

    def __init__(self, idle_children: int, orders_per_child: int, size: MemoryLimit | None, grace: float) -> None:
        self._kept = idle_children
        self._orders_per_child = orders_per_child
        self._size = size
        self._grace = grace
        self._idle: list[ChildProcess] = []
        self._all: set[ChildProcess] = set()

    async def run(
        self, order: frames.CallRequest, family: str, answer: RequestHandler, hear: NotificationHandler
    ) -> Outcome:
        """Carry out one order; raises `ChildDied`. Cancelling this stops the child: SIGTERM, grace, SIGKILL.

        A child that was asked to stop is never used again: the signal may arrive after the order has ended.
        """
        child = await self._take(family)
        is_reusable = False
        try:
            ended = await child.carry_out(order, answer, hear)
            is_reusable = not ended.is_worn and child.orders < self._orders_per_child
            if not ended.is_found and order.assignment.apart:
                return Failed(NOT_IMPORTED, "its function cannot be imported by another process", False)
            return ended.outcome
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
        self._idle.sort(key=lambda child: child.family == family)  # those of the family are taken first
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                if child.family != family:
                    await child.renew(family)
                return child
            self._drop(child)  # somebody killed it while it was idle
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
        self.orders = 0
        self.family = ""
        self._control = control
        self._ended: asyncio.Future[frames.CallResult | None] | None = None  # None: it died
        self._answer: RequestHandler | None = None
        self._hear: NotificationHandler | None = None
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
        """From now on it works for this family, and knows nothing of what it has done before."""
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

    async def carry_out(
        self, order: frames.CallRequest, answer: RequestHandler, hear: NotificationHandler
    ) -> frames.CallResult:
        self.orders += 1
        self._ended = asyncio.get_running_loop().create_future()
        self._answer, self._hear = answer, hear
        self._raw.begin()
        self._talk.say(order)
        # Shielded: a cancelled order is still heard until `stop` is through with it.
        ended = await asyncio.shield(self._ended)
        if ended is None:
            raise await self._explain_death()
        self._ended = self._answer = self._hear = None
        return ended

    async def stop(self, grace: float) -> None:
        """Let the function end by itself, for as long as the grace lasts; then end the process."""
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

    def heard(self, frame: frames.Frame) -> None:
        match frame:
            case frames.ParentRequest(verb, arguments):
                task = asyncio.get_running_loop().create_task(self._reply(verb, tuple(arguments)))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case frames.Notification(verb, arguments) if self._hear is not None:
                self._hear(verb, tuple(arguments))
            case frames.CallResult() if self._ended is not None and not self._ended.done():
                self._ended.set_result(frame)

    def lost(self, talk: "ChildConnection") -> None:
        if talk is self._talk and self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def overhear(self, line: str) -> None:
        if self._hear is not None:
            self._hear("log", ("info", line, {"stream": "raw"}))

    async def _reply(self, verb: str, arguments: tuple[Any, ...]) -> None:
        assert self._answer is not None
        try:
            reply: frames.Frame = frames.ParentReply(await self._answer(verb, arguments))
        except ProviderFailure as failure:
            reply = frames.ParentRefusal(failure.code, failure.message)
        except Exception as error:
            reply = frames.ParentRefusal(None, f"{type(error).__name__}: {error}")
        self._talk.say(reply)

    async def _explain_death(self) -> ChildDied:
        # It ends at once as its fork has, unless that lives on with its socket closed, which is of no use.
        await asyncio.wait([self.process.exited], timeout=0.5)
        self.process.signal(signal.SIGKILL)
        code = await asyncio.shield(self.process.exited)
        await asyncio.wait([self._raw.ended], timeout=0.5)
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        facts = {"pid": self.process.pid, "exit_code": code, "output": excerpt_of_end(bytes(self._raw.tail), _TAIL)}
        message = f"the subprocess was {how}" if code < 0 else f"the subprocess {how}"
        return ChildDied(Failed(Code.WORKER_DIED, message, True, jsontext.encode_finite(facts)), code)


class ChildConnection(asyncio.Protocol):
    """The connection to one fork of a child."""

    _transport: asyncio.Transport

    def __init__(self, child: ChildProcess) -> None:
        self.is_over = False
        self._child = child
        self._reader = frames.FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def say(self, frame: frames.Frame) -> None:
        self._transport.write(frames.encode_frame(frame))

    def abort(self) -> None:
        self.is_over = True
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while not self.is_over and (frame := self._reader.next()) is not None:
            self._child.heard(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_over = True
        self._child.lost(self)


class ChildOutput(asyncio.Protocol):
    """What a child writes past Python: lines for the log, and the tail to explain a death."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.tail = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._say = say
        self._begun = b""
        self._room = _OUTPUT_LIMIT

    def begin(self) -> None:
        """A new order: what was said before does not explain its end."""
        self.tail.clear()
        self._room = _OUTPUT_LIMIT

    def data_received(self, data: bytes) -> None:
        self.tail += data
        del self.tail[: -_TAIL - MARGIN]
        if self._room <= 0:
            return
        self._room -= len(data)
        *whole, self._begun = (self._begun + data).split(b"\n")
        for line in whole:
            self._say(line.decode("utf-8", "replace"))
        if self._room <= 0:
            self._begun = b""
            self._say(f"[more than {_OUTPUT_LIMIT} bytes of output; the rest is not shown]")

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
