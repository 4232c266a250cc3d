"""How many streams and buffers the topologies of one process may have (STR-078).

A topology has a stream for each step, and a buffer for each step with upstreams. One that finds no room waits for
others to end, first come, first served; nothing of another topology is ever given up for it.
"""

from collections.abc import Callable
from typing import NamedTuple

from perdure.streams.stream_graph import StreamGraph


class HubCapacity(NamedTuple):
    """What a topology needs, or a process has."""

    streams: int
    buffers: int

    def fits(self, limit: "HubCapacity") -> bool:
        return self.streams <= limit.streams and self.buffers <= limit.buffers


def capacity_of(graph: StreamGraph) -> HubCapacity:
    return HubCapacity(len(graph.steps), sum(bool(step.needs) for step in graph.steps.values()))


def guard_problem(graph: StreamGraph, limit: HubCapacity) -> str | None:
    """Why a topology can never start, whatever else runs."""
    need = capacity_of(graph)
    if need.fits(limit):
        return None
    return (
        f"the topology has {need.streams} streams and {need.buffers} buffers; a process has at most {limit.streams} and"
        f" {limit.buffers} (hub.max-streams, hub.max-buffers)"
    )


class HubGuards:
    """The topologies of one process: those at work, and those that wait for room."""

    def __init__(self) -> None:
        self._admitted: dict[str, HubCapacity] = {}
        self._waiting: dict[str, Callable[[], None]] = {}  # in the order in which they came

    @property
    def used(self) -> HubCapacity:
        admitted = self._admitted.values()
        return HubCapacity(sum(hub.streams for hub in admitted), sum(hub.buffers for hub in admitted))

    def admit(self, run: str, need: HubCapacity, limit: HubCapacity, wake: Callable[[], None]) -> bool:
        """Whether the topology may start. If not, `wake` is called when it is worth asking again."""
        used = self.used
        is_next = not self._waiting or next(iter(self._waiting)) == run
        if is_next and HubCapacity(used.streams + need.streams, used.buffers + need.buffers).fits(limit):
            self._waiting.pop(run, None)
            self._admitted[run] = need
            self._wake_next()
            return True
        self._waiting.setdefault(run, wake)
        return False

    def leave(self, run: str) -> None:
        """The topology has ended, or does not wait any more."""
        self._admitted.pop(run, None)
        self._waiting.pop(run, None)
        self._wake_next()

    def _wake_next(self) -> None:
        if self._waiting:
            next(iter(self._waiting.values()))()
