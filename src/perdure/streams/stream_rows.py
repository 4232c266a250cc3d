"""The rows of a topology in its run's store: packets that are not acknowledged, and a row of numbers for each step.

    p STEP \\0 POSITION     a packet               i STEP \\0 NUMBER     the digest of an id that the step has published
    s STEP                 numbers of the step     h                    the life of the run that they belong to

Changes are collected until somebody takes them, and taken together: any set that was written is a consistent state. A
packet that is acknowledged before it was written is never written. Where they are kept is not decided here: `rows_of`
is their form in the run's store, `log_messages` that in a NATS stream.
"""

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from perdure.streams.inlet import InletState, Packet

Row = tuple[bytes, bytes | None]
"""A key with its value; None: the row is removed."""

IDS_KEPT = 65_536
IDS_KEPT_UNDER_BEST_EFFORT = 4_096

STATE_PREFIX = b"s"
"""How the keys of numbers begin: all that those need who only look."""

_encode = msgspec.msgpack.Encoder().encode
_packets = msgspec.msgpack.Decoder(Packet)
_states = msgspec.msgpack.Decoder(InletState)


class KeptRows(msgspec.Struct):
    states: dict[str, InletState] = {}
    packets: dict[str, list[Packet]] = {}
    ids: dict[str, list[tuple[int, bytes]]] = {}
    life: int = 0


class IdWindow:
    """The last ids that a step chose for what it published, and keys that it has joined: a repetition is recognised
    (STR-054, 060, 131).
    """

    def __init__(self, is_durable: bool, is_long: bool) -> None:
        self.is_durable = is_durable
        self._most = IDS_KEPT if is_long else IDS_KEPT_UNDER_BEST_EFFORT
        self._numbers: dict[bytes, int] = {}
        self._last = 0
        self.added: dict[int, bytes] = {}
        self.removed: list[int] = []

    def add(self, id: str) -> bool:
        """Remember an id; False if it is known."""
        digest = _digest(id)
        if digest in self._numbers:
            return False
        self._last += 1
        self._numbers[digest] = self._last
        if self.is_durable:
            self.added[self._last] = digest
        while len(self._numbers) > self._most:
            oldest = next(iter(self._numbers))
            number = self._numbers.pop(oldest)
            if self.is_durable and self.added.pop(number, None) is None:
                self.removed.append(number)
        return True

    def __contains__(self, id: str) -> bool:
        return _digest(id) in self._numbers

    def numbered(self) -> dict[int, bytes]:
        """All of them, and none is new any more."""
        self.added, self.removed = {}, []
        return {number: digest for digest, number in self._numbers.items()} if self.is_durable else {}

    def restore(self, numbered: list[tuple[int, bytes]]) -> None:
        for number, digest in sorted(numbered):
            self._numbers[digest] = number
            self._last = number


def _digest(id: str) -> bytes:
    return sha256(id.encode()).digest()[:16]


class Changes(msgspec.Struct):
    """What has changed since it was last asked, as one consistent set."""

    put: list[tuple[str, Packet]] = []
    removed: list[tuple[str, int]] = []  # step and position
    states: dict[str, InletState] = {}
    ids_added: dict[str, dict[int, bytes]] = {}
    ids_removed: dict[str, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self.put or self.removed or self.states or self.ids_added or self.ids_removed)


class RowBuffer:
    """Collects the changes of a hub. It remembers which packets are kept somewhere, so that only those are removed."""

    def __init__(self) -> None:
        self._changed: dict[tuple[str, int], Packet | None] = {}
        self._stored: set[tuple[str, int]] = set()
        self._touched: set[str] = set()

    def put(self, step: str, packet: Packet) -> None:
        self._changed[step, packet.position] = packet
        self._touched.add(step)

    def remove(self, step: str, position: int) -> None:
        key = step, position
        if key in self._stored:
            self._changed[key] = None
        else:
            self._changed.pop(key, None)

    def touch(self, step: str) -> None:
        """The numbers of a step have changed."""
        self._touched.add(step)

    def __bool__(self) -> bool:
        return bool(self._changed or self._touched)

    def take(self, states: Mapping[str, InletState], windows: Mapping[str, IdWindow]) -> Changes:
        changes = Changes([], [], {step: states[step] for step in self._touched}, {}, {})
        for key, packet in self._changed.items():
            if packet is None:
                self._stored.discard(key)
                changes.removed.append(key)
            else:
                self._stored.add(key)
                changes.put.append((key[0], packet))
        for step, window in windows.items():
            if window.added:
                changes.ids_added[step], window.added = window.added, {}
            if window.removed:
                changes.ids_removed[step], window.removed = window.removed, []
        self._changed, self._touched = {}, set()
        return changes

    def take_all(self, packets: list[tuple[str, Packet]], states: Mapping[str, InletState]) -> Changes:
        """Everything there is, for a place that has lost it."""
        self._changed, self._touched = {}, set()
        self._stored = {(step, packet.position) for step, packet in packets}
        return Changes(packets, [], dict(states), {}, {})

    def note_kept(self, kept: KeptRows) -> None:
        """These packets are kept already."""
        self._stored.update((step, packet.position) for step, packets in kept.packets.items() for packet in packets)


def rows_of(changes: Changes) -> list[Row]:
    """Changes as rows of the run's store."""
    rows: list[Row] = []
    for step, added in changes.ids_added.items():
        rows += [(_id_key(step, number), digest) for number, digest in added.items()]
    for step, removed in changes.ids_removed.items():
        rows += [(_id_key(step, number), None) for number in removed]
    rows += [(_packet_key(step, packet.position), _encode(packet)) for step, packet in changes.put]
    rows += [(_packet_key(step, position), None) for step, position in changes.removed]
    rows += [(STATE_PREFIX + step.encode(), _encode(state)) for step, state in changes.states.items()]
    return rows


def read_rows(rows: list[tuple[bytes, bytes]]) -> KeptRows:
    """What an earlier hub has left in the run's store."""
    kept = KeptRows({}, {}, {})
    for key, body in sorted(rows):
        kind, rest = key[:1], key[1:]
        if kind == b"s":
            kept.states[rest.decode()] = _states.decode(body)
        elif kind == b"p":
            step, _ = _parts(rest)
            kept.packets.setdefault(step, []).append(_packets.decode(body))
        elif kind == b"i":
            step, number = _parts(rest)
            kept.ids.setdefault(step, []).append((number, body))
        elif kind == b"h":
            kept.life = int.from_bytes(body)
    return kept


def life_row(life: int) -> Row:
    return b"h", life.to_bytes(8)


def life_of(rows: list[tuple[bytes, bytes]]) -> int:
    return next((int.from_bytes(body) for key, body in rows if key == b"h"), 0)


def read_states(rows: list[tuple[bytes, bytes]]) -> dict[str, InletState]:
    """The numbers of every step, for those who only look."""
    return {key[1:].decode(): _states.decode(body) for key, body in rows if key[:1] == STATE_PREFIX}


def _packet_key(step: str, position: int) -> bytes:
    return b"p%b\0%b" % (step.encode(), position.to_bytes(8))


def _id_key(step: str, number: int) -> bytes:
    return b"i%b\0%b" % (step.encode(), number.to_bytes(8))


def _parts(rest: bytes) -> tuple[str, int]:
    return rest[:-9].decode(), int.from_bytes(rest[-8:])
