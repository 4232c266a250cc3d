"""What waits for one step, and what it has not acknowledged: buffer, drops, sequences, credits, pressure, replay.

offer ─▶ waiting ─▶ take ─▶ pending ─▶ acknowledge          a lost session puts `pending` back in front of `waiting`
           │ full, old, too large
           ▼
         dropped (best effort), or the publisher is held (at least once)
"""

from collections import deque
from itertools import islice
from typing import Any

import msgspec

from perdure.streams.stream_graph import MEBIBYTE, Settings, StreamStep
from perdure.streams.stream_messages import HOOK, LARGEST, StreamMessage

WHOLE = 100
MOST_PARTITIONS = 8192  # whose numbers are kept, with every commit; more than receivers remember packets (STR-064)
MOST_PENDING = 4096  # not acknowledged at once, where nothing else limits them (STR-064)
MOST_BYTES = 256 * MEBIBYTE  # of the buffers of one topology: documents say how large each is, memory is shared


def bounded(plan: StreamStep, steps: int) -> StreamStep:
    """The step as one of so many: what waits for it, and what it has in hand, have their part of the memory."""
    settings, most = plan.settings, max(LARGEST, MOST_BYTES // (2 * steps))
    limits = {"max_bytes": min(settings.max_bytes, most), "credit_bytes": min(settings.credit_bytes or most, most)}
    return msgspec.structs.replace(plan, settings=msgspec.structs.replace(settings, **limits))


class Packet(msgspec.Struct, gc=False, array_like=True):
    """A message on its way to one step. `position` is unique in the step and never given twice."""

    position: int
    message: StreamMessage
    at: int
    partition: str = ""
    sequence: int = 0  # 0: packets of this step are not numbered
    size: int = 0
    upstream: str = ""  # of a part of an open join; such a packet is not delivered by itself
    taken: int = 0  # how often it was handed over
    is_cancelled: bool = False


class Counters(msgspec.Struct, array_like=True):
    """Numbers of one step (STR-100, 133): received = delivered + buffered + Σ dropped."""

    received: int = 0
    published: int = 0
    delivered: int = 0
    acked: int = 0
    errors: int = 0
    flushed: int = 0  # delivered after it had waited for a session
    dropped: dict[str, int] = {}
    last_packet_at: int = 0
    watermark: int = 0  # microseconds
    recorded: int = 0
    errors_in_rules: int = 0
    arrived: dict[str, int] = {}  # by upstream step: what its rules and the step's `if` let pass

    def drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def arrive(self, upstream: str) -> None:
        if upstream:  # else it is a hook, or from outside
            self.arrived[upstream] = self.arrived.get(upstream, 0) + 1


class InletState(msgspec.Struct, array_like=True):
    """What outlives the hub, beside the packets: kept in one row of the step."""

    position: int = 0  # the last one that was given
    sequences: dict[str, int] = {}  # by partition, the last one that was given
    acked: dict[str, int] = {}  # by partition, up to where everything is acknowledged
    counters: Counters = msgspec.field(default_factory=Counters)
    bytes: int = 0  # that waited, and whether publishers were asked to pause, when this was written
    is_paused: bool = False
    fill: int = 0  # how full the buffer was, in percent
    worker: str = ""  # who does the step, if that is elsewhere
    awaits: str = ""  # why nobody does it
    since: int = 0  # when that began


class Inlet:
    def __init__(self, plan: StreamStep) -> None:
        self.plan = plan
        self.settings: Settings = plan.settings
        self.state = InletState()
        self.waiting: deque[Packet] = deque()
        self.pending: dict[int, Packet] = {}  # by position, in order of delivery
        self.bytes = 0  # of what waits
        self.is_paused = False
        self.is_connected = False
        self.generation = 0
        self.open_upstreams = 0
        self.credits = self.settings.credit_messages or self.settings.max_messages
        self.credit_bytes = self.settings.credit_bytes
        self._consumed = 0  # messages and bytes that are to be granted again
        self._consumed_bytes = 0
        self._granted_at = 0
        self._flush_until = 0  # packets up to this position have waited for a session
        self.is_kept = self.settings.is_kept
        self._kept = self.settings.is_sequenced
        self._lanes = {lane.kind: lane for lane in self.settings.lanes if lane.messages or lane.bytes}
        self._in_lane: dict[str, list[int]] = {}
        self._acked_ahead: dict[str, set[int]] = {}  # acknowledged behind a gap

    @property
    def counters(self) -> Counters:
        return self.state.counters

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.pending

    # Packets arrive.

    def overflow(self, message: StreamMessage, size: int) -> str:
        """Why there is no room for a message: `oversize`, `lane_full`, `buffer_full`; empty if there is."""
        settings = self.settings
        if size > settings.max_bytes:
            return "oversize"
        if self._lanes and message.kind != HOOK and (lane := self._lanes.get(message.lane)) is not None:
            count, length = self._in_lane.get(message.lane, (0, 0))
            if lane.messages and lane.messages < settings.max_messages and count >= lane.messages:
                return "lane_full"
            if lane.bytes and lane.bytes < settings.max_bytes and length + size > lane.bytes:
                return "lane_full"
        if len(self.waiting) >= settings.max_messages or self.bytes + size > settings.max_bytes:
            return "buffer_full"
        return ""

    def offer(self, message: StreamMessage, partition: str, size: int, now: int) -> tuple[Packet | None, list[Packet]]:
        """Put a message into the buffer: its packet, unless it was dropped, and the packets dropped in its place."""
        counters = self.state.counters
        counters.received += 1
        counters.last_packet_at = now
        evicted: list[Packet] = []
        if not self.settings.at_least_once and (reason := self.overflow(message, size)):
            if reason == "oversize" or not self.settings.drops_oldest:
                counters.drop(reason)
                return None, evicted
            while self.waiting and (reason := self.overflow(message, size)):
                oldest = self._oldest(message.lane if reason == "lane_full" else "")
                if oldest is None:
                    break
                evicted.append(oldest)
                counters.drop(reason)
            if reason := self.overflow(message, size):
                counters.drop(reason)
                return None, evicted
        packet = Packet(self.next_position(), message, now, partition, self._next_sequence(partition), size)
        self._append(packet)
        return packet, evicted

    def _oldest(self, lane: str) -> Packet | None:
        for packet in self.waiting:
            if not lane or packet.message.lane == lane:
                self.waiting.remove(packet)
                self._leave(packet)
                return packet
        return None

    def next_position(self) -> int:
        self.state.position += 1
        return self.state.position

    def _next_sequence(self, partition: str) -> int:
        if not self._kept:
            return 0
        key = partition if self.settings.ordering == "per_partition" else ""
        sequences = self.state.sequences
        sequence = sequences.pop(key, 0) + 1
        sequences[key] = sequence  # at the end: the first is the one that was not used for longest
        if len(sequences) > MOST_PARTITIONS + MOST_PARTITIONS // 8:
            self._forget_partitions()
        return sequence

    def _forget_partitions(self) -> None:
        """Packets name their partitions: those that are settled and were not used for longest begin anew."""
        sequences, acked = self.state.sequences, self.state.acked
        settled = (key for key, last in sequences.items() if acked.get(key) == last)
        for key in list(islice(settled, len(sequences) - MOST_PARTITIONS)):
            del sequences[key], acked[key]

    def _append(self, packet: Packet) -> None:
        self.waiting.append(packet)
        self._count(packet)

    def _count(self, packet: Packet) -> None:
        self.bytes += packet.size
        if self._lanes:
            lane = self._in_lane.setdefault(packet.message.lane, [0, 0])
            lane[0] += 1
            lane[1] += packet.size

    def _leave(self, packet: Packet) -> None:
        self.bytes -= packet.size
        if self._lanes:
            lane = self._in_lane[packet.message.lane]
            lane[0] -= 1
            lane[1] -= packet.size

    def restore(self, packet: Packet) -> None:
        """A packet that an earlier hub kept."""
        self._append(packet)

    # Packets are handed over.

    @property
    def may_take(self) -> bool:
        """Whether the receiver has credits left (STR-074)."""
        if self.settings.credit_bytes and self.credit_bytes <= 0:
            return False
        return len(self.pending) < MOST_PENDING if self.settings.flow == "none" else self.credits > 0

    def take(self, now: int) -> Packet | None:
        if not self.waiting or not self.may_take:
            return None
        packet = self.waiting.popleft()
        self._leave(packet)
        self.credits -= 1
        self.credit_bytes -= packet.size
        packet.taken += 1
        if packet.taken == 1:
            self.state.counters.delivered += 1
            if packet.position <= self._flush_until:
                self.state.counters.flushed += 1
        self.pending[packet.position] = packet
        return packet

    def acknowledge(self, position: int, now: int) -> Packet | None:
        """The packet is done; None if it was before, or is not known."""
        packet = self.pending.pop(position, None)
        if packet is None:
            return None
        self._consume(packet, now)
        if self._kept:
            self.state.counters.acked += 1
            self._note_acknowledged(packet)
        return packet

    def _note_acknowledged(self, packet: Packet) -> None:
        key = packet.partition if self.settings.ordering == "per_partition" else ""
        last, ahead = self.state.acked.get(key, 0), self._acked_ahead.pop(key, set())
        ahead.add(packet.sequence)
        while last + 1 in ahead:
            last += 1
            ahead.discard(last)
        if ahead:
            self._acked_ahead[key] = ahead
        self.state.acked[key] = last

    def pass_over(self, packet: Packet) -> None:
        """A numbered packet that will never be acknowledged: it was dropped."""
        if self._kept and packet.sequence:
            self._note_acknowledged(packet)

    def _consume(self, packet: Packet, now: int) -> None:
        """Grant what was used again, in portions as the settings say; a window gives it back at once (STR-075)."""
        settings = self.settings
        self._consumed += 1
        self._consumed_bytes += packet.size
        is_due = settings.flow != "credits" or self._consumed >= max(settings.ack_messages, 1)
        is_due = is_due or bool(settings.ack_bytes and self._consumed_bytes >= settings.ack_bytes)
        if is_due or now - self._granted_at >= settings.ack_delay:
            self.grant(now)

    def grant(self, now: int) -> None:
        self.credits += self._consumed
        self.credit_bytes += self._consumed_bytes
        self._consumed = self._consumed_bytes = 0
        self._granted_at = now

    @property
    def grant_due(self) -> int | None:
        """When what was used is granted again at the latest."""
        return self._granted_at + self.settings.ack_delay if self._consumed and not self.may_take else None

    def put_back(self, packets: list[Packet]) -> None:
        """These were handed over and not begun: they wait again, in front."""
        for packet in reversed(packets):
            if self.pending.pop(packet.position, None) is None:
                continue
            packet.taken -= 1
            if not packet.taken:
                self.state.counters.delivered -= 1
            self.credits += 1
            self.credit_bytes += packet.size
            self.waiting.appendleft(packet)
            self._count(packet)

    # Sessions.

    def begin_session(self) -> int:
        """A worker is here. What the one before did not acknowledge comes again, in order, before everything else."""
        self.generation += 1
        self.is_connected = True
        self._flush_until = self.state.position
        again = sorted(self.pending.values(), key=lambda packet: packet.position)
        self.pending.clear()
        for packet in reversed(again):
            self.waiting.appendleft(packet)
            self._count(packet)
        self.credits = self.settings.credit_messages or self.settings.max_messages
        self.credit_bytes = self.settings.credit_bytes
        self._consumed = self._consumed_bytes = 0
        return self.generation

    def end_session(self) -> list[Packet]:
        """The worker is gone. What it was given and is not kept is lost with it: those packets."""
        self.is_connected = False
        if self._kept and self.settings.at_least_once:
            return []
        lost = list(self.pending.values())
        self.pending.clear()
        for packet in lost:
            self.pass_over(packet)
        return lost

    def abandon(self) -> list[Packet]:
        """The step has ended: what it was given and did not acknowledge stays so, and does not come again."""
        abandoned = list(self.pending.values())
        self.pending.clear()
        return abandoned

    # Pressure.

    @property
    def fill(self) -> int:
        """How full the buffer is, in percent: by messages or by bytes, whichever is more."""
        settings = self.settings
        return max(
            len(self.waiting) * WHOLE // max(settings.max_messages, 1), self.bytes * WHOLE // max(settings.max_bytes, 1)
        )

    def note_pressure(self) -> None:
        """Put what those who look want to know of the buffer into what is kept."""
        self.state.bytes, self.state.is_paused, self.state.fill = self.bytes, self.is_paused, self.fill

    def look_at_pressure(self) -> str:
        """`pause` or `resume` if the buffer has just become too full, or empty enough again."""
        settings = self.settings
        if settings.flow == "none" and not settings.at_least_once:
            return ""
        if not self.is_paused:
            if len(self.waiting) * WHOLE < settings.pause_at * settings.max_messages and self.bytes * WHOLE < (
                settings.pause_at * settings.max_bytes
            ):
                return ""
            self.is_paused = True
            return "pause"
        if self.fill >= settings.resume_below and self.waiting:
            return ""
        self.is_paused = False
        return "resume"

    # Time.

    def expire(self, now: int) -> tuple[list[Packet], str]:
        """Packets that waited for too long, and the reason that they are dropped for.

        Under best effort they are too old for the buffer, or cannot be delivered in time; what is delivered at least
        once is kept until its retention is over (STR-061, 065, 071).
        """
        settings = self.settings
        limit, reason = (settings.retention if settings.at_least_once else settings.max_age), "expired"
        if not settings.at_least_once and 0 < settings.message_timeout < (limit or settings.message_timeout + 1):
            limit, reason = settings.message_timeout, "timeout"
        if not limit or not self.waiting or now - self.waiting[0].at < limit:
            return [], reason  # they wait in the order in which they came
        return self.drop(lambda packet: now - packet.at >= limit, reason), reason

    def drop(self, is_dropped: Any, reason: str) -> list[Packet]:
        """Drop the waiting packets that are wanted so."""
        chosen = [packet for packet in self.waiting if is_dropped(packet)]
        for packet in chosen:
            self.waiting.remove(packet)
            self._leave(packet)
            self.pass_over(packet)
            self.state.counters.drop(reason)
            if packet.taken:
                self.state.counters.delivered -= 1
        return chosen
