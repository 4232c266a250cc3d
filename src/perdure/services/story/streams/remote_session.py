"""The session of a streaming step in a worker elsewhere: the calls of a `StreamSession`, over a connection (STR-112).

The worker's function is entered once for each connection. When the connection is lost its session is over: what was not
acknowledged comes again in the next one, and publications that were not answered are the function's to repeat.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.tasks.assignments import Assignment, EffectClaimResult
from perdure.providers.context import Cancellation, SecretSource, TaskContext
from perdure.providers.effects import EffectQueue
from perdure.providers.remote_steps import Frame, StreamConnectionLost, WorkerConnection
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.engrams.hydration import hydrate_inputs
from perdure.services.story.engrams.registry import shared_engrams
from perdure.services.story.streams.function_worker import is_plain, run_function
from perdure.services.story.streams.stream_session import CHANNEL
from perdure.services.story.streams.worker_context import DONE, InboundMessage, StreamContext
from perdure.streams.inlet import Packet
from perdure.streams.stream_messages import BadMessage, StreamMessage, make_message, read_message

CREDITS = 4 * CHANNEL  # messages that may be on their way to the worker


def streaming_providers() -> list[str]:
    """What is loaded here and can do streaming steps."""
    return sorted(shared_engrams.streaming)


async def perform_step(connection: WorkerConnection, step: Frame, secrets: SecretSource) -> None:
    """Do one streaming step until its messages end, the function fails, or the connection is lost."""
    session = RemoteSession(connection, step)
    function = shared_engrams.streaming[step["provider"]]
    loop = asyncio.get_running_loop()
    context = TaskContext(session.assignment, RemotePort(session), secrets, session.cancellation, EffectQueue())
    stream_context = StreamContext(context, step["arguments"], session, loop if is_plain(function) else None)
    session.context = stream_context
    try:
        config = hydrate_inputs(step["arguments"], secrets, step["namespace"], step["run"])
        await connection.send({"type": "ready", "credits": CREDITS})
        listening = asyncio.ensure_future(session.listen())
        working = asyncio.ensure_future(run_function(function, config, session, stream_context))
        try:
            await asyncio.wait({listening, working}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                listening.result()  # raises
            working.result()
            await session.settle()
            await stream_context.report_log()
            await connection.send({"type": "returned"})
        finally:
            listening.cancel()
            working.cancel()
    except StreamConnectionLost:
        return
    except Exception as error:
        retryable = error.retryable if isinstance(error, EngramError) else None
        message = secrets.redact(str(error) or type(error).__name__)
        failure = {"message": message, "type": getattr(error, "type", None), "retryable": retryable}
        await connection.send({"type": "failed", "error": failure})


class RemoteSession:
    """What the worker's function sees of the hub."""

    def __init__(self, connection: WorkerConnection, step: Frame) -> None:
        self._connection = connection
        self.step: str = step["step"]
        self.stream_id = f"{step['namespace']}/{step['storyRun']}/{self.step}"
        self.assignment = Assignment(
            RunId(step["run"]), 0, f"/topology/{self.step}", step["provider"], b"{}", b"null", 1, 1,
            f"{step['run']}/{self.step}", namespace=step["namespace"],
        )  # fmt: skip
        self.cancellation = Cancellation()
        self.context: StreamContext
        self.has_done = False
        self._waiting: deque[InboundMessage] = deque()
        self._open: dict[int, InboundMessage] = {}
        self._last: InboundMessage | None = None
        self._has_ended = False
        self._arrived = asyncio.Event()
        self._may_publish = asyncio.Event()
        self._may_publish.set()
        self._numbers = 0
        self._answers: dict[int, asyncio.Future[Frame]] = {}
        self._kept: dict[int, asyncio.Future[None]] = {}

    # Frames.

    async def listen(self) -> None:
        try:
            while True:
                self._hear(await self._connection.receive())
        finally:
            lost = StreamConnectionLost("the server is away")
            unheard: list[asyncio.Future[Any]] = [*self._answers.values(), *self._kept.values()]
            for future in unheard:
                if not future.done():
                    future.set_exception(lost)
                    future.exception()  # nobody has to wait for it

    def _hear(self, frame: Frame) -> None:
        match frame["type"]:
            case "message":
                self._waiting.append(self._inbound(frame))
                self._arrived.set()
            case "cancelled":
                if (message := self._open.get(frame["id"])) is not None:
                    message.packet.is_cancelled = True
            case "published" | "refused" | "answer":
                if (answer := self._answers.pop(frame["number"], None)) is not None and not answer.done():
                    answer.set_result(frame)
            case "kept":
                if (kept := self._kept.pop(frame["id"], None)) is not None and not kept.done():
                    kept.set_result(None)
            case "pause":
                self._may_publish.clear()
            case "resume":
                self._may_publish.set()
            case "stop":
                self.stop()
            case "end":
                self._has_ended = True
                self._arrived.set()

    def _inbound(self, frame: Frame) -> InboundMessage:
        value = dict(frame["message"])
        kind, value["kind"] = value.get("kind") or "", ""
        message = read_message(value, "", 0)
        message.kind = kind or message.kind
        envelope = value.get("envelope") or {}
        partition, sequence = envelope.get("partition") or "", envelope.get("sequence") or 0
        inbound = InboundMessage(Packet(frame["id"], message, 0, partition, sequence), self)
        self._open[frame["id"]] = inbound
        return inbound

    async def ask(self, frame: Frame) -> Frame:
        self._numbers += 1
        number = self._numbers
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._connection.send({**frame, "number": number})
        return await answer

    # Stopping.

    @property
    def is_stopping(self) -> bool:
        return self.cancellation.requested

    async def wait_stopping(self) -> None:
        await self.cancellation.wait()

    def stop(self) -> None:
        self.cancellation.request()
        self._arrived.set()

    def note_life(self) -> None:
        """The connection has its own signs of life."""

    # Messages.

    async def next(self) -> InboundMessage | None:
        last, self._last = self._last, None
        if last is not None and not last.is_done and not last.packet.sequence:
            last.done()  # nothing is acknowledged here: asking for the next one means that it was handled
        while not self._waiting:
            if self.is_stopping or self._has_ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        if self.is_stopping:
            return None
        message = self._last = self._waiting.popleft()
        await self._connection.send({"type": "credits", "messages": 1})
        return message

    def take_some(self, most: int) -> list[InboundMessage]:
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        if taken:
            self._send_soon({"type": "credits", "messages": len(taken)})
        return taken

    def put_back(self, messages: list[InboundMessage]) -> None:
        self._waiting.extendleft(reversed(messages))

    def _send_soon(self, frame: Frame) -> "asyncio.Task[None]":
        return asyncio.ensure_future(self._connection.send(frame))

    async def messages(self) -> AsyncIterator[InboundMessage]:
        while (message := await self.next()) is not None:
            self.context.message = message
            yield message

    # Publishing.

    def make(self, members: dict[str, Any]) -> StreamMessage:
        """Checked here, so that a bad message fails where it was made."""
        return make_message("", 0, **members)

    def answer(self, members: dict[str, Any], inbound: InboundMessage) -> StreamMessage:
        return self.make(members)

    async def publish(self, members: dict[str, Any], reply_to: InboundMessage | None) -> None:
        await self._publish(self.make(members), reply_to)

    async def _publish(self, message: StreamMessage, reply_to: InboundMessage | None) -> None:
        if reply_to is None:
            await self._may_publish.wait()
        shown = message.json()
        del shown["timestamp"]
        if not message.id:
            del shown["messageId"]
        frame: Frame = {"type": "publish", "message": shown}
        if reply_to is not None:
            frame["replyTo"] = reply_to.packet.position
        answer = await self.ask(frame)
        if answer["type"] == "refused":
            raise BadMessage(answer.get("message") or "the message was refused")

    def complete(self, inbound: InboundMessage) -> Awaitable[None]:
        self.has_done = True
        kept = self._kept[inbound.packet.position] = asyncio.get_running_loop().create_future()
        self._send_soon({"type": "done", "id": inbound.packet.position})
        self._open.pop(inbound.packet.position, None)
        return kept if inbound.packet.sequence else DONE

    async def finish(self, inbound: InboundMessage) -> None:
        if inbound.is_done:
            return
        inbound.is_done = True
        staged, inbound.staged = inbound.staged, []
        for message in staged:
            await self._publish(message, inbound)
        await self.complete(inbound)

    async def settle(self) -> None:
        """Wait until everything that was done is kept."""
        last, self._last = self._last, None
        if last is not None and not last.is_done and not last.packet.sequence:
            last.done()
        await asyncio.gather(*self._kept.values())

    def metadata_of(self, message: StreamMessage) -> dict[str, str]:
        return message.metadata

    def with_stored_values(self, inputs: bytes) -> Any:
        return jsontext.decode(inputs)

    def note_signal(self, key: str, value: Any) -> None:
        """The report about it does that."""


