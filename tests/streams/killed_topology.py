"""A process with a topology that is killed when there are so many lines. Not a test.

python killed_topology.py STORE OUTPUT COUNT LINES [NATS]
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import perdure
from perdure.kernel.documents.validation import AppliedDocument

STORY = b"""
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: killed}
spec:
  pattern: streaming
  steps:
  - {name: source, ref: {name: count-up}, with: {count: COUNT}}
  - {name: relay, ref: {name: relay}, needs: [source]}
  - {name: sink, ref: {name: write-down}, needs: [relay]}
  transports:
  - name: t
    transportRef: DRIVER
    streaming:
      delivery: {ordering: per_partition, semantics: at_least_once, replay: {mode: durable, checkpointInterval: 50ms}}
      partitioning: {mode: hash, key: payload.k, partitions: 4}
"""

TRANSPORT = """
apiVersion: transport.bubustack.io/v1alpha1
kind: Transport
metadata: {name: nats}
spec: {driver: nats, supportedBinary: [application/json], defaultSettings: {nats: {servers: ["ADDRESS"]}}}
"""

OUTPUT = Path(sys.argv[2])
LINES = int(sys.argv[4])


@perdure.streaming_engram("count-up")
async def count_up(config: Any, messages: Any, context: Any) -> None:
    """Repeats everything when it is started again: chosen ids are appended once."""
    for start in range(0, config["count"], 50):
        numbers = range(start, min(start + 50, config["count"]))
        await asyncio.gather(*(context.publish({"n": n, "k": n % 7}, message_id=str(n)) for n in numbers))


@perdure.streaming_engram("relay")
def relay(config: Any, message: Any, context: Any) -> Any:
    return message.payload


@perdure.streaming_engram("write-down")
def write_down(config: Any, message: Any, context: Any) -> None:
    with OUTPUT.open("a") as file:
        file.write(f"{message.payload['n']} {message.envelope['partition']} {message.envelope['sequence']}\n")
    if OUTPUT.read_bytes().count(b"\n") >= LINES:
        os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    async with perdure.Engine(sys.argv[1]) as engine:
        address = sys.argv[5] if len(sys.argv) > 5 else ""
        if address:
            await engine.apply([AppliedDocument("nats.yaml", TRANSPORT.replace("ADDRESS", address))])
        text = STORY.replace(b"COUNT", sys.argv[3].encode()).replace(b"DRIVER", b"nats" if address else b"local")
        handle = await engine.start(text, {}, token="the-one")
        await handle.result()


asyncio.run(main())
