"""What a hub keeps as messages of one stream of another system, such as NATS JetStream (STR-110).

    packets.STEP.PARTITION     a packet, in parts if it is large            waits until it is acknowledged
    ids.STEP                   digests of ids that the step has published   removed when they leave the window
    head                       numbers of every step, and which packets count                   only the last one stays

Changes of the hub are written in this order, the head at the end: what stands behind the last head was never promised,
and does not count. A packet that the hub has done with is removed after a head has said so; if that gets lost, the head
still says so. So a set of changes counts as a whole or not at all, whenever the writer is interrupted.

Each head carries the *epoch* of its writer. Whoever takes over writes a head of a higher epoch first; the stream takes
a message only if it is the next one that its writer expects, so nothing of an earlier writer gets in after that.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

from perdure.streams.inlet import InletState, Packet
from perdure.streams.stream_rows import Changes, KeptRows

PACKETS, IDS, HEAD = "packets", "ids", "head"
EMPTY = "%"
"""The token of the partition without a name: no other is written so."""

_encode = msgspec.msgpack.Encoder().encode
_packets = msgspec.msgpack.Decoder(Packet)
_digests = msgspec.msgpack.Decoder(dict[int, bytes])


class Head(msgspec.Struct, array_like=True):
    """A packet counts if its position lies in one of the ranges that are kept of its step."""

    epoch: int
    states: dict[str, InletState] = {}
    kept: dict[str, list[tuple[int, int]]] = {}  # ranges: the first and the last position
    through: int = 0  # of a head that takes over: the place of the last one before it; what is between does not count

    def counts(self, step: str, position: int) -> bool:
        return any(first <= position <= last for first, last in self.kept.get(step, ()))


_heads = msgspec.msgpack.Decoder(Head)


class LogMessage(NamedTuple):
    """One message: its subject below that of the topology, an id that no other has, and its body."""

    subject: str
    id: str
    body: bytes


class KeptMessage(NamedTuple):
    """A message that was found in the stream, with its place there."""

    place: int
    id: str
    body: bytes


class PacketName(NamedTuple):
    """What the id of a packet's message says: EPOCH.POSITION.PART.PARTS.STEP."""

    epoch: int
    position: int
    part: int
    parts: int
    step: str

    @classmethod
    def read(cls, id: str) -> "PacketName":
        epoch, position, part, parts, step = id.split(".", 4)
        return cls(int(epoch), int(position), int(part), int(parts), step)

    def __str__(self) -> str:
        return f"{self.epoch}.{self.position}.{self.part}.{self.parts}.{self.step}"


def token(text: str) -> str:
    """A text as one token of a subject, or as a part of a name; `text_of` reads it."""
    return quote(text, safe="").replace(".", "%2E") or EMPTY


def text_of(token: str) -> str:
    return "" if token == EMPTY else unquote(token)


def ranges(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending positions as ranges of neighbours: as many as there are gaps, however many there were before."""
    pairs: list[tuple[int, int]] = []
    first = last = -1
    for position in positions:
        if position != last + 1 or first < 0:
            if first >= 0:
                pairs.append((first, last))
            first = position
        last = position
    return [*pairs, (first, last)] if first >= 0 else pairs


class MessageLog:
    """Turns changes of one hub into messages, and remembers what of them is in the stream."""

    def __init__(self, epoch: int, largest: int, kept: KeptRows | None = None) -> None:
        """`largest`: the bytes that one message may have."""
        self.epoch = epoch
        self._largest = largest
        self._kept: dict[str, dict[int, None]] = {}  # by step: positions of the packets that count, ascending
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        self._states: dict[str, InletState] = {}
        self._id_messages: dict[str, deque[tuple[int, int]]] = {}  # by step: the last number in each, and its place
        if kept is not None:
            self._states.update(kept.states)
            for step, packets in kept.packets.items():
                self._kept[step] = dict.fromkeys(packet.position for packet in packets)
                self._ranges[step] = ranges(self._kept[step])

    def keeps(self, step: str, position: int) -> bool:
        """Whether a packet in the stream counts; otherwise it may be removed."""
        return step in self._kept and position in self._kept[step]

    def write(self, changes: Changes) -> list[LogMessage]:
        """The messages of a set of changes, in the order in which they must be written; the last one is the head."""
        messages: list[LogMessage] = []
        for step, packet in changes.put:
            self._kept.setdefault(step, {})[packet.position] = None
            messages += self._parts(step, packet)
        for step, added in changes.ids_added.items():
            messages.append(LogMessage(f"{IDS}.{token(step)}", f"{self.epoch}.{max(added)}.{step}", _encode(added)))
        for step, position in changes.removed:
            self._kept[step].pop(position, None)
        for step in {step for step, _ in (*changes.put, *changes.removed)}:
            self._ranges[step] = ranges(self._kept[step])
        self._states.update(changes.states)
        return [*messages, LogMessage(HEAD, "", _encode(Head(self.epoch, self._states, self._ranges)))]

    def _parts(self, step: str, packet: Packet) -> list[LogMessage]:
        body = _encode(packet)
        subject = f"{PACKETS}.{token(step)}.{token(packet.partition)}"
        count = max(1, -(-len(body) // self._largest))
        return [
            LogMessage(
                subject,
                str(PacketName(self.epoch, packet.position, part, count, step)),
                body if count == 1 else body[part * self._largest : (part + 1) * self._largest],
            )
            for part in range(count)
        ]

    # Ids: whole messages are removed, once every id in them has left the window.

    def note_ids(self, step: str, last: int, place: int) -> None:
        """A message with ids up to this number is in the stream."""
        self._id_messages.setdefault(step, deque()).append((last, place))

    def take_old_ids(self, removed: dict[str, list[int]]) -> list[int]:
        """The places of messages whose ids have all left the window."""
        places = []
        for step, numbers in removed.items():
            messages = self._id_messages.get(step, deque())
            while messages and messages[0][0] <= max(numbers):
                places.append(messages.popleft()[1])
        return places


class Restored(NamedTuple):
    kept: KeptRows
    refused: list[int]
    """Places of messages that were never promised: they must be gone before anything is written."""


def read_head(body: bytes) -> Head:
    return _heads.decode(body)


def take_over(body: bytes | None, place: int) -> tuple[Head, LogMessage]:
    """The head of a new writer, after the last head and its place; none: the stream is empty."""
    before = Head(0) if body is None else read_head(body)
    head = Head(before.epoch + 1, before.states, before.kept, before.through or place)
    return head, LogMessage(HEAD, "", _encode(head))


def restore(head: Head, packets: Iterable[KeptMessage], ids: Iterable[KeptMessage]) -> Restored:
    """What an earlier writer has left, as the head says that takes over from it."""
    kept, refused = KeptRows(dict(head.states), {}, {}), []
    bodies: dict[tuple[str, int], dict[int, bytes]] = {}
    for message in sorted(packets):
        name = PacketName.read(message.id)
        if message.place > head.through:
            refused.append(message.place)
        elif head.counts(name.step, name.position):
            bodies.setdefault((name.step, name.position), {})[name.part] = message.body
    for (step, _), parts in sorted(bodies.items()):
        kept.packets.setdefault(step, []).append(_packets.decode(b"".join(parts[part] for part in sorted(parts))))
    for message in sorted(ids):
        if message.place > head.through:
            refused.append(message.place)
        else:
            step = message.id.split(".", 2)[2]
            kept.ids.setdefault(step, []).extend(_digests.decode(message.body).items())
    return Restored(kept, refused)
