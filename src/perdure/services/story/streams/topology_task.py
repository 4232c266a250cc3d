"""`engram.topology`: carries the topology of a streaming Story.

Where a step's code is loaded, the topology is carried under the name of that code: so it is only taken up by a process
that has it.
"""

from typing import Any

from perdure.providers.context import TaskContext
from perdure.providers.registry import Provider


async def carry_topology(context: TaskContext, **task: Any) -> Any:
    """Carry the topology of a streaming Story until it ends."""
    from perdure.services.story.streams.live_topology import LiveTopology

    return await LiveTopology(context, task).carry()


def topology_provider(name: str, stands_for: Any = None) -> Provider:
    return Provider.of(name, carry_topology, prefix="Engram", carries_streams=True, stands_for=stands_for)


PROVIDER = topology_provider("engram.topology")
