"""What comes to a topology from outside (STR-092, 121).

`engram.stream` brings a packet, or the end of a packet's sub-run, to a topology of its own process. `publish` gives a
message to a topology here at once, and to any other through its run's inbox.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.kernel.errors import Conflict, UnfitInput
from perdure.kernel.json_values.values import RunId
from perdure.providers.context import TaskContext
from perdure.providers.registry import Provider
from perdure.services.story.engrams.failure import EngramError
from perdure.streams.hub import Draining
from perdure.streams.stream_messages import BadMessage, StreamMessage, make_message

if TYPE_CHECKING:
    from perdure.engine.client import Client

TOPOLOGY_TIMEOUT = 60.0  # seconds that a topology of the same run may take to come
LOOK_EVERY = 0.05


async def bring(context: TaskContext, run: str, step: str, **content: Any) -> Any:
    """Bring a packet from outside, or the end of a packet's sub-run, to the topology of the run."""
    from perdure.services.story.streams.live_topology import TOPOLOGIES

    async with asyncio.timeout(TOPOLOGY_TIMEOUT):
        while (topology := TOPOLOGIES.get(RunId(run))) is None or not topology.takes(step):
            await asyncio.sleep(LOOK_EVERY)
    if "child" in content:
        topology.child_ended(content["child"], content)
        return None
    try:
        await topology.receive(step, content["message"])
    except (BadMessage, Draining) as problem:
        raise EngramError(str(problem), type="validation_error", exit_class="terminal") from None
    return None


PROVIDER = Provider.of("engram.stream", bring, prefix="Engram")


async def publish(engine: "Client", run: RunId, step: str, members: Mapping[str, Any]) -> None:
    """Give a message to a step; returns once it is taken, and kept where the step's replay is durable."""
    from perdure.services.story.streams.live_topology import TOPOLOGIES

    try:
        message = make_message("", engine.clock.now() // 1_000, **members)
        topology = TOPOLOGIES.get(run)
        if topology is not None and topology.takes(step):
            await topology.receive(step, message)
            return
    except BadMessage as problem:
        raise UnfitInput(f"run {run}: {problem}", run=run, hint="Correct the message.") from None
    except Draining as problem:
        raise Conflict(f"run {run}: {problem}", run=run) from None
    await engine.signal(run, f"{step}.packet", _plain(message))


def _plain(message: StreamMessage) -> Any:
    """The message as JSON data; one without an id stays so."""
    shown = msgspec.to_builtins(message.json(), builtin_types=())
    if not message.id:
        del shown["messageId"]
    return shown
