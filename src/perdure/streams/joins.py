"""Fan-in: packets of several upstreams that belong together become one (STR-054, 138).

They belong together by `bubu.join.key` in their metadata, else by their id. An id that was made up for a packet is no
key for upstreams that cannot have it: such packets pass by themselves.
"""

from collections import OrderedDict
from collections.abc import Mapping

from perdure.kernel.json_values import jsontext
from perdure.streams.inlet import Inlet, Packet
from perdure.streams.journeys import Journeys
from perdure.streams.notices import Notices
from perdure.streams.stream_graph import MEBIBYTE, Settings, StreamGraph, StreamStep
from perdure.streams.stream_messages import JOIN_KEY, StreamMessage
from perdure.streams.stream_rows import IdWindow, RowBuffer

MOST_BYTES = 64 * MEBIBYTE  # of the parts of open joins of one step
OVERHEAD = 500  # bytes of a part beside its message


class Part:
    """One packet of an open join."""

    __slots__ = ("message", "position")

    def __init__(self, message: StreamMessage, position: int) -> None:
        self.message = message
        self.position = position  # of its row, if it is kept

    @property
    def size(self) -> int:
        return self.message.size + OVERHEAD


class OpenJoin:
    __slots__ = ("at", "key", "parts")

    def __init__(self, key: str, at: int) -> None:
        self.key = key
        self.at = at
        self.parts: dict[str, Part] = {}

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts.values())


def key_of(message: StreamMessage) -> str:
    return message.metadata.get(JOIN_KEY) or message.id


def _completed_id(key: str) -> str:
    """How a completed join is remembered among the ids of its step, which are others."""
    return f"\1{key}"


class Joins:
    """The open joins of one step. `completed` remembers the keys of those that did not need every upstream."""

    def __init__(self, needs: tuple[str, ...], settings: Settings, completed: IdWindow) -> None:
        self._needs = needs
        self._needed = {"all": len(needs), "any": 1}.get(settings.join, min(settings.quorum or 1, len(needs)))
        self._settings = settings
        self._open: OrderedDict[str, OpenJoin] = OrderedDict()
        self._bytes = 0
        self._completed = completed

    def __len__(self) -> int:
        return len(self._open)

    def put(self, upstream: str, part: Part, now: int) -> OpenJoin | None:
        """Add a part; the join, if it is complete with it. A later part of the same upstream replaces the earlier."""
        key = key_of(part.message)
        join = self._open.get(key)
        if join is None:
            join = self._open[key] = OpenJoin(key, now)
        if (replaced := join.parts.get(upstream)) is not None:
            self._bytes -= replaced.size
        join.parts[upstream] = part
        self._bytes += part.size
        if len(join.parts) < self._needed:
            return None
        self._remove(key)
        if self._needed < len(self._needs):
            self._completed.add(_completed_id(key))
        return join

    def _remove(self, key: str) -> OpenJoin:
        join = self._open.pop(key)
        self._bytes -= join.size
        return join

    def is_repeated(self, upstream: str, message: StreamMessage) -> Part | None:
        """The part of an open join that a message would replace."""
        join = self._open.get(key_of(message))
        return None if join is None else join.parts.get(upstream)

    def is_late(self, message: StreamMessage) -> bool:
        """Whether its join was completed without it."""
        return _completed_id(key_of(message)) in self._completed

    def need_only(self, count: int) -> list[OpenJoin]:
        """An upstream that may be missing is closed: so many are enough now. The joins that this completes."""
        self._needed = min(self._needed, max(count, 1))
        complete = [join for join in self._open.values() if len(join.parts) >= self._needed]
        for join in complete:
            self._remove(join.key)
        return complete

    def expire(self, now: int) -> list[OpenJoin]:
        """Joins that are given up: they waited for too long, or there are too many, or they are too large."""
        given_up = []
        timeout = self._settings.join_timeout
        while self._open:
            oldest = next(iter(self._open.values()))
            is_old = timeout and now - oldest.at >= timeout
            are_too_many = len(self._open) > self._settings.max_joins or self._bytes > MOST_BYTES
            if not is_old and not are_too_many:
                break
            given_up.append(self._remove(oldest.key))
        return given_up

    def parts(self) -> list[tuple[str, Part, int]]:
        """Every part of an open join: its upstream, and since when the join is open."""
        return [(upstream, part, join.at) for join in self._open.values() for upstream, part in join.parts.items()]

    def close(self) -> list[OpenJoin]:
        given_up = list(self._open.values())
        self._open.clear()
        self._bytes = 0
        return given_up


