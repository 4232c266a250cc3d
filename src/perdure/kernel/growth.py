"""Values that grow: a list or a text as a sequence of pieces, each the JSON text of what was added.

Everybody who holds some length of a value shares one `Buffer`. Adding at its end is constant; who holds an older length
keeps it. Adding behind an older length takes the buffer over: what was added beyond goes into the hands of those who
still hold it, and only they copy, should they ever read.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from perdure.kernel import jsontext
from perdure.kernel.values import Payload, Ref, digest

Reader = Callable[[list[Payload]], list[bytes]]
"""The texts of many payloads; asks for those that are not at hand."""

PIECE_BYTES = 64 * 1024
"""Texts that have grown so long lie beside the log once, and are referred to from then on."""


class Buffer:
    __slots__ = ("_ends", "_items", "_moved", "_seals", "_sizes", "_weights", "is_text", "pieces")

    def __init__(self, pieces: list[Payload]) -> None:
        self.pieces = pieces
        self.is_text: bool | None = None  # known once something was read
        self._sizes = [0, *accumulate(map(_size, pieces))]
        self._items: list[Any] = []  # the elements of a list, the parts of a text; decoded when somebody reads
        self._ends: list[int] = [0]  # how many of them there are after each decoded piece
        self._weights: list[int] = [0]  # characters of the texts among them
        # Pieces from, to: together they are this text beside the log.
        self._seals = [(at, at + 1, piece) for at, piece in enumerate(pieces) if isinstance(piece, Ref)]
        # Taken over: by whom, from where on, and what was behind.
        self._moved: tuple[Buffer, int, list[Payload]] | None = None

    def add(self, count: int, piece: Payload, sealed: Ref | None = None) -> "Buffer":
        """The buffer in which `piece` follows upon the first `count`; `sealed` is the text of those not sealed yet."""
        buffer = self.owner(count)
        if count < len(buffer.pieces):
            buffer = buffer._taken_over(count)
        if sealed is not None:
            buffer._seal(count, sealed)
        if isinstance(piece, Ref):
            buffer._seals.append((count, count + 1, piece))
        buffer.pieces.append(piece)
        buffer._sizes.append(buffer._sizes[-1] + _size(piece))
        return buffer

    def _seal(self, count: int, sealed: Ref) -> None:
        """Only what is that very text: two who grow out of one value may both have put it beside the log."""
        first = self._unsealed(count)
        texts = [piece for piece in self.pieces[first:count] if isinstance(piece, bytes)]
        if texts and digest(joined(texts)) == sealed.digest:
            self._seals.append((first, count, sealed))

    def owner(self, count: int) -> "Buffer":
        """Who has the first `count` pieces now."""
        buffer = self
        while buffer._moved is not None:
            target, shared, _ = buffer._moved
            if count > shared:
                return Buffer(self._first(count))
            buffer = target
        return buffer

    def _first(self, count: int) -> list[Payload]:
        tails: list[list[Payload]] = []
        buffer = self
        while buffer._moved is not None:
            buffer, shared, behind = buffer._moved
            if count > shared:
                tails.append(behind[: count - shared])
                count = shared
        pieces = buffer.pieces[:count]
        for tail in reversed(tails):
            pieces += tail
        return pieces

    def _taken_over(self, count: int) -> "Buffer":
        """As long as what lies behind, which is little where somebody starts over."""
        heir = Buffer([])
        heir.is_text = self.is_text
        heir.pieces, heir._sizes, heir._items = self.pieces, self._sizes, self._items
        heir._ends, heir._weights, heir._seals = self._ends, self._weights, self._seals
        self._moved = (heir, count, self.pieces[count:])
        self.pieces, self._items = [], []
        del heir.pieces[count:], heir._sizes[count + 1 :], heir._ends[count + 1 :], heir._weights[count + 1 :]
        del heir._items[heir._ends[-1] :]
        while heir._seals and heir._seals[-1][1] > count:
            heir._seals.pop()
        return heir

    def size(self, count: int) -> int:
        """Of the first `count` pieces, in bytes of JSON, roughly."""
        return self._sizes[count]

    def elements(self, count: int) -> int:
        return self._ends[count]

    def weight(self, count: int) -> int:
        return self._weights[count]

    def decode(self, read: Reader) -> None:
        """Decode what was added since somebody read last."""
        done = len(self._ends) - 1
        if done == len(self.pieces):
            return
        for text in read(self.pieces[done:]):
            value = jsontext.decode(text)
            if isinstance(value, str):
                self.is_text = True
                self._items.append(value)
                weight = len(value)
            else:
                self.is_text = False
                self._items += value
                weight = texts_in(value)
            self._ends.append(len(self._items))
            self._weights.append(self._weights[-1] + weight)

    def value(self, count: int) -> Any:
        """The first `count` pieces, decoded before; of a list with all pieces the very list, which will grow."""
        if self.is_text:
            return "".join(self._items[: self._ends[count]])
        return self._items if count == len(self.pieces) else self._items[: self._ends[count]]

    def is_latest(self, count: int, value: Any) -> bool:
        """Whether these are the first `count` pieces of a list, and all there are."""
        return value is self._items and count == len(self.pieces) == len(self._ends) - 1

    def text(self, count: int, read: Reader) -> bytes:
        """The JSON text of the first `count` pieces."""
        return joined(read(self.pieces[:count]))

    def unsealed(self, count: int) -> list[Payload]:
        """The pieces to be put beside the log as one, if they have become that much."""
        first = self._unsealed(count)
        if self._sizes[count] - self._sizes[first] < PIECE_BYTES:
            return []
        return self.pieces[first:count]

    def _unsealed(self, count: int) -> int:
        return min(self._seals[-1][1], count) if self._seals else 0

    def frozen(self, count: int) -> list[Payload]:
        """As a snapshot has it: what was sealed by reference, the rest as one text."""
        payloads: list[Payload] = []
        at = 0
        for first, last, ref in self._seals:
            if last <= count:
                payloads += _as_one(self.pieces[at:first])
                payloads.append(ref)
                at = last
        return payloads + _as_one(self.pieces[at:count])


def texts_in(items: list[Any]) -> int:
    """Characters of the texts among the elements of a list."""
    return sum(len(item) for item in items if isinstance(item, str))


def joined(texts: list[bytes]) -> bytes:
    """The JSON text of a list or text that was made of these, one after the other."""
    if texts and texts[0].lstrip()[:1] == b'"':
        return b'"' + b"".join(text.strip()[1:-1] for text in texts) + b'"'
    return b"[" + b",".join(inner for text in texts if (inner := text.strip()[1:-1].strip())) + b"]"


def _as_one(pieces: list[Payload]) -> list[Payload]:
    return [joined([piece for piece in pieces if isinstance(piece, bytes)])] if pieces else []


def _size(piece: Payload) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.size
