"""A failure with its history: the links are stored one by one, so that another failure adds one link."""

from typing import Any

from perdure.dialects.flow.state.failures import TRUNCATED, Envelope, failure
from perdure.dialects.flow.state.values import UNREAD, Cell
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.turn import Turn

LONGEST = 200
"""Links that are shown. Only a graph that fails in a cycle reaches this, and would grow without bound (MWL-518)."""

LARGE = 256 * 1024  # bytes
LONGEST_OF_LARGE = 20  # so many are always shown, however large they are


class FailureChain(Cell):
    """The links, the oldest first, each a failure without its `previous`; `is_cut` if older ones were dropped."""

    __slots__ = ("_size", "is_cut", "links")

    def __init__(self, links: tuple[Cell, ...], is_cut: bool = False, size: int | None = None) -> None:
        """`size`: of all links, in bytes, where that is known."""
        size = _size(links) if size is None else size
        longest = LONGEST_OF_LARGE if size > LARGE else LONGEST
        if len(links) + is_cut > longest:  # the marker counts as a link
            dropped, links, is_cut = links[: 1 - longest], links[1 - longest :], True
            size -= _size(dropped)
        self.links = links
        self.is_cut = is_cut
        self.data = UNREAD
        self._size = size

    def read(self, turn: Turn) -> Any:
        if self.data is UNREAD:
            turn.all_texts(link.payload for link in self.links)  # requested in one go
            self.data = join_links([link.read(turn) for link in self.links], self.is_cut)
        return self.data

    def head(self, turn: Turn) -> Any:
        return self.links[-1].read(turn)

    def is_same(self, other: Cell) -> bool:
        return self is other

    def to_payload(self, turn: Turn) -> Payload:
        return turn.keep(jsontext.encode(self.read(turn)))

    @property
    def size(self) -> int:
        return self._size

    def extend(self, links: tuple[Cell, ...]) -> "FailureChain":
        return FailureChain((*self.links, *links), self.is_cut, self._size + _size(links))


def _size(links: tuple[Cell, ...]) -> int:
    return sum(link.size for link in links)


def join_links(links: list[Envelope], is_cut: bool) -> Envelope:
    """The failure as the language shows it, from its links, the oldest first."""
    chain: Envelope | None = failure(TRUNCATED) if is_cut else None
    for link in links:
        chain = link if chain is None else {**link, "previous": chain}
    assert chain is not None
    return chain


def links_of(envelope: Envelope) -> list[Envelope]:
    """The failure and those behind it, the newest first."""
    links = [envelope]
    while isinstance(links[-1].get("previous"), dict):
        links.append(links[-1]["previous"])
    return links


def without_history(links: list[Envelope], is_all: bool) -> list[Envelope]:
    """Links as they are stored, the oldest first; the very oldest keeps its `previous`, which is not a failure."""
    last = len(links) - 1 if is_all else len(links)
    return [
        link if at == last else {name: value for name, value in link.items() if name != "previous"}
        for at, link in reversed(list(enumerate(links)))
    ]
