"""A streaming worker elsewhere: what its connection and the hub tell each other (STR-112).

    hub ─▶ worker     step, message, cancelled, published, refused, kept, pause, resume, end, stop, answer
    worker ─▶ hub     ready, credits, done, publish, ask, heartbeat, leaving, returned, failed

A worker gets as many messages as it has given credits for. What it has not done when its connection is lost goes to the
next one, where it is kept (STR-064). A worker that is leaving is replaced by another one: it stops first, or with the
strategy `blue_green` the other one starts first; two never have messages of one step at the same time (STR-088).
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.dialects.story.state.folding.topologies import CUTTING_OVER, HANDING_OVER, REPLACING
from perdure.engine.decision_threads import done_aside
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.remote_steps import (
    Frame,
    RemoteStep,
    StreamConnectionLost,
    WorkerConnection,
    lack_of,
    remote_steps,
)
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.streams.command_worker import publication
from perdure.services.story.streams.stream_session import StreamSession
from perdure.services.story.streams.worker_context import InboundMessage
from perdure.streams.hub import Draining, StaleSession
from perdure.streams.inlet import MOST_PENDING
from perdure.streams.stream_graph import SECOND
from perdure.streams.stream_messages import BadMessage, StreamMessage

if TYPE_CHECKING:
    from perdure.services.story.streams.live_topology import LiveTopology

STARTS = 60.0  # seconds that a worker may take until it is ready
LOOK_EVERY = 0.05
MOST_UNDER_WAY = 1_000  # publications and acknowledgements of one worker that are being written
MOST_BYTES_UNDER_WAY = 16 << 20  # of their frames; a larger one is alone
MOST_BYTES_OPEN = 64 << 20  # of messages that were handed over and are not done, under best effort
LONGEST_KEY = 10_000  # characters of the key of an effect: it is recorded
BLUE_GREEN = "blue_green"


class RemoteStepOfTopology:
    """One step whose workers are elsewhere: it asks for them, one after the other."""

    def __init__(self, topology: "LiveTopology", name: str, spec: dict[str, Any]) -> None:
        self._topology = topology
        self._name = name
        self._spec = spec
        self._place: tuple[str, str] = spec["pool"], spec["provider"]
        self._waiting: RemoteStep | None = None
        self.successor: ReadyWorker | None = None  # of a worker that is leaving; its code has started
        handoff = spec.get("handoff") or {}
        self.starts_new_first = handoff.get("strategy") == BLUE_GREEN
        self.most_in_flight: int = handoff.get("maxInFlight") or 0
        self.drain: float = min(handoff.get("drain", 0), topology.task["drain"]) / SECOND

    @property
    def lack(self) -> str:
        """Why the step waits: a worker that offers it gets it at once."""
        return lack_of(*self._place)

    async def next_worker(self) -> "ReadyWorker":
        """A worker whose code has started."""
        successor, self.successor = self.successor, None
        if successor is not None:
            return successor
        namespace = self._topology.run["namespace"]
        while True:
            self._waiting = RemoteStep(namespace, *self._place, self._topology.run["uid"], self._name)
            remote_steps.request(self._waiting)
            try:
                connection = await self._waiting.connection
            finally:
                remote_steps.withdraw(self._waiting)
                self._waiting = None
            try:
                async with asyncio.timeout(STARTS):
                    return await self._start(connection)
            except (StreamConnectionLost, TimeoutError):
                await connection.close()

    async def _start(self, connection: WorkerConnection) -> "ReadyWorker":
        topology = self._topology
        await connection.send(
            {
                "type": "step",
                "run": topology.run["uid"],
                "storyRun": topology.run["name"],
                "namespace": topology.run["namespace"],
                "step": self._name,
                "provider": self._spec["provider"],
                "arguments": self._spec["task"],
            }
        )
        while (frame := await connection.receive())["type"] != "ready":
            if frame["type"] == "failed":
                return ReadyWorker(connection, 0, _failure(frame))
        return ReadyWorker(connection, _count(frame.get("credits")))

    @property
    def is_waiting(self) -> bool:
        return self._waiting is not None


class ReadyWorker:
    """A connected worker that may be given so many messages; `failure`: its code could not be started."""

    def __init__(self, connection: WorkerConnection, credits: int, failure: EngramError | None = None) -> None:
        self.connection = connection
        self.credits = credits
        self.failure = failure


class RemoteConversation:
    """What is said between the hub and one worker, until the worker returns, fails, leaves or is lost."""

    def __init__(
        self, step: RemoteStepOfTopology, worker: ReadyWorker, session: StreamSession, topology: "LiveTopology"
    ) -> None:
        self._step = step
        self._session = session
        self._topology = topology
        self._connection = worker.connection
        self._credits = worker.credits
        self._open: dict[int, InboundMessage] = {}
        self._publishing: dict[int, set[asyncio.Task[None]]] = {}  # those to come, or lost, by message that they answer
        self._under_way: dict[asyncio.Task[None], int] = {}  # with the bytes of the frame
        self._bytes_under_way = self._bytes_open = 0
        self._changed = asyncio.Event()  # credits, or messages that are done
        self._is_leaving = self._is_quiet = self._is_paused = False
        self._told: set[int] = set()  # cancelled messages
        session.reads_ahead = True

    async def hold(self, context: TaskContext) -> None:
        """Raises `StreamConnectionLost` if the worker is gone, also because another one has taken its place."""
        self._context = context
        listening = asyncio.ensure_future(self._listen())
        parts = {listening, asyncio.ensure_future(self._feed()), asyncio.ensure_future(self._poll())}
        try:
            while not listening.done():
                ended, parts = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                for part in ended:
                    if part is listening or not isinstance(part.exception(), StreamConnectionLost):
                        part.result()  # a worker that hears nothing any more may have said something before
            await asyncio.gather(*self._under_way, return_exceptions=True)  # who returned need not hear of it
        finally:
            for part in (*parts, *self._under_way):
                part.cancel()
            await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        try:
            await self._connection.send({"type": "stop"})
        except StreamConnectionLost:
            pass
        await self._connection.close()

    # To the worker.

    async def _feed(self) -> None:
        session = self._session
        while True:
            while not session.is_stopping and (self._credits <= 0 or self._is_full()):
                self._changed.clear()
                await self._changed.wait()
            message = await session.next()
            if message is None:
                break
            if self._is_quiet:  # it came while the worker was told to stop
                session.put_back([message])
                return
            self._credits -= 1
            position = message.packet.position
            self._open[position] = message
            self._bytes_open += message.packet.size
            while len(self._open) > MOST_PENDING or (self._bytes_open > MOST_BYTES_OPEN and len(self._open) > 1):
                self._close(next(iter(self._open)))  # under best effort nobody has to say `done`
            text = await done_aside(message.packet.size, partial(_text, message))
            await self._connection.send({"type": "message", "id": position, "message": msgspec.Raw(text)})
        await self._connection.send({"type": "stop" if session.is_stopping else "end"})

    def _close(self, position: int) -> InboundMessage | None:
        """The message is not in the worker's hands any more."""
        message = self._open.pop(position, None)
        if message is not None:
            self._bytes_open -= message.packet.size
            self._told.discard(position)
        return message

    def _is_full(self) -> bool:
        most = self._step.most_in_flight
        return self._is_quiet or bool(self._is_leaving and most and len(self._open) >= most)

    async def _poll(self) -> None:
        """Tell what nobody waits for: pressure, messages of cancelled journeys; notice that the topology stops."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self._session.is_stopping:
                self._changed.set()
            if self._session.is_asked_to_pause != self._is_paused:
                self._is_paused = not self._is_paused
                await self._connection.send({"type": "pause" if self._is_paused else "resume"})
            for position, message in list(self._open.items()):
                if message.cancelled and position not in self._told:
                    self._told.add(position)
                    await self._connection.send({"type": "cancelled", "id": position})

    # From the worker.

    async def _listen(self) -> None:
        while True:
            frame = await self._connection.receive()
            size = self._connection.frame_size
            self._session.note_life()
            match frame["type"]:
                case "credits":
                    self._credits += _count(frame.get("messages"))
                    self._changed.set()
                case "done":
                    self._done(frame)
                case "publish":
                    await self._publish(frame, size)
                case "ask":
                    self._spawn(self._answer(frame, size), size)
                case "leaving":
                    if not self._is_leaving:
                        self._is_leaving, self._is_quiet = True, not self._step.starts_new_first
                        self._spawn(self._replace())
                case "returned":
                    return
                case "failed":
                    raise _failure(frame)
                case _:
                    pass  # a newer worker may say more
            while len(self._under_way) >= MOST_UNDER_WAY or self._bytes_under_way > MOST_BYTES_UNDER_WAY:
                await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)

    def _spawn(self, work: Coroutine[Any, Any, None], size: int = 0) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(work)
        self._under_way[task] = size
        self._bytes_under_way += size
        task.add_done_callback(self._settled)
        return task

    def _settled(self, task: "asyncio.Task[None]") -> None:
        self._bytes_under_way -= self._under_way.pop(task, 0)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StreamConnectionLost | StaleSession):
            self._topology.fail(error)

    def _done(self, frame: Frame) -> None:
        message = self._close(_count(frame.get("id")))
        if message is not None:
            self._spawn(self._finish(message))

    async def _finish(self, message: InboundMessage) -> None:
        position = message.packet.position
        await asyncio.gather(*self._publishing.pop(position, ()))
        await self._session.finish(message)
        self._changed.set()
        await self._connection.send({"type": "kept", "id": position})

    async def _publish(self, frame: Frame, size: int) -> None:
        """A large message is read in a thread, before the next frame is: publications keep their order."""
        reply_to = self._open.get(_count(frame.get("replyTo")))
        made: tuple[dict[str, Any], StreamMessage] | BadMessage
        try:
            made = await done_aside(size, partial(self._make, frame.get("message")))
        except BadMessage as problem:
            made = problem
        task = self._spawn(self._published(frame.get("number"), made, reply_to), size)
        if reply_to is not None:
            answers = self._publishing.setdefault(reply_to.packet.position, set())
            answers.add(task)
            task.add_done_callback(lambda task: None if task.cancelled() or task.exception() else answers.discard(task))

    def _make(self, value: Any) -> tuple[dict[str, Any], StreamMessage]:
        members = publication(value)
        return members, self._session.make(members)

    async def _published(
        self, number: Any, made: tuple[dict[str, Any], StreamMessage] | BadMessage, reply_to: InboundMessage | None
    ) -> None:
        try:
            if isinstance(made, BadMessage):
                raise made
            await self._session.publish(made[0], reply_to, made[1])
        except (BadMessage, Draining) as problem:
            await self._connection.send({"type": "refused", "number": number, "message": str(problem)})
        else:
            await self._connection.send({"type": "published", "number": number})

    # What the worker asks of the run.

    async def _answer(self, frame: Frame, size: int) -> None:
        number, verb = frame.get("number"), frame.get("verb")
        try:
            value = await self._ask(str(verb), frame.get("key"), frame.get("body"), size)
        except (PerdureError, ProviderFailure, ValueError) as problem:
            await self._connection.send({"type": "answer", "number": number, "error": str(problem)})
        else:
            await self._connection.send({"type": "answer", "number": number, "value": value})

    async def _ask(self, verb: str, key: Any, body: Any, size: int) -> Any:
        """Effects of its own step, and reports about it; nothing else of the run can be reached."""
        port, name = self._context.port, self._session.step
        if verb == "report" and isinstance(body, dict) and "stream" not in body:
            if isinstance(signal := body.get("signal"), dict):
                self._session.note_signal(str(signal.get("key")), signal.get("value"))
            text = await done_aside(size, partial(jsontext.encode, {**body, "step": name}))
            answer = await port.report(text)
            return None if answer is None else jsontext.decode(answer)
        if not isinstance(key, str) or not key.startswith(f"{name}/"):
            raise ValueError(f"{verb!r} needs a key that begins with {name + '/'!r}")
        if len(key) > LONGEST_KEY:
            raise ValueError(f"the key of an effect has at most {LONGEST_KEY} characters")
        if verb == "claim":
            claim = await port.claim_effect(key)
            result = None if claim.result is None else jsontext.decode(claim.result)
            return {"completed": claim.completed, "inDoubt": claim.in_doubt, "result": result, "unfit": claim.unfit}
        if verb == "complete":
            return await port.complete_effect(key, await done_aside(size, partial(jsontext.encode, body)))
        if verb == "unfit":
            return await port.complete_effect_unfit(key, str(body))
        if verb == "release":
            return await port.release_effect(key)
        raise ValueError(f"{verb!r} is not something that a worker may ask for")

    # Replacing it.

    async def _replace(self) -> None:
        """The worker ends: no more messages for it, and when it has done those in hand another one gets the rest."""
        step, topology = self._step, self._topology
        if step.starts_new_first:
            await topology.note_handoff(self._session.step, REPLACING)
            step.successor = await step.next_worker()
        self._is_quiet = True
        await topology.note_handoff(self._session.step, HANDING_OVER)
        loop = asyncio.get_running_loop()
        until = loop.time() + step.drain
        while (self._open or len(self._under_way) > 1) and loop.time() < until:
            self._changed.clear()
            try:
                async with asyncio.timeout(LOOK_EVERY):
                    await self._changed.wait()
            except TimeoutError:
                pass
        await topology.note_handoff(self._session.step, CUTTING_OVER)
        await self._say_goodbye()


def _text(message: InboundMessage) -> bytes:
    return jsontext.encode(message.json())


def _failure(frame: Frame) -> EngramError:
    error = frame.get("error")
    members = error if isinstance(error, dict) else {}
    retryable = members.get("retryable")
    return EngramError(
        str(members.get("message") or "the worker failed"),
        type=str(members["type"]) if members.get("type") else None,
        retryable=retryable if isinstance(retryable, bool) else None,
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else 0
