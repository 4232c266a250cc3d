"""The packets of a topology in one NATS JetStream stream (STR-110).

    stream      perdure-RUN-LIFE        retention by acks (work queue); by limits if every step is best effort
    subjects    perdure.RUN-LIFE.packets.STEP.PARTITION, .ids.STEP, .head       (`streams/log_messages.py`)
    consumers   one for each step, durable, explicit acks; `max_ack_pending` is what its inlet may hold

The hub stays what it is; the stream is what survives it. Consumers give the tokens for acknowledging; they bring no
bodies, except while a hub takes over. A packet whose ack was lost is delivered again, and acknowledged then.

A Transport names its servers and a secret with the login: `token`, or `username` and `password`; `ca.crt` are the
authorities that a TLS server is checked with:

    defaultSettings:
      nats: {servers: [tls://nats.example:4222], secretRef: {name: nats-login}, replicas: 1}

    writing ─▶ lost (connection, server) ─▶ connect ─▶ what did the stream take? ─▶ send the rest
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from random import random
from typing import Any

import msgspec

from perdure.kernel.errors import Conflict
from perdure.kernel.json_values.values import RunId
from perdure.providers.context import SecretSource, TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.nats_connection import NatsConnector, NatsFailure
from perdure.services.story.engrams.secrets import secret
from perdure.services.story.streams.nats_stream import (
    ANSWER,
    NatsLost,
    NatsStream,
    Receiver,
    StreamGone,
    kept_message,
)
from perdure.services.story.streams.packet_logs import StoreLog
from perdure.streams.hub import Hub
from perdure.streams.inlet import InletState
from perdure.streams.log_messages import (
    IDS,
    Head,
    KeptMessage,
    LogMessage,
    MessageLog,
    PacketName,
    read_head,
    restore,
    take_over,
    token,
)
from perdure.streams.stream_rows import Changes, KeptRows

_log = logging.getLogger("perdure.stream")

CONNECT_TIMEOUT = 30.0  # seconds for the first connection of a new topology; one that was taken over waits for ever
PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between two tries


class NatsSettings(msgspec.Struct, frozen=True, rename="camel"):
    """The member `nats` of a Transport's settings, checked when the run started."""

    servers: tuple[str, ...]
    secret: str = ""
    replicas: int = 1


def connector_for(settings: NatsSettings, secrets: SecretSource, name: str) -> NatsConnector:
    authorities = _optional(secrets, settings.secret, "ca.crt")
    return NatsConnector(settings.servers, _login(settings, secrets), name, authorities)


def _login(settings: NatsSettings, secrets: SecretSource) -> dict[str, str]:
    """How the connection says who it is: with a token, or a name and a password; with nothing if no secret is named."""
    if not settings.secret:
        return {}
    if (token := _optional(secrets, settings.secret, "token")) is not None:
        return {"token": token}
    if _optional(secrets, settings.secret, "username") is None and _optional(secrets, settings.secret, "ca.crt"):
        return {}
    return {
        "user": secret(secrets, settings.secret, "username"),
        "password": secret(secrets, settings.secret, "password"),
    }


def _optional(secrets: SecretSource, name: str, key: str) -> str | None:
    try:
        return secret(secrets, name, key) if name else None
    except ProviderFailure:  # it has no such key
        return None


