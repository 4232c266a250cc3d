"""A streaming Engram without a Story: give it messages, look at what it publishes (STR-094)."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from perdure.streams.stream_messages import ERROR, BadMessage, StreamMessage, make_message


class StreamedMessage:
    """A message as a worker sees it; it remembers whether it was done."""

    def __init__(self, members: Mapping[str, Any], number: int) -> None:
        message = make_message(f"input-{number}", 0, **members)
        self.kind, self.message_id, self.timestamp = message.kind, message.id, message.at_ms
        self.metadata = dict(message.metadata)
        self.payload, self.inputs = members.get("payload"), members.get("inputs")
        self.audio, self.video, self.binary = message.audio, message.video, message.binary
        self.envelope: dict[str, Any] = {"stream_id": "test", "sequence": number, "partition": ""}
        self.cancelled = False
        self.is_done = False
        self._answers = 0

    def next_id(self) -> str:
        """The id of the next answer: the message's own, then `ID.1`, `ID.2` and so on (STR-130)."""
        number, self._answers = self._answers, self._answers + 1
        return f"{self.message_id}.{number}" if number else self.message_id

    def done(self) -> "asyncio.Future[None]":
        self.is_done = True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future


class StreamedContext:
    """Collects what is published; effects are performed once for each message and key, signals are kept."""

    step = step_run = story = story_run = engram = idempotency_key = "test"
    namespace = "default"
    attempt = delivery = 1
    deadline = None
    traceparent = ""

    def __init__(self, *, is_plain: bool) -> None:
        self._is_plain = is_plain
        self.outputs: list[dict[str, Any]] = []
        self.effects: dict[str, Any] = {}  # by the id of the message and the key: "input-1/pay" (STR-068)
        self.signals: dict[str, Any] = {}
        self.logs: list[str] = []
        self.secrets: dict[str, Any] = {}
        self.cancelled = False
        self.message: StreamedMessage | None = None  # that is being handled
        self._signal_events: list[dict[str, Any]] = []

    def publish(self, payload: Any = None, *, reply_to: StreamedMessage | None = None, **members: Any) -> Any:
        message = make_message(f"output-{len(self.outputs) + 1}", 0, payload=payload, **members)
        if reply_to is None and self._is_plain:
            reply_to = self.message
        if reply_to is not None:
            message.metadata = {**reply_to.metadata, **message.metadata}
            if not members.get("message_id"):
                message.id = reply_to.next_id()
        self._check(message)
        self.outputs.append(message.json())
        return self._answer(None)

    def _check(self, message: StreamMessage) -> None:
        if message.kind == ERROR:
            error = message.json()["payload"]
            if not isinstance(error, dict) or error.get("version") != "v1" or not error.get("message"):
                raise BadMessage("the payload of an error is a structured error: {version: v1, type, message}")

    def effect_once(self, key: str, effect: Callable[[], Any]) -> Any:
        key = self._full(key)

        async def perform() -> Any:
            if key not in self.effects:
                result = effect()
                self.effects[key] = await result if inspect.isawaitable(result) else result
            return self.effects[key]

        if not self._is_plain:
            return perform()
        if key not in self.effects:
            self.effects[key] = effect()
        return self.effects[key]

    def _full(self, key: str) -> str:
        return key if self.message is None else f"{self.message.message_id}/{key}"

    def record_effect(self, key: str, status: str = "succeeded", details: Any = None) -> Any:
        self.effects.setdefault(key, details)
        return self._answer(None)

    def emit_signal(self, key: str, value: Any = None) -> Any:
        self.signals[key] = value
        self._signal_events.append({"seq": len(self._signal_events) + 1, "key": key, "payload": value})
        return self._answer(None)

    def replay_signals(self, since: int = 0, step: str | None = None) -> Any:
        events = [event for event in self._signal_events if event["seq"] > since]
        return self._answer({"events": events, "firstRetainedSeq": 1 if self._signal_events else 0})

    def heartbeat(self, detail: Any = None) -> None:
        """There is nobody who would miss it."""

    async def wait_cancelled(self) -> None:
        """Nothing more comes: who waits to be stopped is stopped."""
        self.cancelled = True

    def log(self, message: str, level: str = "info", **fields: Any) -> None:
        self.logs.append(message)

    def _answer(self, value: Any) -> Any:
        if self._is_plain:
            return value

        async def answer() -> Any:
            return value

        return answer()


async def stream(
    engram: Callable[..., Any], inputs: Iterable[Any], *, config: Any = None, context: StreamedContext | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Give the messages to a worker, then end its input: what it published, and the ids of inputs it was not done with.

    An input is a payload, or an object with some of the keywords of `context.publish` under `message`. Every output is
    checked as a hub would, and so are structured errors.
    """
    is_plain = not inspect.iscoroutinefunction(engram)
    context = context or StreamedContext(is_plain=is_plain)
    messages = [StreamedMessage(_members(value), number) for number, value in enumerate(inputs, start=1)]
    count = min(3, len(inspect.signature(engram).parameters))
    config = {} if config is None else config
    if is_plain:
        for message in messages:
            context.message = message
            result = engram(*[config, message, context][:count])
            if result is not None:
                context.publish(result, reply_to=message)
            message.is_done = True
    else:
        await engram(*[config, _read(messages, context), context][:count])
    return context.outputs, [message.message_id for message in messages if not message.is_done]


def _members(value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict) and set(value) == {"message"}:
        members: Mapping[str, Any] = value["message"]
        return members
    return {"payload": value}


async def _read(messages: list[StreamedMessage], context: StreamedContext) -> AsyncIterator[StreamedMessage]:
    for message in messages:
        context.message = message
        yield message
