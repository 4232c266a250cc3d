"""Expression text with positions: where an offset is, and how to point at it.

Independent of the expression language: only lines, columns and carets.
"""

from bisect import bisect_right
from typing import Protocol

import msgspec


class Position(msgspec.Struct, frozen=True):
    """A place in a text. Lines and columns count from 1, columns by code point."""

    line: int
    column: int
    offset: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


_WIDEST = 100  # a longer line is shown as the part around the caret


class Source:
    """One expression as written."""

    __slots__ = ("_line_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._line_starts: list[int] | None = None

    def position(self, offset: int) -> Position:
        starts = self._starts()
        line = bisect_right(starts, offset)
        return Position(line, offset - starts[line - 1] + 1, offset)

    def fragment(self, start: int, end: int) -> str:
        """The text between two offsets, shortened in the middle when it is long."""
        text = self.text[start:end]
        return text if len(text) <= _WIDEST else f"{text[:60]} … {text[-30:]}"

    def point_at(self, offset: int) -> str:
        """Two lines: the line that contains `offset`, and a caret under it."""
        starts = self._starts()
        line = bisect_right(starts, offset)
        end = starts[line] - 1 if line < len(starts) else len(self.text)
        line_text, column = self.text[starts[line - 1] : end].rstrip("\r"), offset - starts[line - 1]
        if len(line_text) > _WIDEST:
            left = max(0, min(column - _WIDEST // 2, len(line_text) - _WIDEST))
            line_text, column = line_text[left : left + _WIDEST], column - left
        line_text = "".join(c if c.isprintable() else " " for c in line_text)
        return f" | {line_text}\n | {'.' * column}^"

    def _starts(self) -> list[int]:
        if self._line_starts is None:
            self._line_starts = [0, *(i + 1 for i, c in enumerate(self.text) if c == "\n")]
        return self._line_starts


# One problem at one place of a source text, with a picture that points at it.


class Spanned(Protocol):
    """Anything with a start and an end in the source."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class ExpressionProblem(msgspec.Struct, frozen=True):
    """One problem at one place."""

    message: str
    position: Position
    picture: str

    @classmethod
    def at(cls, source: Source, offset: int, message: str) -> "ExpressionProblem":
        return cls(message, source.position(offset), source.point_at(offset))

    def __str__(self) -> str:
        return f"{self.position}: {self.message}\n{self.picture}"