class NatsLog:
    writes_everything = True

    def __init__(self, store: StoreLog, context: TaskContext, task: dict[str, Any], hub: Hub) -> None:
        self._store = store
        self._hub = hub
        self._run = RunId(context.run)
        settings = msgspec.convert(task["nats"], NatsSettings)
        self._steps = {name: plan for name, plan in hub.graph.steps.items() if plan.settings.driver == "nats"}
        name = token(f"{context.run}-{task['life']}").replace("%2E", "_")
        connector = connector_for(settings, context.secrets, f"perdure {context.run}")
        self._stream = NatsStream(connector, name, self._steps, settings.replicas)
        self._until = time.monotonic() + CONNECT_TIMEOUT if context.delivery <= 1 else None
        self._log = MessageLog(0, 1)
        self._sequence = 0  # of the last message that the stream has taken
        self._head = 0  # and of the last head
        # By packet: the subjects to acknowledge its messages with, by their place; delivered again, they get new ones.
        self._tokens: dict[tuple[str, int], dict[int, str]] = {}
        self._received: asyncio.Queue[Any] | None = None  # while a hub takes over
        self._is_lost = False
        self._pause = PAUSE

    # Losing and finding the server.

    def _tell(self, kind: str, message: str) -> None:
        self._is_lost = kind == "TransportLost"
        _log.log(
            logging.WARNING if self._is_lost else logging.INFO,
            "run %s: %s",
            self._run,
            message,
            extra={"run": self._run},
        )
        step = next(iter(self._steps.values())).public_name
        self._hub.notices.add(step, kind, "nats", message, time.time_ns() // 1_000)

    async def _wait(self, problem: Exception) -> None:
        """Wait before the next try. A topology that has just begun does not wait long: its settings may be wrong."""
        if self._until is not None and (
            time.monotonic() >= self._until or (isinstance(problem, NatsFailure) and not problem.retryable)
        ):
            hint = "check that it runs with JetStream enabled, and can be reached from here"
            raise problem if isinstance(problem, NatsFailure) else NatsFailure("Unreachable", str(problem), hint)
        self._tell("TransportLost", f"the NATS server is away: {problem}")
        await asyncio.sleep(self._pause * (0.8 + 0.4 * random()))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def _connect(self) -> None:
        """Connect if there is no connection, and have the consumers deliver here."""
        if not self._stream.is_closed:
            return
        await self._stream.connect()
        for step in self._steps:
            await self._stream.subscribe(self._inbox(step), self._receiver(step))
        await self._follow()

    def _inbox(self, step: str) -> str:
        return f"{self._stream.inbox}.{self._log.epoch}.{token(step)}"

    async def _follow(self) -> None:
        """From now on consumers only bring tokens."""
        for step in self._steps:
            await self._stream.use_consumer(self._stream.consumer(step, self._inbox(step), is_reading=False))

    def _receiver(self, step: str) -> Receiver:
        async def receive(message: Any) -> None:
            if self._received is not None:
                self._received.put_nowait(message)
                return
            position = PacketName.read(message.headers["Nats-Msg-Id"]).position
            if self._log.keeps(step, position):
                self._tokens.setdefault((step, position), {})[message.metadata.sequence.stream] = message.reply
            else:
                await self._stream.acknowledge(message.reply)

        return receive

    # Taking over.

    async def open(self) -> KeptRows:
        await self._store.open()
        while True:
            try:
                if self._stream.is_closed:
                    await self._stream.connect()
                kept = await self._take_over()
                break
            except (NatsLost, NatsFailure, StreamGone) as problem:
                await self._stream.close()
                await self._wait(problem)
        self._until, self._pause = None, PAUSE
        return kept

    async def _take_over(self) -> KeptRows:
        stream = self._stream
        if not await stream.exists():
            await stream.create()
        sequence, before = await stream.last_sequence(), await stream.last_head()
        place = 0 if before is None else before.place
        head, message = take_over(None if before is None else before.body, place)
        # From here on nobody else writes.
        self._sequence = self._head = await stream.send([message], 0, sequence, place)
        self._log = MessageLog(head.epoch, stream.largest)
        restored = restore(head, await self._read(head), ids := await self._read_ids())
        for place in restored.refused:
            await stream.delete_message(place)
        self._log = MessageLog(head.epoch, stream.largest, restored.kept)
        for message_id in ids:
            if message_id.place <= head.through:
                self._note_ids(message_id.id, message_id.place)
        self._received = None
        await self._follow()
        return restored.kept

    async def _read(self, head: Head) -> list[KeptMessage]:
        """The packets that an earlier owner has left, with the tokens to acknowledge them later."""
        self._tokens.clear()
        self._received = asyncio.Queue()
        packets: list[KeptMessage] = []
        for step in self._steps:
            await self._stream.subscribe(self._inbox(step), self._receiver(step))
            config = self._stream.consumer(step, self._inbox(step), is_reading=True)
            for message in await self._stream.read(config, self._received):
                kept = kept_message(message)
                packets.append(kept)
                position = PacketName.read(kept.id).position
                if head.counts(step, position):
                    self._tokens.setdefault((step, position), {})[kept.place] = message.reply
                elif kept.place <= head.through:
                    await self._stream.acknowledge(message.reply)
        return packets

    async def _read_ids(self) -> list[KeptMessage]:
        assert self._received is not None
        inbox = f"{self._stream.inbox}.{self._log.epoch}"
        subscription = await self._stream.subscribe(inbox, self._receiver(""))
        config = self._stream.ids_consumer(inbox)
        messages = await self._stream.read(config, self._received)
        await self._stream.drop_consumer(config)
        await subscription.unsubscribe()
        return [kept_message(message) for message in messages]

    def _note_ids(self, id: str, place: int) -> None:
        _, last, step = id.split(".", 2)
        self._log.note_ids(step, int(last), place)

    # Writing.

    async def write(self, changes: Changes) -> None:
        messages = self._log.write(changes)
        base: int | None = self._sequence
        start, is_unsure = 0, False
        while True:
            try:
                await self._connect()
                if base is None:
                    base, start = await self._begin_again(), 0
                elif is_unsure:
                    start = await self._count_taken(base)
                is_unsure = True
                if start < len(messages):
                    self._sequence = self._head = await self._stream.send(messages, start, base, self._head)
                break
            except StreamGone:
                self._tell("TransportLost", "the NATS server has lost packets; it gets them again")
                changes = self._hub.take_everything()
                self._log = MessageLog(self._log.epoch, self._stream.largest)
                messages, base = self._log.write(changes), None
            except (NatsLost, NatsFailure) as problem:
                await self._wait(problem)
        if self._is_lost:
            self._tell("TransportReturned", "the NATS server is back, and has everything")
        self._pause = PAUSE
        await self._settle(changes, messages, base)

    async def _count_taken(self, base: int) -> int:
        """How many of the messages the stream has taken. Raises `Conflict` if another owner writes to it."""
        sequence, head = await self._stream.last_sequence(), await self._stream.last_head()
        if head is None or sequence < base or self._epoch_of(head) < self._log.epoch:
            raise StreamGone
        self._sequence, self._head = sequence, head.place
        return sequence - base

    def _epoch_of(self, head: KeptMessage) -> int:
        """The epoch of the last head. Raises `Conflict` if it is that of a later owner."""
        epoch = read_head(head.body).epoch
        if epoch > self._log.epoch:
            raise Conflict("another process writes to the NATS stream of the run", run=self._run)
        return epoch

    async def _begin_again(self) -> int:
        """Make the stream if it is missing; the sequence behind which everything is written anew."""
        if not await self._stream.exists():
            await self._stream.create()
        await self._follow()
        self._tokens.clear()
        self._head = 0
        if (head := await self._stream.last_head()) is not None:
            self._epoch_of(head)
            self._head = head.place
        return await self._stream.last_sequence()

    async def _settle(self, changes: Changes, messages: list[LogMessage], base: int) -> None:
        """Acknowledge what is done with, now that a head says so. What gets lost of this is done again later."""
        for number, message in enumerate(messages):
            if message.subject.startswith(f"{IDS}."):
                self._note_ids(message.id, base + number + 1)
        try:
            for key in changes.removed:
                for reply in self._tokens.pop(key, {}).values():
                    await self._stream.acknowledge(reply)
            for place in self._log.take_old_ids(changes.ids_removed):
                await self._stream.delete_message(place)
        except Exception as problem:  # the next write meets the same connection, and makes a new one
            _log.debug("acknowledgements of run %s are late: %s", self._run, problem, extra={"run": self._run})

    async def show_numbers(self, states: Mapping[str, InletState]) -> None:
        await self._store.write(Changes([], [], dict(states), {}, {}))

    # The end.

    async def clear(self) -> None:
        await self._store.clear()
        try:
            async with asyncio.timeout(ANSWER):
                if self._stream.is_closed:
                    await self._stream.connect()
                if (head := await self._stream.last_head()) is not None:
                    self._epoch_of(head)  # of a later owner: it is needed
                await self._stream.delete()
        except (NatsLost, StreamGone, NatsFailure, TimeoutError) as problem:
            _log.warning("the NATS stream %s of an ended run is left over: %s", self._stream.name, problem)

    async def close(self) -> None:
        await self._stream.close()
