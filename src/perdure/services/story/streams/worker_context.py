"""Messages and the context as the worker of a streaming step sees them (STR-091)."""

import asyncio
import queue
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.providers.context import TaskContext
from perdure.services.story.engrams.context import EngramContext
from perdure.streams.inlet import Packet
from perdure.streams.stream_messages import Frame, StreamMessage

_UNREAD: Any = object()


class _Done:
    """What `done` gives back where there is nothing to wait for."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE = _Done()


class WorkerSession(Protocol):
    """What the code of a worker has of its step, wherever the hub is."""

    step: str
    stream_id: str

    @property
    def is_stopping(self) -> bool: ...
    async def wait_stopping(self) -> None: ...
    def note_life(self) -> None: ...
    async def next(self) -> "InboundMessage | None": ...
    def take_some(self, most: int) -> "list[InboundMessage]": ...
    def put_back(self, messages: "list[InboundMessage]") -> None: ...
    def messages(self) -> "AsyncIterator[InboundMessage]": ...
    def answer(self, members: dict[str, Any], inbound: "InboundMessage") -> StreamMessage: ...
    async def publish(self, members: dict[str, Any], reply_to: "InboundMessage | None") -> None: ...
    def complete(self, inbound: "InboundMessage") -> Awaitable[None]: ...
    async def finish(self, inbound: "InboundMessage") -> None: ...
    def metadata_of(self, message: StreamMessage) -> dict[str, str]: ...
    def with_stored_values(self, inputs: bytes) -> Any: ...
    def note_signal(self, key: str, value: Any) -> None: ...


class InboundMessage:
    """A message on its way through a worker. `done()` acknowledges it; it may be awaited to know that it is kept."""

    __slots__ = ("_answers", "_inputs", "_packet", "_payload", "_session", "is_done", "staged")

    def __init__(self, packet: Packet, session: WorkerSession) -> None:
        self._packet = packet
        self._session = session
        self._payload = self._inputs = _UNREAD
        self._answers = 0
        self.staged: list[StreamMessage] = []  # publications that become real with `done`
        self.is_done = False

    @property
    def kind(self) -> str:
        return self._packet.message.kind

    @property
    def message_id(self) -> str:
        return self._packet.message.id

    @property
    def timestamp(self) -> int:
        return self._packet.message.at_ms

    @property
    def metadata(self) -> dict[str, str]:
        return self._session.metadata_of(self._packet.message)

    @property
    def payload(self) -> Any:
        if self._payload is _UNREAD:
            text = self._packet.message.payload
            self._payload = None if text is None else jsontext.decode(text)
        return self._payload

    @property
    def inputs(self) -> Any:
        if self._inputs is _UNREAD:
            text = self._packet.message.inputs
            self._inputs = None if text is None else self._session.with_stored_values(text)
        return self._inputs

    @property
    def transports(self) -> Any:
        text = self._packet.message.transports
        return None if text is None else jsontext.decode(text)

    @property
    def audio(self) -> Frame | None:
        return self._packet.message.audio

    @property
    def video(self) -> Frame | None:
        return self._packet.message.video

    @property
    def binary(self) -> Frame | None:
        return self._packet.message.binary

    @property
    def envelope(self) -> dict[str, Any]:
        """Where the message stands in its stream; `sequence` is 0 where packets are not numbered."""
        packet = self._packet
        return {
            "stream_id": self._session.stream_id,
            "sequence": packet.sequence,
            "partition": packet.partition or packet.message.partition,
        }

    @property
    def cancelled(self) -> bool:
        """Whether a later packet has cancelled the journey that this one belongs to (STR-077)."""
        return self._packet.is_cancelled

    @property
    def packet(self) -> Packet:
        return self._packet

    def done(self) -> Awaitable[None]:
        """Acknowledge it: it does not come again. Calling it twice changes nothing."""
        if self.is_done:
            return DONE
        self.is_done = True
        return self._session.complete(self)

    def json(self) -> dict[str, Any]:
        shown = msgspec.structs.replace(self._packet.message, metadata=self.metadata).json()
        shown["envelope"] = {**shown.get("envelope", {}), **self.envelope}
        return shown

    def next_id(self) -> str:
        """The id of the next publication for this message: its own, then `ID.1`, `ID.2` and so on (STR-130)."""
        number, self._answers = self._answers, self._answers + 1
        return f"{self.message_id}.{number}" if number else self.message_id


class StreamContext(EngramContext):
    """The context of a streaming worker: that of an Engram, and `publish`.

    In a coroutine function everything that reaches the run or the hub is awaited; a plain function gets results.
    """

    def __init__(
        self,
        inner: TaskContext,
        task: Mapping[str, Any],
        session: WorkerSession,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(inner, task)
        self._task_context = inner
        self._session = session
        self._loop = loop  # of a plain function, which runs in a thread
        self.message: InboundMessage | None = None  # that is being handled

    @property
    def cancelled(self) -> bool:
        return self._session.is_stopping

    def wait_cancelled(self) -> Any:
        return self._session.wait_stopping()

    def heartbeat(self, detail: Any = None) -> None:
        """A sign of life, for a worker that is busy with one message for long (STR-087)."""
        self._session.note_life()
        self._notify(self._inner.heartbeat, detail)

    def log(self, message: str, level: str = "info", **fields: Any) -> None:
        self._notify(partial(self._inner.log, **fields), message, level)
        self.logbook.add(str(message), level, fields)

    def publish(
        self,
        payload: Any = None,
        *,
        kind: str = "",
        metadata: Mapping[str, str] | None = None,
        message_id: str = "",
        inputs: Any = None,
        transports: Any = None,
        audio: Any = None,
        video: Any = None,
        binary: Any = None,
        envelope: Any = None,
        reply_to: InboundMessage | None = None,
    ) -> Any:
        """Publish a message. With `reply_to` it keeps that message's id, metadata, partition and journey.

        Under at-least-once delivery it returns once the message is kept; what answers a message with durable replay
        is kept together with its `done()`.
        """
        members = {"payload": payload}
        if kind or metadata is not None or message_id or inputs is not None or transports is not None:
            members |= {"kind": kind, "metadata": metadata, "message_id": message_id}
            members |= {"inputs": inputs, "transports": transports}
        if audio is not None or video is not None or binary is not None or envelope is not None:
            members |= {"audio": audio, "video": video, "binary": binary, "envelope": envelope}
        if self._loop is None:
            return self._session.publish(members, reply_to)
        if reply_to is None and self.message is not None:
            reply_to = self.message
        if reply_to is not None:
            reply_to.staged.append(self._session.answer(members, reply_to))
            return None
        return self._wait(self._session.publish(members, None))

    def effect_once(self, key: str, effect: Callable[[], Any]) -> Any:
        """Perform `effect` once for this message, whatever is repeated: the key is its id and yours (STR-068)."""
        message = self.message
        full = f"{self.step}/{'' if message is None else message.message_id}/{key}"
        if self._loop is None:
            return self._task_context.effect_once(full, effect)
        return _performed_here(self._loop, partial(self._task_context.effect_once, full), effect)

    def record_effect(self, key: str, status: str = "succeeded", details: Any = None) -> Any:
        entry = {"key": key, "status": status, "details": details}
        return self._wait(self._task_context.report({"step": self.step, "effect": entry}))

    def emit_signal(self, key: str, value: Any = None) -> Any:
        self._session.note_signal(key, value)
        return self._wait(self._task_context.report({"step": self.step, "signal": {"key": key, "value": value}}))

    async def report_log(self) -> None:
        await self.logbook.report(self._task_context, self.step)

    def replay_signals(self, since: int = 0, step: str | None = None) -> Any:
        return self._wait(super().replay_signals(since, step))

    def _notify(self, call: Callable[..., None], *arguments: Any) -> None:
        """What needs no answer; the port of the task belongs to the loop's thread."""
        if self._loop is None:
            call(*arguments)
        else:
            self._loop.call_soon_threadsafe(call, *arguments)

    def _wait(self, work: Any) -> Any:
        if self._loop is None:
            return work
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _performed_here(
    loop: asyncio.AbstractEventLoop, once: Callable[[Callable[[], Any]], Any], effect: Callable[[], Any]
) -> Any:
    """Have an effect claimed and recorded by the loop, and perform it in this thread, which may block."""
    turns: queue.SimpleQueue[asyncio.Future[Any] | None] = queue.SimpleQueue()

    def begin() -> asyncio.Future[Any]:
        performed: asyncio.Future[Any] = loop.create_future()
        turns.put(performed)
        return performed

    answer = asyncio.run_coroutine_threadsafe(once(begin), loop)
    answer.add_done_callback(lambda _: turns.put(None))
    if (performed := turns.get()) is not None:  # None: it was performed before, or is refused
        result, failure = None, None
        try:
            result = effect()
            if isinstance(result, Coroutine):
                result = asyncio.run_coroutine_threadsafe(result, loop).result()
        except Exception as error:
            failure = RuntimeError("the effect raised StopIteration") if isinstance(error, StopIteration) else error
        except BaseException as error:  # such as SystemExit: it ends the worker, not the loop
            failure = RuntimeError(f"the effect raised {error!r}")
        loop.call_soon_threadsafe(_settle, performed, result, failure)
    return answer.result()


def _settle(performed: "asyncio.Future[Any]", result: Any, failure: Exception | None) -> None:
    if performed.done():  # nobody waits for it any more
        return
    if failure is None:
        performed.set_result(result)
    else:
        performed.set_exception(failure)
