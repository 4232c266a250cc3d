"""How the journeys of packets follow each other: in any order, one at a time, or the next one cancels (STR-077).

A journey begins with a packet from a source or from outside, and is over when nothing of it is in flight. Nothing is
counted where journeys may overlap.
"""

from perdure.streams.stream_graph import Topology
from perdure.streams.stream_messages import IDENTITY, StreamMessage

SERIAL, CANCELS = "serial", "cancelPrevious"


class Journey:
    """`open` packets of it are in flight."""

    __slots__ = ("is_cancelled", "key", "open")

    def __init__(self, key: str) -> None:
        self.key = key
        self.open = 0
        self.is_cancelled = False


class Journeys:
    def __init__(self, topology: Topology) -> None:
        self.is_counted = topology.mode in (SERIAL, CANCELS)
        self._is_serial = topology.mode == SERIAL
        self._by_participant = topology.scope == "participant"
        self._open: dict[str, Journey] = {}  # by root
        self._current: dict[str, str] = {}  # by participant, or one: the root of the latest journey
        self.has_ended = False  # since it was last asked

    def __len__(self) -> int:
        """How many have not ended."""
        return len(self._open)

    def _key(self, message: StreamMessage) -> str:
        return message.metadata.get(IDENTITY, "") if self._by_participant else ""

    def admits(self, message: StreamMessage) -> bool:
        """Whether a journey may begin with this message now."""
        return not (self._is_serial and self._current.get(self._key(message)) in self._open)

    def begin(self, message: StreamMessage) -> str:
        """Begin a journey: the root of the one that it cancels, or nothing."""
        key = self._key(message)
        before = self._current.get(key, "")
        self._open[message.root] = Journey(key)
        self._current[key] = message.root
        if self._is_serial or before not in self._open or before == message.root:
            return ""
        self._open[before].is_cancelled = True
        return before

    def is_cancelled(self, root: str) -> bool:
        journey = self._open.get(root)
        return journey is not None and journey.is_cancelled

    def enter(self, root: str) -> None:
        journey = self._open.get(root)
        if journey is None:
            journey = self._open[root] = Journey("\0")
        journey.open += 1

    def leave(self, root: str) -> None:
        journey = self._open.get(root)
        if journey is None:
            return
        journey.open -= 1
        self.settle(root)

    def settle(self, root: str) -> None:
        """The journey is over if nothing of it is in flight (any more)."""
        journey = self._open.get(root)
        if journey is None or journey.open > 0:
            return
        del self._open[root]
        if self._current.get(journey.key) == root:
            del self._current[journey.key]
        self.has_ended = True
