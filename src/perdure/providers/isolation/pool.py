"""A bounded number of warm subprocesses, each with one order at a time.

A child is started on demand, used again, and replaced after so many orders.
Its death is an outcome of the order it held, and of nothing else.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from perdure.kernel import jsontext
from perdure.kernel.outcomes import Code, Failed, Outcome
from perdure.kernel.work import NOT_IMPORTED
from perdure.providers.failure import ProviderFailure
from perdure.providers.isolation import frames
from perdure.providers.process import Process, inherited_environment, read_end
from perdure.providers.text import MARGIN, excerpt_of_end

Answering = Callable[[str, tuple[Any, ...]], Awaitable[Any]]
Hearing = Callable[[str, tuple[Any, ...]], None]

_TAIL = 4000  # bytes of raw output kept to explain a death
_OUTPUT_LIMIT = 1 << 20  # bytes of raw output per order that become log lines


class Pool:
    """Children of one worker, on one event loop."""

    def __init__(self, *, limit: int, orders_per_child: int, memory: int | None, grace: float) -> None:
        self._free = asyncio.Semaphore(limit)
        self._orders_per_child = orders_per_child
        self._memory = memory
        self._grace = grace
        self._idle: list[Isolated] = []
        self._all: set[Isolated] = set()

    async def run(self, order: frames.Order, answer: Answering, hear: Hearing) -> Outcome:
        """Carry out one order. Cancelling this stops the child: SIGTERM, grace, SIGKILL.

        A child that was asked to stop is never used again: the signal may arrive after the order has ended.
        """
        async with self._free:
            child = await self._take()
            is_reusable = False
            try:
                ended = await child.carry_out(order, answer, hear)
                is_reusable = not ended.is_worn and child.orders < self._orders_per_child
                if not ended.is_found and order.assignment.apart:
                    return Failed(NOT_IMPORTED, "its function cannot be imported by another process", False)
                return ended.outcome
            except ChildDied as death:
                return death.outcome
            except asyncio.CancelledError:
                await child.stop(self._grace)
                raise
            finally:
                if is_reusable:
                    self._idle.append(child)
                else:
                    self._drop(child)

    async def close(self) -> None:
        """Kill every child and wait until it is gone."""
        children = list(self._all)
        for child in children:
            self._drop(child)
        await asyncio.gather(*(child.process.exited for child in children))

    async def _take(self) -> "Isolated":
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._drop(child)  # somebody killed it while it was idle
        child = await Isolated.start(self._memory)
        self._all.add(child)
        return child

    def _drop(self, child: "Isolated") -> None:
        self._all.discard(child)
        child.kill()


class ChildDied(Exception):
    def __init__(self, outcome: Failed) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class Isolated(asyncio.Protocol):
    """The parent's side of one child."""

    process: Process
    _transport: asyncio.Transport
    _pipe: asyncio.ReadTransport
    _raw: "RawOutput"

    def __init__(self) -> None:
        self.orders = 0
        self.is_alive = True
        self._reader = frames.Reader()
        self._ended: asyncio.Future[frames.Ended | None] | None = None  # None: it died
        self._answer: Answering | None = None
        self._hear: Hearing | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, memory: int | None) -> "Isolated":
        child = cls()
        # -P: a file in the working directory must not stand in for a module of the standard library.
        argv = [sys.executable, "-P", "-m", "perdure.providers.isolation.child", *([str(memory)] if memory else [])]
        with ExitStack() as ours, ExitStack() as theirs:
            near, far = socket.socketpair()
            theirs.callback(far.close)
            child._transport, _ = await asyncio.get_running_loop().create_connection(lambda: child, sock=near)
            ours.callback(child._transport.abort)
            child._pipe, child._raw, output = await read_end(lambda: RawOutput(child.overhear))
            ours.callback(child._pipe.close)
            theirs.pop_all()  # from here on they belong to the process
            child.process = await Process.start(
                argv, stdin=far.detach(), stdout=output, stderr=output, env=inherited_environment()
            )
            ours.pop_all()
        return child

    async def carry_out(self, order: frames.Order, answer: Answering, hear: Hearing) -> frames.Ended:
        self.orders += 1
        self._ended = asyncio.get_running_loop().create_future()
        self._answer, self._hear = answer, hear
        self._raw.begin()
        self._transport.write(frames.write(order))
        # Shielded: a cancelled order is still heard until `stop` is through with it.
        ended = await asyncio.shield(self._ended)
        if ended is None:
            raise ChildDied(await self._explain_death())
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
        self.is_alive = False
        self._transport.abort()
        self._pipe.close()
        for task in self._answering:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (frame := self._reader.next()) is not None:
            match frame:
                case frames.Question(verb, arguments):
                    task = asyncio.get_running_loop().create_task(self._reply(verb, tuple(arguments)))
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)
                case frames.Remark(verb, arguments) if self._hear is not None:
                    self._hear(verb, tuple(arguments))
                case frames.Ended() if self._ended is not None and not self._ended.done():
                    self._ended.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_alive = False
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def overhear(self, line: str) -> None:
        if self._hear is not None:
            self._hear("log", ("info", line, {"stream": "raw"}))

    async def _reply(self, verb: str, arguments: tuple[Any, ...]) -> None:
        assert self._answer is not None
        try:
            reply: frames.Frame = frames.Answer(await self._answer(verb, arguments))
        except ProviderFailure as failure:
            reply = frames.Refusal(failure.code, failure.message)
        except Exception as error:
            reply = frames.Refusal(None, f"{type(error).__name__}: {error}")
        self._transport.write(frames.write(reply))

    async def _explain_death(self) -> Failed:
        self.process.signal(signal.SIGKILL)  # it may live on with its socket closed, which is of no use
        code = await asyncio.shield(self.process.exited)
        await asyncio.wait([self._raw.ended], timeout=0.5)
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        facts = {"pid": self.process.pid, "exit_code": code, "output": excerpt_of_end(bytes(self._raw.tail), _TAIL)}
        message = f"the subprocess was {how}" if code < 0 else f"the subprocess {how}"
        return Failed(Code.WORKER_DIED, message, True, jsontext.encode_finite(facts))


class RawOutput(asyncio.Protocol):
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