class RemotePort:
    """How the function reaches its run: each call is a frame, and waits for its answer."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session

    async def _ask(self, verb: str, key: str = "", body: Any = None) -> Any:
        answer = await self._session.ask({"type": "ask", "verb": verb, "key": key, "body": body})
        if answer.get("error"):
            raise Conflict(str(answer["error"]))
        return answer.get("value")

    async def claim_effect(self, key: str) -> EffectClaimResult:
        claim = await self._ask("claim", key)
        result = jsontext.encode(claim["result"]) if claim["completed"] else None
        return EffectClaimResult(claim["completed"], claim["inDoubt"], result, claim["unfit"])

    async def complete_effect(self, key: str, result: bytes) -> None:
        await self._ask("complete", key, jsontext.decode(result))

    async def complete_effect_unfit(self, key: str, reason: str) -> None:
        await self._ask("unfit", key, reason)

    async def release_effect(self, key: str) -> None:
        await self._ask("release", key)

    async def emit_signal(self, name: str, value: bytes) -> None:
        await self.report(jsontext.encode({"signal": {"key": name, "value": jsontext.decode(value)}}))

    async def report(self, body: bytes) -> bytes | None:
        return jsontext.encode(await self._ask("report", body=jsontext.decode(body)))

    def heartbeat(self, detail: bytes | None) -> None:
        self._session.note_life()

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """What was logged is reported at the end."""
