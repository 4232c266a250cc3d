"""One stream of NATS JetStream: the requests of a packet log, and what their failures mean.

Messages are sent without waiting between them. Each one names the sequence that it expects to follow, and that of its
writer's last head: nothing is stored behind a gap, nor by a writer that another one has replaced, and the answer to the
last one stands for all.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from perdure.providers.nats_connection import NatsConnector, NatsFailure, nats_library
from perdure.streams.log_messages import HEAD, IDS, PACKETS, KeptMessage, LogMessage, token
from perdure.streams.stream_graph import SECOND, StreamStep

ANSWER = 10.0  # seconds that the server may take to answer
ACK_WAIT = 30.0  # seconds after which a packet that is not acknowledged is delivered again
DUPLICATES = 10.0  # seconds in which the server recognises a message that it has already
ROOM = 8 * 1024  # bytes of a message that are not its body
STREAM_NOT_FOUND = 10059
OLDEST = (2, 11)  # the first that can compare the last sequence of another subject

Receiver = Callable[[Any], Awaitable[None]]


class NatsLost(Exception):
    """The connection or the server is away: nothing is known of what was sent last."""


class StreamGone(Exception):
    """The stream is missing, or lacks the end of what it had taken."""


class NatsStream:
    def __init__(self, connector: NatsConnector, name: str, steps: dict[str, StreamStep], replicas: int) -> None:
        self.name = f"perdure-{name}"
        self.inbox = f"_INBOX.{name}"
        self._subject = f"perdure.{name}"
        self._connector = connector
        self._steps = steps
        self._replicas = replicas
        self._client: Any = None
        self._api: Any = None

    @property
    def is_closed(self) -> bool:
        return self._client is None or bool(self._client.is_closed)

    @property
    def largest(self) -> int:
        """Bytes that the body of a message may have."""
        return max(ROOM, int(self._client.max_payload) - ROOM)

    async def connect(self) -> None:
        self._client = await self._connector.connect()
        version = self._client.connected_server_version
        if (version.major, version.minor) < OLDEST:
            await self._client.close()
            message = f"the NATS server has version {version.major}.{version.minor}"
            raise NatsFailure("ServerTooOld", message, f"{OLDEST[0]}.{OLDEST[1]} or newer is needed")
        self._api = self._client.jetstream(timeout=ANSWER)

    async def close(self) -> None:
        if not self.is_closed:
            await self._client.close()

    async def _call(self, request: Awaitable[Any]) -> Any:
        """The answer of JetStream; None if what was asked for is not there."""
        errors, refusals = nats_library().errors, nats_library().js.errors
        try:
            return await request
        except refusals.APIError as error:
            if error.err_code == STREAM_NOT_FOUND:
                raise StreamGone from None
            if isinstance(error, refusals.NotFoundError):
                return None
            if isinstance(error, refusals.ServiceUnavailableError | refusals.ServerError):
                raise NatsLost(str(error.description)) from None
            hint = f"JetStream must be enabled, and its limits must have room for the stream {self.name}"
            raise NatsFailure("Refused", f"the NATS server refuses it: {error.description}", hint) from None
        except (errors.Error, OSError, TimeoutError) as error:
            raise NatsLost(str(error) or type(error).__name__) from None

    # The stream.

    async def exists(self) -> bool:
        try:
            return await self._call(self._api.stream_info(self.name)) is not None
        except StreamGone:
            return False

    async def create(self) -> None:
        """By acks; by limits if every step is best effort. On disk if anything must survive the server."""
        settings = [plan.settings for plan in self._steps.values()]
        config: dict[str, Any] = {
            "name": self.name,
            "subjects": [f"{self._subject}.>"],
            "storage": "file" if any(step.is_durable for step in settings) else "memory",
            "retention": "workqueue",
            "allow_rollup_hdrs": True,
            "duplicate_window": DUPLICATES,
            "num_replicas": self._replicas,
        }
        if not any(step.at_least_once for step in settings):
            most = max(step.max_messages for step in settings)
            age = max(step.max_age for step in settings) / SECOND
            config |= {"retention": "limits", "max_msgs_per_subject": most, "max_age": age, "discard": "old"}
        await self._call(self._api.add_stream(nats_library().js.api.StreamConfig(**config)))

    async def last_sequence(self) -> int:
        info = await self._call(self._api.stream_info(self.name))
        return int(info.state.last_seq)

    async def last_head(self) -> KeptMessage | None:
        message = await self._call(self._api.get_last_msg(self.name, f"{self._subject}.{HEAD}"))
        return None if message is None else KeptMessage(message.seq, "", message.data)

    async def delete(self) -> None:
        await self._call(self._api.delete_stream(self.name))

    async def delete_message(self, place: int) -> None:
        await self._call(self._api.delete_msg(self.name, place))

    # Messages.

    async def send(self, messages: list[LogMessage], start: int, base: int, head: int) -> int:
        """Send messages, from `start`, behind the sequence `base`; the sequence of the last one, once all are taken.

        `head` is the sequence of the head before; 0: there is none.
        """
        client = self._client
        last = len(messages) - 1
        fence = {"Nats-Expected-Last-Subject-Sequence": str(head)}
        inner = {**fence, "Nats-Expected-Last-Subject-Sequence-Subject": f"{self._subject}.{HEAD}"}
        for number in range(start, last):
            message = messages[number]
            headers = {"Nats-Msg-Id": message.id, "Nats-Expected-Last-Sequence": str(base + number), **inner}
            try:
                await client.publish(f"{self._subject}.{message.subject}", message.body, headers=headers)
            except nats_library().errors.Error as error:
                raise NatsLost(str(error) or type(error).__name__) from None
        headers = {"Nats-Rollup": "sub", "Nats-Expected-Last-Sequence": str(base + last), **fence}
        subject = f"{self._subject}.{messages[last].subject}"
        answer = await self._call(client.request(subject, messages[last].body, ANSWER, headers=headers))
        reply = msgspec.json.decode(answer.data)
        if refusal := reply.get("error"):
            raise NatsLost(str(refusal.get("description")))
        return int(reply["seq"])

    async def acknowledge(self, reply: str) -> None:
        await self._client.publish(reply, b"+ACK")

    async def subscribe(self, inbox: str, receive: Receiver) -> Any:
        return await self._client.subscribe(inbox, cb=receive)

    # Consumers: durable ones for the steps, and one that reads ids while a hub takes over.

    def consumer(self, step: str, inbox: str, *, is_reading: bool) -> Any:
        """While a hub takes over it reads everything that is there; later a consumer only brings tokens."""
        plan = self._steps[step]
        settings = plan.settings
        in_flight = settings.credit_messages or settings.max_messages
        if len(plan.needs) > 1:  # parts of open joins are not acknowledged, and must not keep others waiting
            in_flight += settings.max_joins * len(plan.needs)
        return nats_library().js.api.ConsumerConfig(
            durable_name=_consumer_name(step),
            deliver_subject=inbox,
            filter_subject=f"{self._subject}.{PACKETS}.{token(step)}.>",
            ack_policy="explicit",
            ack_wait=ACK_WAIT,
            max_ack_pending=-1 if is_reading else settings.max_messages + in_flight,
            headers_only=not is_reading,
        )

    def ids_consumer(self, inbox: str) -> Any:
        return nats_library().js.api.ConsumerConfig(
            durable_name=IDS,
            deliver_subject=inbox,
            filter_subject=f"{self._subject}.{IDS}.>",
            ack_policy="explicit",
            max_ack_pending=-1,
        )

    async def use_consumer(self, config: Any) -> Any:
        return await self._call(self._api.add_consumer(self.name, config))

    async def read(self, config: Any, received: "asyncio.Queue[Any]") -> list[Any]:
        """Make a consumer anew, and wait for everything that it has to deliver."""
        await self._call(self._api.delete_consumer(self.name, config.durable_name))
        info = await self.use_consumer(config)
        expected = info.num_pending + info.delivered.consumer_seq
        messages: list[Any] = []
        while len(messages) < expected:
            try:
                async with asyncio.timeout(ANSWER):
                    messages.append(await received.get())
            except TimeoutError:
                raise NatsLost("it does not deliver what it has") from None
        return messages

    async def drop_consumer(self, config: Any) -> None:
        await self._call(self._api.delete_consumer(self.name, config.durable_name))


def kept_message(message: Any) -> KeptMessage:
    return KeptMessage(message.metadata.sequence.stream, message.headers["Nats-Msg-Id"], message.data)


def _consumer_name(step: str) -> str:
    return f"step-{token(step).replace('%', '_')}"
