"""One document: its data, and the place of each part in the text.

Places are found by parsing the text again when the first one is needed: most documents have no problem to point at.
This module does not know what the data mean.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perdure.documents.paths import Path, Step, spell
from perdure.kernel.documents.problems import Problem, Severity

if TYPE_CHECKING:
    from perdure.documents.positions import PlaceTree


@dataclass(slots=True)
class Document:
    """Plain data: dict, list, str, int, float, bool, None. Parts that are repeated by an alias are the same object."""

    data: Any
    text: str = field(repr=False)
    index: int = 0  # among the documents of the text, empty ones counted
    inside: Path = ()  # where the data are, in a document that holds several
    _root: "PlaceTree | None" = field(default=None, init=False, repr=False, compare=False)

    def part(self, *path: Step) -> "Document":
        """A document inside this one. Its problems are told with their whole path."""
        data = self.data
        for step in path:
            data = data[step]
        return Document(data, self.text, self.index, (*self.inside, *path))

    def place_of(self, path: Path = ()) -> tuple[int, int]:
        """Line and column (from 1) of the value at `path`; of the nearest part around it, if there is none."""
        return self._places_at(path).place

    def place_of_key(self, path: Path) -> tuple[int, int]:
        """Line and column of the member's name; of the value itself in a list or at the root."""
        spot = self._places_at(path)
        return spot.key or spot.place

    def problem(
        self, code: str, message: str, path: Path = (), *, hint: str = "", severity: Severity = Severity.ERROR
    ) -> Problem:
        """A problem with the value at `path`."""
        line, column = self.place_of(path)
        return Problem(code, message, spell((*self.inside, *path)), line, column, hint, severity)

    def problem_of_key(
        self, code: str, message: str, path: Path, *, hint: str = "", severity: Severity = Severity.ERROR
    ) -> Problem:
        """A problem with the name of the member at `path`: it is unknown, or not allowed here."""
        line, column = self.place_of_key(path)
        return Problem(code, message, spell((*self.inside, *path)), line, column, hint, severity)

    def _places_at(self, path: Path) -> "PlaceTree":
        if self._root is None:
            from perdure.documents.positions import locate

            self._root = locate(self.text, self.index)
        spot = self._root
        for step in (*self.inside, *path):
            inner = spot.members.get(step)
            if inner is None:
                break
            spot = inner
        return spot
