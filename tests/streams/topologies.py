"""Workers and Stories for tests of streams on the real engine, and how they are played."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import perdure
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values.values import RunId
from perdure.services.story.engrams.registry import shared_engrams
from tests.nats_server import shared_server

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: NAME}
spec:
  pattern: streaming
"""

SEEN: dict[str, list[Any]] = defaultdict(list)
"""What `collect` was given, by the name that its configuration has."""


def delivery_of(place: str) -> tuple[str, str]:
    """The driver, and the settings of its delivery."""
    replay = {"nats": "durable"}.get(place, place.removeprefix("nats "))
    delivery = {"none": "", "memory": "delivery: {replay: {mode: memory}}", "durable": DURABLE}[replay]
    return "nats" if "nats" in place else "local", delivery


def transport(place: str, more: str = "") -> str:
    """The only transport of a Story, with this kind of replay; on the driver `nats` if `place` says so."""
    driver, delivery = delivery_of(place)
    settings = ", ".join(part for part in (delivery, more) if part)
    return f"  transports: [{{name: t, transportRef: {driver}, streaming: {{{settings}}}}}]"


NATS = """
apiVersion: transport.bubustack.io/v1alpha1
kind: Transport
metadata: {name: nats}
spec:
  driver: nats
  supportedBinary: [application/json]
  defaultSettings: {nats: {servers: ["ADDRESS"]}}
"""


async def apply_nats(engine: perdure.Engine, address: str = "", name: str = "nats") -> None:
    """Have a Transport with the driver `nats`; under the name `local` it takes the place of the built-in one."""
    text = NATS.replace("ADDRESS", address or shared_server().address).replace("name: nats", f"name: {name}")
    await engine.apply([AppliedDocument("nats.yaml", text)])


DURABLE = "delivery: {semantics: at_least_once, replay: {mode: durable, checkpointInterval: 100ms}}"


def story(steps: str, extra: str = "", name: str = "stream") -> bytes:
    return (STORY.replace("NAME", name) + steps.strip("\n") + "\n" + extra.strip("\n") + "\n").encode()


def add_workers() -> None:
    """Once in a process: names of Engrams are global."""
    if "engram:numbers@1.0.0" in shared_engrams.streaming:
        return

    @perdure.streaming_engram("numbers")
    async def numbers(config: Any, messages: Any, context: Any) -> None:
        """Publishes `count` numbers, then returns; with `stays` only when it is cancelled."""
        if config.get("together"):  # whoever has to wait, waits with all the others
            await asyncio.gather(*(context.publish({"n": number}) for number in range(config["count"])))
            return
        for number in range(config.get("count", 0)):
            metadata = {"bubu.join.key": str(number)} if config.get("joins") else None
            id = f"{config['ids']}-{number}" if config.get("ids") else ""
            await context.publish({"n": number, "k": number % 3}, metadata=metadata, message_id=id)
        SEEN["published"].append(config.get("count", 0))
        if config.get("stays"):
            await context.wait_cancelled()

    @perdure.streaming_engram("add")
    def add(config: Any, message: Any, context: Any) -> Any:
        inputs = message.inputs or {}
        return {**message.payload, "n": message.payload["n"] + config.get("by", 0), **inputs}

    @perdure.streaming_engram("collect")
    async def collect(config: Any, messages: Any, context: Any) -> None:
        async for message in messages:
            SEEN[config["into"]].append((message.kind, message.payload, message.inputs, message.envelope))
            if config.get("answers"):
                await context.publish({"got": message.payload}, reply_to=message)
            message.done()

    @perdure.streaming_engram("fragile", retry={"recommendedMaxRetries": 5, "recommendedBaseDelay": "10ms"})
    def fragile(config: Any, message: Any, context: Any) -> Any:
        """Raises the first times it meets a number that is divisible by `at`."""
        number = message.payload["n"]
        attempts = SEEN[f"{config['into']}-attempts"]
        attempts.append(number)
        if number % config.get("at", 5) == 0 and attempts.count(number) <= config.get("times", 1):
            raise perdure.EngramError(f"cannot do {number} yet", retryable=config.get("retryable", True))
        return message.payload


class Played:
    """A Story that was started, with what its tests look at."""

    def __init__(self, engine: perdure.Engine, run: RunId) -> None:
        self.engine = engine
        self.id = run

    async def show(self) -> Any:
        return await self.engine.show(self.id)

    async def end(self, timeout: float = 100.0) -> Any:
        """The run as it is shown at its end."""
        await self.until(lambda shown: "finishedAt" in shown["status"], timeout)
        return await self.show()

    async def until(self, holds: Callable[[Any], bool], timeout: float = 100.0) -> Any:
        async with asyncio.timeout(timeout):
            while not holds(shown := await self.show()):
                await asyncio.sleep(0.02)
        return shown

    async def history(self) -> list[dict[str, Any]]:
        return await self.engine.history(self.id)


@asynccontextmanager
async def played(folder: Path, text: bytes, inputs: Any = None, driver: str = "local") -> AsyncIterator[Played]:
    """Start a Story. With the driver `nats` a Story that names no transport has its packets there."""
    add_workers()
    async with perdure.Engine(f"sqlite:///{folder}/runs.db") as engine:
        if b"transportRef: nats" in text:
            await apply_nats(engine)
        if driver == "nats":
            await apply_nats(engine, name="local")
        handle = await engine.start(text, inputs)
        yield Played(engine, handle.id)


def states(shown: Any) -> dict[str, str]:
    return {name: state["phase"] for name, state in shown["status"]["stepStates"].items()}


def stream_of(shown: Any, step: str) -> Any:
    return shown["status"]["stepStates"][step]["stream"]
