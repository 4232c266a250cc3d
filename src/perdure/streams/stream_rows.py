"""The rows of a topology in its run's store: packets that are not acknowledged, and a row of numbers for each step.

    p STEP \\0 POSITION     a packet               i STEP \\0 NUMBER     the digest of an id that the step has published
    s STEP                 numbers of the step     h                    the life of the run that they belong to

Changes are collected until somebody takes them, and taken together: any set that was written is a consistent state. A
packet that is acknowledged before it was written is never written.
"""

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from perdure.streams.inlet import InletState, Packet

Row = tuple[bytes, bytes | None]
"""A key with its value; None: the row is removed."""

IDS_KEPT = 65_536
IDS_KEPT_IN_MEMORY = 4_096

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
    """The last ids that a step chose for what it published: a repetition is recognised (STR-060, 131)."""

    def __init__(self, is_durable: bool) -> None:
        self.is_durable = is_durable
        self._numbers: dict[bytes, int] = {}
        self._last = 0
        self.added: dict[int, bytes] = {}
        self.removed: list[int] = []

    def add(self, id: str) -> bool:
        """Remember an id; False if it is known."""
        digest = sha256(id.encode()).digest()[:16]
        if digest in self._numbers:
            return False
        self._last += 1
        self._numbers[digest] = self._last
        if self.is_durable:
            self.added[self._last] = digest
        while len(self._numbers) > (IDS_KEPT if self.is_durable else IDS_KEPT_IN_MEMORY):
            oldest = next(iter(self._numbers))
            number = self._numbers.pop(oldest)
            if self.is_durable and self.added.pop(number, None) is None:
                self.removed.append(number)
        return True

    def restore(self, numbered: list[tuple[int, bytes]]) -> None:
        for number, digest in sorted(numbered):
            self._numbers[digest] = number
            self._last = number


class RowBuffer:
    def __init__(self) -> None:
        self._changed: dict[bytes, Packet | None] = {}
        self._stored: set[bytes] = set()
        self._touched: set[str] = set()
        self._ids: list[Row] = []

    def put(self, step: str, packet: Packet) -> None:
        self._changed[_packet_key(step, packet.position)] = packet
        self._touched.add(step)

    def remove(self, step: str, position: int) -> None:
        key = _packet_key(step, position)
        if key in self._stored:
            self._changed[key] = None
        else:
            self._changed.pop(key, None)

    def touch(self, step: str) -> None:
        """The numbers of a step have changed."""
        self._touched.add(step)

    def note_ids(self, windows: Mapping[str, IdWindow]) -> None:
        for step, window in windows.items():
            if window.added or window.removed:
                self._ids += [(_id_key(step, number), digest) for number, digest in window.added.items()]
                self._ids += [(_id_key(step, number), None) for number in window.removed]
                window.added, window.removed = {}, []

    def take(self, states: Mapping[str, InletState]) -> list[Row]:
        rows: list[Row] = self._ids
        self._ids = []
        for key, packet in self._changed.items():
            if packet is None:
                self._stored.discard(key)
                rows.append((key, None))
            else:
                self._stored.add(key)
                rows.append((key, _encode(packet)))
        rows += [(STATE_PREFIX + step.encode(), _encode(states[step])) for step in self._touched]
        self._changed, self._touched = {}, set()
        return rows

    def load(self, rows: list[tuple[bytes, bytes]]) -> KeptRows:
        kept = KeptRows({}, {}, {})
        for key, body in sorted(rows):
            kind, rest = key[:1], key[1:]
            if kind == b"s":
                kept.states[rest.decode()] = _states.decode(body)
            elif kind == b"p":
                step, _ = _parts(rest)
                kept.packets.setdefault(step, []).append(_packets.decode(body))
                self._stored.add(key)
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
