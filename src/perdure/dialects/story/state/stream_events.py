"""Events of a streaming Story's topology. Packets are none (STR-102)."""

from perdure.kernel.events import Event
from perdure.kernel.json_values.values import Instant


class TopologyStarted(Event, frozen=True, tag=154):
    """The workers of a streaming Story may start: one task carries all of them, and the packets between them."""

    task: int
    at: Instant


class StreamChanged(Event, frozen=True, tag=155):
    """The worker of a streaming step came, was lost, or is being replaced; or its topology waits for room.

    `state`: queued, connecting, ready, draining.
    """

    step: str
    state: str
    message: str
    at: Instant


class HookSent(Event, frozen=True, tag=156):
    """A hook was sent to the steps that asked for it; it is not sent again (STR-080)."""

    hook: str
    step: str
    targets: tuple[str, ...]
    at: Instant


class StreamReported(Event, frozen=True, tag=157):
    """The last numbers of a streaming step, as its status shows them (STR-129)."""

    step: str
    body: bytes


class PacketRunStarted(Event, frozen=True, tag=158):
    """A packet started a sub-run. `key` names the packet, so that a repeated one finds the same run (STR-058)."""

    step: str
    key: str
    child: int
    sub_run: str
    awaited: bool


class PacketRunEnded(Event, frozen=True, tag=159):
    """The sub-run of a packet has ended; `task` tells the topology."""

    step: str
    key: str
    child: int
    task: int


STREAM_EVENTS: tuple[type[Event], ...] = (
    TopologyStarted,
    StreamChanged,
    HookSent,
    StreamReported,
    PacketRunStarted,
    PacketRunEnded,
)
