"""The session of one step: the messages it gets, what it publishes, and how it is told to stop.

A session is what a driver gives to a worker, wherever the worker runs: `next`, `publish`, `complete`. For a worker
elsewhere its conversation makes these calls (`remote_worker`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any

from perdure.dialects.story.run.signals_and_effects import LARGEST, LONGEST_KEY, summary
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn_budget import STEPS_PER_MILLISECOND
from perdure.services.story.engrams.hydration import fill_stored_values
from perdure.services.story.streams.worker_context import DONE, InboundMessage
from perdure.streams.hub_metadata import own_metadata, without_own
from perdure.streams.stream_messages import BadMessage, StreamMessage, make_message
from perdure.streams.views import STORAGE

if TYPE_CHECKING:
    from perdure.services.story.streams.live_topology import LiveTopology

WORK_BETWEEN_RESTS = 5 * STEPS_PER_MILLISECOND  # of templates, before other work of the process has its turn
MOST_STAGED = 64 << 20  # bytes of answers of one session that become real with `done`
OVERHEAD = 500  # bytes of a message beside its content
MOST_SIGNALS = 1_000  # of a step, by key, that templates see
CHANNEL = 16
"""How many messages are between the hub and a worker (STR-076): so many are handed over to a plain function at a time,
and a publisher lets a worker that has so many waiting work first."""


class StreamSession:
    def __init__(self, topology: "LiveTopology", step: str) -> None:
        self._topology = topology
        self._hub = topology.hub
        self.step = step
        self.generation = self._hub.connect(step, topology.now())
        inlet = self._hub.inlets[step]
        self._inlet = inlet
        self._keeps = inlet.settings.at_least_once
        self._is_sequenced = inlet.settings.is_sequenced
        self._stages = inlet.settings.is_durable
        self._waits = self._hub.graph.is_durable_below(step)
        self._writes = topology.writes_everything
        self._targets = [self._hub.inlets[name] for name in self._hub.graph.downstreams[step]]
        self.stream_id = f"{topology.run['namespace']}/{topology.run['name']}/{step}"
        self._public_name = self._hub.graph.steps[step].public_name
        self._waiter: asyncio.Future[None] | None = None
        self._last: InboundMessage | None = None
        self._stopping = asyncio.Event()
        self._staged_bytes = 0  # of answers to messages that are not done
        self._queued = 0  # publications that wait for room
        self._turn = asyncio.Lock()
        self.has_done = False  # whether a message was done since the session began
        self.reads_ahead = False  # whether messages are read for the worker, whatever it does
        self._alive_at = time.monotonic()
        self._has_lived = False  # since somebody has asked
        self._is_reading = False

    # Stopping.

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def wait_stopping(self) -> None:
        await self._stopping.wait()

    def stop(self) -> None:
        """No more messages come; what was handed over may be finished."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def note_life(self) -> None:
        """The worker has given a sign of life. It is timed when somebody asks, which is rare."""
        self._has_lived = True

    @property
    def silence(self) -> float:
        """Seconds without a sign of life while the worker has messages in hand. Waiting for more is a sign."""
        now = time.monotonic()
        if self._has_lived or not self._inlet.pending or (self._is_reading and not self.reads_ahead):
            self._alive_at, self._has_lived = now, False
        return now - self._alive_at

    # Messages.

    async def next(self) -> InboundMessage | None:
        """The next message; None when no more will come."""
        self._settle_last()
        while True:
            self._hub.must_be_current(self.step, self.generation)
            packet = None if self._stopping.is_set() else self._hub.take(self.step, self._topology.now())
            if packet is not None:
                if self._hub.released:
                    self._topology.wake()
                message = InboundMessage(packet, self)
                if not self._is_sequenced:
                    self._last = message
                return message
            if self.is_stopping or self._hub.has_ended(self.step):
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            self._is_reading = True
            try:
                await self._waiter
            finally:
                self._is_reading = False
                if not self.reads_ahead:
                    self.note_life()

    def take_some(self, most: int) -> list[InboundMessage]:
        """Messages that are there, for a worker that handles them one by one."""
        messages: list[InboundMessage] = []
        while len(messages) < most and (packet := self._hub.take(self.step, self._topology.now())) is not None:
            messages.append(InboundMessage(packet, self))
        if self._hub.released:
            self._topology.wake()
        return messages

    def put_back(self, messages: list[InboundMessage]) -> None:
        """These were not begun: they wait again."""
        self._inlet.put_back([message.packet for message in messages])

    def _settle_last(self) -> None:
        """Asking for the next message means that the last one was handled, where nothing is acknowledged."""
        last, self._last = self._last, None
        if last is not None and not last.is_done:
            last.done()

    def keep_open(self, message: InboundMessage) -> None:
        """Asking for the next message does not mean that this one was handled."""
        if self._last is message:
            self._last = None

    async def messages(self) -> AsyncIterator[InboundMessage]:
        while (message := await self.next()) is not None:
            self._topology.contexts[self.step].message = message
            yield message

    # Publishing.

    def make(self, members: dict[str, Any]) -> StreamMessage:
        topology = self._topology
        payload = members.get("payload")
        if payload is not None and topology.hides:
            members = {**members, "payload": topology.redact(payload)}
        if members.get("metadata"):
            members = {**members, "metadata": without_own(members["metadata"])}
        return make_message("", topology.now() // 1_000, **members)

    def answer(
        self, members: dict[str, Any], inbound: InboundMessage, made: StreamMessage | None = None
    ) -> StreamMessage:
        """A message that keeps the id, metadata, partition and journey of the one it answers (STR-130)."""
        message, packet = made or self.make(members), inbound.packet
        before = packet.message
        message.id = message.id or inbound.next_id()
        message.metadata = {**before.metadata, **message.metadata} if message.metadata else before.metadata
        message.partition = packet.partition or before.partition
        message.steps, message.root, message.origin = before.steps, before.root, before.origin
        message.trace = before.trace
        return message

    async def publish(
        self, members: dict[str, Any], reply_to: InboundMessage | None, made: StreamMessage | None = None
    ) -> None:
        """`made`: the message of these members, if it was made before."""
        topology, hub = self._topology, self._hub
        hub.must_be_current(self.step, self.generation)
        self.note_life()
        if reply_to is not None:
            message = self.answer(members, reply_to, made)
            if self._stages and not reply_to.is_done:
                self._stage(message, reply_to)
                return
        else:
            message = made or self.make(members)
        is_explicit, begins = bool(members.get("message_id")), reply_to is None
        if not message.id:
            message.id, message.origin = topology.new_id(self.step), self._public_name
        if self._queued or not hub.may_publish(self.step):
            await self._wait_for_room()
        while not hub.may_publish(self.step, message if begins else None):
            await topology.wait_released()
            hub.must_be_current(self.step, self.generation)
        topology.record(self.step, message)
        hub.publish(self.step, message, topology.now(), is_explicit=is_explicit, begins=begins)
        if hub.woken or hub.released or self._writes:
            topology.wake()
        if self._waits:
            await topology.flushed()
        elif hub.gates.work > WORK_BETWEEN_RESTS or self._is_full():
            hub.gates.work = 0
            await asyncio.sleep(0)

    def _stage(self, message: StreamMessage, inbound: InboundMessage) -> None:
        """Keep an answer until the message is done. Raises `BadMessage`: nobody else limits what waits there."""
        size = message.size + OVERHEAD
        if self._staged_bytes + size > MOST_STAGED:
            raise BadMessage(f"answers to messages that are not done have more than {MOST_STAGED:,} bytes")
        self._staged_bytes += size
        inbound.staged.append(message)

    async def _wait_for_room(self) -> None:
        """Wait while a step below is full. Publications go on in the order in which they came, also late ones."""
        self._queued += 1
        try:
            async with self._turn:
                while not self._hub.may_publish(self.step):
                    await self._topology.wait_released()
                    self._hub.must_be_current(self.step, self.generation)
        finally:
            self._queued -= 1

    def _is_full(self) -> bool:
        """Whether a worker that is here has so much to do that its publishers let it work."""
        for inlet in self._targets:  # noqa: SIM110  (asked for every packet, and a generator costs more)
            if len(inlet.waiting) >= CHANNEL and inlet.is_connected:
                return True
        return False

    @property
    def is_asked_to_pause(self) -> bool:
        """Whether a step below has so much to do that publishers should wait (STR-075, 126)."""
        return any(inlet.is_paused for inlet in self._targets)

    def complete(self, inbound: InboundMessage) -> Awaitable[None]:
        """The message is done. Its staged publications become real in the same transaction (STR-069, 122)."""
        self.has_done = True
        self.note_life()
        if inbound.staged:
            return self._topology.spawn(self._complete_with_answers(inbound))
        self._acknowledge(inbound)
        return DONE

    def _acknowledge(self, inbound: InboundMessage) -> None:
        hub = self._hub
        if self._inlet.generation == self.generation:  # else it was given to another session
            hub.acknowledge(self.step, inbound.packet.position, self._topology.now())
            if hub.woken or hub.released or self._writes:
                self._topology.wake()

    async def _complete_with_answers(self, inbound: InboundMessage) -> None:
        topology, hub = self._topology, self._hub
        staged, inbound.staged = inbound.staged, []
        if self._staged_bytes:
            self._staged_bytes = max(0, self._staged_bytes - sum(message.size + OVERHEAD for message in staged))
        if self._queued or not hub.may_publish(self.step):
            await self._wait_for_room()
        hub.must_be_current(self.step, self.generation)
        now = topology.now()
        for message in staged:
            topology.record(self.step, message)
            hub.publish(self.step, message, now, begins=False)
        hub.acknowledge(self.step, inbound.packet.position, now)
        topology.wake()
        if self._stages or self._waits:
            await topology.flushed()
        elif hub.gates.work > WORK_BETWEEN_RESTS:
            hub.gates.work = 0
            await asyncio.sleep(0)

    async def finish(self, inbound: InboundMessage) -> None:
        """`done` for a worker that handles messages one by one: it goes on once everything is kept."""
        if inbound.is_done:
            return
        inbound.is_done = self.has_done = True
        if inbound.staged:
            await self._complete_with_answers(inbound)
        else:
            self._acknowledge(inbound)

    def metadata_of(self, message: StreamMessage) -> dict[str, str]:
        return own_metadata(message, self._topology.run, self._public_name)

    def with_stored_values(self, inputs: bytes) -> Any:
        """What templates made for one message; references to offloaded data are resolved as for any Engram."""
        value = jsontext.decode(inputs)
        return fill_stored_values(value, self._topology.families) if STORAGE in inputs else value

    def note_signal(self, key: str, value: Any) -> None:
        """Templates see what the run records of it (STY-175): a large value as its summary."""
        signals = self._hub.gates.signals.setdefault(self._public_name, {})
        text = jsontext.encode(value)
        signals.pop(key := key[:LONGEST_KEY], None)
        signals[key] = value if len(text) <= LARGEST else summary(value, text, truncated=True)
        if len(signals) > MOST_SIGNALS:
            del signals[next(iter(signals))]
