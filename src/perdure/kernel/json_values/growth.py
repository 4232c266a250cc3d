"""Values that grow: a list or a text as a sequence of pieces, each the JSON text of what was added.

All holders of some length of a value share one `Buffer`. Adding at its end takes constant time; a holder of an older
length keeps that. Adding behind an older length takes the buffer over: the pieces beyond go to their remaining holders,
and only these copy, when they read.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_values import join_texts
from perdure.kernel.json_values.values import Payload, Ref, digest

Reader = Callable[[list[Payload]], list[bytes]]
"""Returns the texts of many payloads; asks for those that are not in memory."""

PIECE_BYTES = 64 * 1024
"""Texts that have grown by this much are put beside the log once, and referred to from then on."""


class Buffer:
    __slots__ = ("_ends", "_items", "_moved", "_seals", "_sizes", "_weights", "is_text", "pieces")

    def __init__(self, pieces: list[Payload]) -> None:
        self.pieces = pieces
        self.is_text: bool | None = None  # known after the first read
        self._sizes = [0, *accumulate(map(_size, pieces))]
        self._items: list[Any] = []  # the elements of a list, the parts of a text; decoded on demand
        self._ends: list[int] = [0]  # how many of them there are after each decoded piece
        self._weights: list[int] = [0]  # characters of the texts among them
        # Pieces from, to: together they are this text beside the log.
        self._seals = [(at, at + 1, piece) for at, piece in enumerate(pieces) if isinstance(piece, Ref)]
        # Taken over: by which buffer, from which piece on, and the pieces beyond.
        self._moved: tuple[Buffer, int, list[Payload]] | None = None

    def add(self, count: int, piece: Payload, sealed: Ref | None = None) -> "Buffer":
        """The buffer in which `piece` follows the first `count`; `sealed` is the text of those not sealed yet."""
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
        """Only if it is exactly that text: two values that grow from one may both have put it beside the log."""
        first = self._unsealed(count)
        texts = [piece for piece in self.pieces[first:count] if isinstance(piece, bytes)]
        if texts and digest(joined(texts)) == sealed.digest:
            self._seals.append((first, count, sealed))

    def owner(self, count: int) -> "Buffer":
        """The buffer that now has the first `count` pieces."""
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
        """Takes time in proportion to the pieces beyond, which are few where growth starts over."""
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
        """Of the first `count` pieces, in bytes of JSON, approximately."""
        return self._sizes[count]

    def elements(self, count: int) -> int:
        return self._ends[count]

    def weight(self, count: int) -> int:
        return self._weights[count]

    def decode(self, read: Reader) -> None:
        """Decode what was added since the last read."""
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
        """The first `count` pieces, decoded before; for a list with all pieces the list itself, which will grow."""
        if self.is_text:
            return "".join(self._items[: self._ends[count]])
        return self._items if count == len(self.pieces) else self._items[: self._ends[count]]

    def is_latest(self, count: int, value: Any) -> bool:
        """Whether these are all pieces of a list."""
        return value is self._items and count == len(self.pieces) == len(self._ends) - 1

    def text(self, count: int, read: Reader) -> bytes:
        """The JSON text of the first `count` pieces."""
        return joined(read(self.pieces[:count]))

    def unsealed(self, count: int) -> list[Payload]:
        """The pieces to put beside the log as one, if they are large enough by now."""
        first = self._unsealed(count)
        if self._sizes[count] - self._sizes[first] < PIECE_BYTES:
            return []
        return self.pieces[first:count]

    def _unsealed(self, count: int) -> int:
        return min(self._seals[-1][1], count) if self._seals else 0

    def frozen(self, count: int) -> list[Payload]:
        """As in a snapshot: sealed pieces by reference, the rest as one text."""
        payloads: list[Payload] = []
        at = 0
        for first, last, ref in self._seals:
            if last <= count:
                payloads += _join_pieces(self.pieces[at:first])
                payloads.append(ref)
                at = last
        return payloads + _join_pieces(self.pieces[at:count])


def texts_in(items: list[Any]) -> int:
    """Characters of the texts in a list."""
    return sum(len(item) for item in items if isinstance(item, str))


def joined(texts: list[bytes]) -> bytes:
    """The JSON text of a list or text made of these parts, in order."""
    if texts and texts[0].lstrip()[:1] == b'"':
        return join_texts((text.strip()[1:-1] for text in texts), b"", b'""')
    return join_texts(inner for text in texts if (inner := text.strip()[1:-1].strip()))


def _join_pieces(pieces: list[Payload]) -> list[Payload]:
    return [joined([piece for piece in pieces if isinstance(piece, bytes)])] if pieces else []


def _size(piece: Payload) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.size
