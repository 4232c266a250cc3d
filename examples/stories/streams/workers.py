"""Workers of the streaming examples: stub models, a pipeline of measurements, a join, and a database."""

import sqlite3
from typing import Any

import perdure

# Transcribe and respond, with models that only look like some.


@perdure.streaming_engram("call-audio")
async def call_audio(config: Any, messages: Any, context: Any) -> None:
    """A source: publishes what a caller says, then returns, which ends the topology."""
    for number, sound in enumerate(config["sounds"]):
        await context.publish({"sound": sound}, message_id=f"sound-{number}")


@perdure.streaming_engram("transcriber")
def transcriber(config: Any, message: Any, context: Any) -> Any:
    """A plain function is called for every message; what it returns is published."""
    return {"text": message.payload["sound"].strip("~")}


@perdure.streaming_engram("responder")
async def responder(config: Any, messages: Any, context: Any) -> None:
    async for message in messages:
        answer = f"You said: {message.inputs['heard']}."
        await context.publish({"answer": answer}, reply_to=message)
        message.done()


# Measurements: partitions keep each device in order, windows are closed by number.


@perdure.streaming_engram("sensors")
async def sensors(config: Any, messages: Any, context: Any) -> None:
    for number in range(config["count"]):
        await context.publish({"device": f"d{number % config['devices']}", "value": number})


@perdure.streaming_engram("window")
async def window(config: Any, messages: Any, context: Any) -> None:
    """Publishes the mean of every so many values of a device. What is in an open window is not done yet."""
    windows: dict[str, list[Any]] = {}
    async for message in messages:
        values = windows.setdefault(message.payload["device"], [])
        values.append(message)
        if len(values) == config["size"]:
            mean = sum(one.payload["value"] for one in values) / len(values)
            await context.publish({"device": message.payload["device"], "mean": mean}, reply_to=message)
            for one in values:
                one.done()
            values.clear()


@perdure.streaming_engram("alarm")
def alarm(config: Any, message: Any, context: Any) -> Any:
    return {"alarm": message.payload["device"]} if message.payload["mean"] > config["above"] else None


# Two sources, joined by a key.


@perdure.streaming_engram("orders")
async def orders(config: Any, messages: Any, context: Any) -> None:
    for number in config["numbers"]:
        await context.publish({config["field"]: number * 10}, metadata={"bubu.join.key": str(number)})


@perdure.streaming_engram("invoice")
def invoice(config: Any, message: Any, context: Any) -> Any:
    return {"due": message.payload["goods"]["price"] - message.payload["payments"]["paid"]}


# At least once into a database: the effect happens once for each packet, whatever is repeated.


@perdure.streaming_engram("transfers")
async def transfers(config: Any, messages: Any, context: Any) -> None:
    for number in range(config["count"]):
        await context.publish({"amount": number}, message_id=f"transfer-{number}")


@perdure.streaming_engram("book")
async def book(config: Any, messages: Any, context: Any) -> None:
    async for message in messages:

        def insert(amount: int = message.payload["amount"]) -> None:
            with sqlite3.connect(config["database"]) as database:
                database.execute("CREATE TABLE IF NOT EXISTS bookings (amount INTEGER)")
                database.execute("INSERT INTO bookings VALUES (?)", (amount,))

        await context.effect_once("book", insert)
        message.done()
