"""The places of all values in a text: from the same YAML events as the data, but only their marks are kept.

The text was read before, so nothing is validated here.
"""

from dataclasses import dataclass, field
from typing import Any

from yaml import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    YAMLError,
)
from yaml._yaml import CParser

from perdure.documents.paths import Step
from perdure.kernel.json_values.json_positions import line_and_column

Place = tuple[int, int]


@dataclass(slots=True)
class PlaceTree:
    """The place of one value, of its name if it is a member, and of the values inside it."""

    place: Place
    key: Place | None = None
    members: "dict[Step, PlaceTree]" = field(default_factory=dict)


def place_of_mark(mark: Any) -> Place:
    return mark.line + 1, mark.column + 1


def locate(text: str, index: int) -> PlaceTree:
    """The places of document `index` of a text."""
    try:
        return _locate(CParser(text), index)
    except YAMLError:  # JSON may contain escapes that YAML does not know; then only the beginning can be located
        return PlaceTree(line_and_column(text, len(text) - len(text.lstrip())))


def _locate(parser: Any, index: int) -> PlaceTree:
    anchors: dict[str, PlaceTree] = {}
    open_spots: list[_OpenContainer] = []
    documents = -1
    while True:
        event = parser.get_event()
        kind = type(event)
        if kind is MappingEndEvent or kind is SequenceEndEvent:
            closed = open_spots.pop()
            closed.add_merged_members()
            if not open_spots and documents == index:
                return closed.spot
            continue
        if kind is DocumentStartEvent:
            documents += 1
            anchors.clear()
        if kind is StreamEndEvent:
            return PlaceTree((1, 1))
        if kind not in (ScalarEvent, AliasEvent, MappingStartEvent, SequenceStartEvent):
            continue
        top = open_spots[-1] if open_spots else None
        if top is not None and top.awaits_key:
            top.take_key(event)
            continue
        spot = PlaceTree(place_of_mark(event.start_mark))
        if kind is AliasEvent:
            spot.members = anchors[event.anchor].members if event.anchor in anchors else {}
        elif event.anchor is not None:
            anchors[event.anchor] = spot
        if top is not None:
            top.put(spot)
        if kind is MappingStartEvent or kind is SequenceStartEvent:
            open_spots.append(_OpenContainer(spot, kind is MappingStartEvent))
        elif top is None and documents == index:
            return spot


class _OpenContainer:
    """A list or mapping whose end has not been parsed yet."""

    __slots__ = ("_key", "_merged", "awaits_key", "is_mapping", "spot")

    def __init__(self, spot: PlaceTree, is_mapping: bool) -> None:
        self.spot = spot
        self.is_mapping = self.awaits_key = is_mapping
        self._key: Any = None
        self._merged: list[PlaceTree] = []

    def take_key(self, event: Any) -> None:
        self._key = event
        self.awaits_key = False

    def put(self, spot: PlaceTree) -> None:
        if not self.is_mapping:
            self.spot.members[len(self.spot.members)] = spot
            return
        self.awaits_key = True
        name = getattr(self._key, "value", None)  # an alias has none, and no problem refers to it
        if name == "<<" and self._key.implicit[0]:
            self._merged.append(spot)
        elif isinstance(name, str):
            spot.key = place_of_mark(self._key.start_mark)
            self.spot.members[name] = spot

    def add_merged_members(self) -> None:
        for merged in self._merged:
            is_list = merged.members and all(isinstance(step, int) for step in merged.members)
            for source in merged.members.values() if is_list else (merged,):
                for name, spot in source.members.items():
                    self.spot.members.setdefault(name, spot)
