"""Values inside a run: encoded once, decoded at most once per process, shared by reference and never changed.

An event carries a value as JSON text, as a reference to large text beside the log, or as the *name of a place* that
already holds it (`step.input`, `vars.x`), so that a value passing through many Steps is written once. A list or a text
that has grown is carried as the place of its previous value and the addition; so is the history of a failure.
"""

from typing import Any, TypedDict

import msgspec

from perdure.dialects.flow.state.failures import EVALUATION_ERROR, Fault, failure
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.growth import Buffer, Reader, texts_in
from perdure.kernel.json_values.values import NULL, Payload, Ref
from perdure.kernel.turn import Turn
from perdure.kernel.turn_budget import pay, pay_for_each


class Place(TypedDict, total=False):
    """Stands in an event for the value that a `place` of the frame holds already.

    Or for one that `grows` from what a place holds: by what was `added` at its end. `sealed` is the text of all that
    it has grown by before and that is not beside the log yet. Or for a failure with its history: the `links` of it, the
    oldest first, behind which is what the place holds that it `follows`, if any.
    """

    place: str
    grows: str
    added: Payload
    sealed: Ref
    follows: str
    links: list[Payload]


Carried = bytes | Ref | Place
"""As events carry a value."""

RISING = Place(place="rising")  # the Result in flight
FAILURE = Place(place="failure")  # the failure context
STEP_INPUT = Place(place="step.input")
SHAPED = Place(place="step.shaped")  # the value of a Step's `input`
FRAME_INPUT = Place(place="frame.input")
ARRIVAL = Place(place="landed")  # the result of the task or child run that has just ended

UNREAD: Any = msgspec.UNSET

BYTES_PER_READ_UNIT = 16  # bytes of a large value that was read before, per unit of work

Measure = tuple[bool, int, int]
"""Whether it is a text, how many elements it has, and how many characters the texts among them."""


