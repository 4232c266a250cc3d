"""Values inside a run: encoded once, decoded at most once per process, shared by reference and never changed.

An event carries a value as JSON text, as a reference to large text beside the log, or as the *name of a place*
that holds it already (`step.input`, `vars.x`), so that a value passing through many Steps is written once.
"""

from typing import Any, TypedDict

import msgspec

from perdure.dialects.flow.envelopes import EVALUATION_ERROR, Fault, failure
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn
from perdure.kernel.values import NULL, Payload, Ref


class Place(TypedDict):
    """Stands in an event for the value that a place of the frame holds already."""

    place: str


Carried = bytes | Ref | Place
"""As events carry a value."""

RISING = Place(place="rising")  # the Result in flight
FAILURE = Place(place="failure")  # the failure context
STEP_INPUT = Place(place="step.input")
SHAPED = Place(place="step.shaped")  # what a Step's `input` gave
FRAME_INPUT = Place(place="frame.input")
LANDED = Place(place="landed")  # what the task or child run that has just ended gave

UNREAD: Any = msgspec.UNSET


class Cell:
    """One value of the state. `data` is the decoded form, kept once somebody has read it."""

    __slots__ = ("data", "payload")

    def __init__(self, payload: Payload, data: Any = UNREAD) -> None:
        self.payload = payload
        self.data = data

    def read(self, turn: Turn) -> Any:
        if self.data is UNREAD:
            try:
                self.data = jsontext.decode(turn.text(self.payload))
            except RecursionError:
                raise Fault(failure(EVALUATION_ERROR, "the value is nested too deeply to be read")) from None
        return self.data


class Vars:
    """The variables of a frame. Binding is constant time; the object that expressions read is kept up to date."""

    __slots__ = ("_data", "_names", "_stale", "cells")

    def __init__(self, cells: dict[str, Cell] | None = None) -> None:
        self.cells = {} if cells is None else cells
        self._data: dict[str, Any] = {}
        self._names: dict[int, str] = {}  # identity of data → a variable that (perhaps still) holds them
        self._stale = dict.fromkeys(self.cells)  # ordered: what an expression makes of `vars` must not depend on hashes

    def bind(self, name: str, cell: Cell | None) -> None:
        """Bind a name, or unbind it with None."""
        if cell is None:
            self.cells.pop(name, None)
        else:
            self.cells[name] = cell
        self._stale[name] = None

    def read(self, turn: Turn) -> dict[str, Any]:
        for name in list(self._stale):
            cell = self.cells.get(name)
            if cell is None:
                self._data.pop(name, None)
            else:
                data = self._data[name] = cell.read(turn)
                self._names[id(data)] = name
            del self._stale[name]
        return self._data

    def name_of(self, data: Any) -> str | None:
        """The variable that holds these very data, not merely equal ones."""
        name = self._names.get(id(data))
        cell = None if name is None else self.cells.get(name)
        return name if cell is not None and cell.data is data else None


class Result(msgspec.Struct, gc=False, array_like=True):
    """How something ended: a value, or a failure envelope."""

    ok: bool
    cell: Cell

    def read(self, turn: Turn) -> Any:
        """The Result as the language shows it."""
        content = self.cell.read(turn)
        return {"type": "success", "value": content} if self.ok else content


def encode_hook(item: Any) -> Any:
    if isinstance(item, Cell):
        return item.payload
    if isinstance(item, Vars):
        return item.cells
    raise TypeError(f"{type(item).__name__} is no part of a snapshot")


def decode_hook(kind: type, item: Any) -> Any:
    if kind is Cell:
        return Cell(_payload(item))
    if kind is Vars:
        return Vars({name: Cell(_payload(payload)) for name, payload in item.items()})
    raise TypeError(f"{kind.__name__} is no part of a snapshot")


def _payload(item: Any) -> Payload:
    return item if isinstance(item, bytes) else Ref(*item)


def is_deeper(data: Any, levels: int) -> bool:
    """Whether containers are nested deeper than that; level by level, so that depth costs no stack."""
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