def joined(join: OpenJoin, order: tuple[str, ...], names: dict[str, str]) -> StreamMessage:
    """One message of all parts: payload by upstream, metadata of the last one, and the journeys of all."""
    last = list(join.parts.values())[-1].message
    payloads = []
    steps: dict[str, bytes] = {}
    for upstream in order:
        part = join.parts.get(upstream)
        if part is not None:
            text = part.message.payload if part.message.payload is not None else b"null"
            payloads.append(jsontext.encode(names.get(upstream, upstream)) + b":" + text)
            steps.update(part.message.steps)
    return StreamMessage(
        last.id,
        last.kind,
        last.at_ms,
        last.metadata,
        b"{" + b",".join(payloads) + b"}",
        partition=last.partition,
        steps=steps,
        root=last.root,
        origin=last.origin,
        trace=last.trace,
    )


class FanIn:
    """The joins of all steps with several upstreams."""

    def __init__(
        self, graph: StreamGraph, rows: RowBuffer, windows: Mapping[str, IdWindow], journeys: Journeys, notices: Notices
    ) -> None:
        self._names = {name: plan.public_name for name, plan in graph.steps.items()}
        self._joins = {
            name: Joins(plan.needs, plan.settings, windows[name])
            for name, plan in graph.steps.items()
            if len(plan.needs) > 1
        }
        self._reachable = {name: graph.below(name) | {name} for name in graph.steps}
        self._rows = rows
        self._journeys = journeys
        self._notices = notices

    def __contains__(self, step: str) -> bool:
        return step in self._joins

    def open_joins(self, step: str) -> int:
        return len(self._joins[step]) if step in self._joins else 0

    def add(
        self, upstream: str, plan: StreamStep, inlet: Inlet, message: StreamMessage, now: int
    ) -> StreamMessage | None:
        """The message that the step receives because of this one: itself, a joined one, or none yet."""
        joins = self._joins[plan.name]
        if upstream not in plan.needs or not self._can_join(plan, message):
            return message
        if joins.is_late(message):
            if plan.settings.is_kept:
                self._rows.touch(plan.name)  # it was counted
            return None
        replaced = joins.is_repeated(upstream, message)
        position = inlet.next_position()
        if plan.settings.is_kept:
            if replaced is not None:
                self._rows.remove(plan.name, replaced.position)
            self._rows.put(plan.name, Packet(position, message, now, size=message.size, upstream=upstream))
        if self._journeys.is_counted and replaced is None:
            self._journeys.enter(message.root)
        join = joins.put(upstream, Part(message, position), now)
        self.expire(plan, inlet, now)
        return None if join is None else self._complete(plan, join)

    def _can_join(self, plan: StreamStep, message: StreamMessage) -> bool:
        """Whether other upstreams can have this key: it was chosen, or they descend from where it was made up."""
        if message.metadata.get(JOIN_KEY) or not message.origin:
            return True
        reachable = self._reachable.get(message.origin) or set[str]()
        possible = sum(name in reachable for name in plan.needs)
        settings = plan.settings
        return possible >= {"all": len(plan.needs), "any": 1}.get(settings.join, settings.quorum)

    def _complete(self, plan: StreamStep, join: OpenJoin) -> StreamMessage:
        for part in join.parts.values():
            self._rows.remove(plan.name, part.position)
            if self._journeys.is_counted:
                self._journeys.leave(part.message.root)
        return joined(join, plan.needs, self._names)

    def expire(self, plan: StreamStep, inlet: Inlet, now: int) -> None:
        self._give_up(plan, inlet, self._joins[plan.name].expire(now), "join_timeout", now)

    def close(self, plan: StreamStep, inlet: Inlet, now: int) -> None:
        """No upstream publishes any more: what is incomplete stays so."""
        self._give_up(plan, inlet, self._joins[plan.name].close(), "join_closed", now)

    def lack(self, plan: StreamStep, upstreams_left: int) -> list[StreamMessage]:
        """An upstream that may be missing is closed: what is complete without it."""
        return [self._complete(plan, join) for join in self._joins[plan.name].need_only(upstreams_left)]

    def kept(self, step: str) -> list[Packet]:
        """The parts of the step's open joins, as they are kept."""
        parts = self._joins[step].parts() if step in self._joins else []
        return [
            Packet(part.position, part.message, at, size=part.message.size, upstream=upstream)
            for upstream, part, at in parts
        ]

    def restore(self, plan: StreamStep, packet: Packet) -> None:
        self._joins[plan.name].put(packet.upstream, Part(packet.message, packet.position), packet.at)
        if self._journeys.is_counted:
            self._journeys.enter(packet.message.root)

    def _give_up(self, plan: StreamStep, inlet: Inlet, given_up: list[OpenJoin], reason: str, now: int) -> None:
        for join in given_up:
            for part in join.parts.values():
                self._rows.remove(plan.name, part.position)
                inlet.counters.received += 1
                inlet.counters.drop(reason)
                if self._journeys.is_counted:
                    self._journeys.leave(part.message.root)
            upstreams = ", ".join(self._names[name] for name in join.parts)
            message = f"the join of {join.key!r} was given up: only {upstreams} came"
            self._notices.add(plan.name, "JoinGivenUp", reason, message, now)
            if plan.settings.is_kept:
                self._rows.touch(plan.name)