class Cell:
    """One value of the state. `data` is the decoded form, kept after the first read."""

    __slots__ = ("data", "payload")

    def __init__(self, payload: Payload, data: Any = UNREAD) -> None:
        self.payload = payload
        self.data = data

    def read(self, turn: Turn) -> Any:
        if self.data is UNREAD:
            try:
                self.data = jsontext.decode(turn.text(self.payload))
            except RecursionError:
                raise _too_deep() from None
        elif type(self.payload) is Ref:  # the reader may record it again
            pay(self.payload.size // BYTES_PER_READ_UNIT)
        return self.data

    def element(self, turn: Turn, index: int) -> Any:
        """One element of a list: reading all of them in turn costs what reading the list does."""
        data = self.data
        if data is UNREAD:
            data = self.read(turn)
        elif type(self.payload) is Ref:
            pay(self.payload.size // (BYTES_PER_READ_UNIT * len(data)))
        return data[index]

    def head(self, turn: Turn) -> Any:
        """Of a failure, at least its members without the history."""
        return self.read(turn)

    def holds(self, data: Any) -> bool:
        """Whether it holds the same object, not merely equal data."""
        return self.data is data

    def is_same(self, other: "Cell") -> bool:
        """Whether both hold the same text; values that have grown or have a history are only the same as themselves."""
        return type(other) is Cell and self.payload == other.payload

    def to_payload(self, turn: Turn) -> Payload:
        """The value as an event or a task may carry it."""
        return self.payload

    @property
    def size(self) -> int:
        return self.payload.size if isinstance(self.payload, Ref) else len(self.payload)

    def measure(self, turn: Turn) -> "Measure | None":
        """The measure of a list or a text; None for anything else."""
        data = self.read(turn)
        if isinstance(data, str):
            return True, 1, len(data)
        return (False, len(data), texts_in(data)) if isinstance(data, list) else None

    @property
    def unsealed(self) -> list[Payload]:
        """The pieces it has grown by, to be stored beside the log as one text now that they are large."""
        return []

    def grow(self, added: Payload, sealed: Ref | None = None) -> "GrowingValue":
        return GrowingValue(Buffer([self.payload]).add(1, added, sealed), 2)


def _too_deep() -> Fault:
    return Fault(failure(EVALUATION_ERROR, "the value is nested too deeply to be read"))


class GrowingValue(Cell):
    """A list or a text, as the first pieces of a buffer that it shares with its earlier and later values."""

    __slots__ = ("_buffer", "count")

    def __init__(self, buffer: Buffer, count: int) -> None:
        self._buffer = buffer
        self.count = count
        self.data = UNREAD  # its own copy, once it is no longer the latest value

    @property
    def buffer(self) -> Buffer:
        self._buffer = self._buffer.owner(self.count)
        return self._buffer

    def decoded(self, turn: Turn) -> Buffer:
        buffer = self.buffer
        try:
            buffer.decode(turn.all_texts)
        except RecursionError:
            raise _too_deep() from None
        return buffer

    def read(self, turn: Turn) -> Any:
        if self.data is not UNREAD:
            return self.data
        buffer = self.decoded(turn)
        value = buffer.value(self.count)
        if buffer.is_text or self.count < len(buffer.pieces):
            self.data = value
        return value

    def element(self, turn: Turn, index: int) -> Any:
        return self.read(turn)[index]

    def holds(self, data: Any) -> bool:
        return self.data is data or (self.data is UNREAD and self.buffer.is_latest(self.count, data))

    def is_same(self, other: Cell) -> bool:
        return self is other

    def to_payload(self, turn: Turn) -> Payload:
        return turn.keep(self.text(turn.all_texts))

    def text(self, read: Reader) -> bytes:
        return self.buffer.text(self.count, read)

    @property
    def size(self) -> int:
        return self.buffer.size(self.count)

    def measure(self, turn: Turn) -> "Measure | None":
        buffer = self.decoded(turn)
        return bool(buffer.is_text), buffer.elements(self.count), buffer.weight(self.count)

    @property
    def unsealed(self) -> list[Payload]:
        return self.buffer.unsealed(self.count)

    def grow(self, added: Payload, sealed: Ref | None = None) -> "GrowingValue":
        return GrowingValue(self.buffer.add(self.count, added, sealed), self.count + 1)


class Vars:
    """The variables of a frame. Binding is constant time; the object that expressions read is kept up to date."""

    __slots__ = ("_data", "_grown", "_names", "_stale", "cells")

    def __init__(self, cells: dict[str, Cell] | None = None) -> None:
        self.cells = {} if cells is None else cells
        self._data: dict[str, Any] = {}
        self._names: dict[int, str] = {}  # identity of data → a variable that (perhaps still) holds them
        self._stale = dict.fromkeys(self.cells)  # ordered: results over `vars` must not depend on hashes
        self._grown = {name: None for name, cell in self.cells.items() if isinstance(cell, GrowingValue)}

    def bind(self, name: str, cell: Cell | None) -> None:
        """Bind a name, or unbind it with None."""
        if cell is None:
            self.cells.pop(name, None)
        else:
            self.cells[name] = cell
        self._stale[name] = None
        if isinstance(cell, GrowingValue):
            self._grown[name] = None
        else:
            self._grown.pop(name, None)

    def read(self, turn: Turn, names: frozenset[str] | None = None) -> dict[str, Any]:
        """All variables, or at least those in `names`: a growing text is only joined if it is read."""
        for name in list(self._stale):
            cell = self.cells.get(name)
            if name in self._grown:
                self._data.setdefault(name)  # keeps its order; its value is set below
            elif cell is None:
                self._data.pop(name, None)
            else:
                self._put(name, cell.read(turn))
            del self._stale[name]
        pay_for_each(len(self._grown), 10)
        for name in self._grown:
            grown = self.cells[name]
            assert isinstance(grown, GrowingValue)
            if names is None or name in names or not grown.decoded(turn).is_text:
                self._put(name, grown.read(turn))
        return self._data

    def _put(self, name: str, data: Any) -> None:
        before = self._data.get(name, UNREAD)
        if data is not before:
            self._names.pop(id(before), None)
            self._data[name] = data
            self._names[id(data)] = name

    def name_of(self, data: Any) -> str | None:
        """The variable that holds this very object, not merely equal data."""
        name = self._names.get(id(data))
        cell = None if name is None else self.cells.get(name)
        return name if cell is not None and cell.holds(data) else None


class Result(msgspec.Struct, gc=False, array_like=True):
    """How something ended: a value, or a failure envelope."""

    ok: bool
    cell: Cell

    def read(self, turn: Turn) -> Any:
        """The Result as the language shows it."""
        content = self.cell.read(turn)
        return {"type": "success", "value": content} if self.ok else content


def is_deeper(data: Any, levels: int) -> bool:
    """Whether containers are nested deeper than that; level by level, without recursion."""
    level = [data]
    for _ in range(levels):
        level = [
            inside
            for item in level
            if isinstance(item, dict | list)
            for inside in (item.values() if isinstance(item, dict) else item)
            if isinstance(inside, dict | list)
        ]
        if not level:
            return False
    return True


NOTHING = Cell(NULL, None)
