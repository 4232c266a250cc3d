"""Parts of a text with their ranges, and positions in it."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from perdure.documents import Step

_ENCODINGS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
"""The codec, and the bytes of a unit."""


class NodeKind(StrEnum):
    SCALAR = "scalar"
    MAPPING = "mapping"
    SEQUENCE = "sequence"
    EMPTY = "empty"  # a value that nobody has written yet


@dataclass(slots=True, eq=False)
class Node:
    """A value. A member of a mapping has its name in `key`; the range of a scalar includes its quotes."""

    kind: NodeKind
    start: int
    end: int
    text: str = ""  # of a scalar: as it is read
    quote: str = ""  # `"`, `'`; `|` or `>` for a block
    key: "Node | None" = None
    step: Step | None = None  # from the node around it
    parent: "Node | None" = field(default=None, repr=False)
    children: "list[Node]" = field(default_factory=list, repr=False)
    has_colon: bool = True  # of a member; without one its name is still being written
    is_flow: bool = False  # in braces or brackets
    on_line_of_key: bool = False  # a member, whose value begins on the line of its name
    _values: dict[str, str] | None = field(default=None, repr=False)
    _counted: int = field(default=0, repr=False)  # children, when the values were collected

    def child(self, step: Step) -> "Node | None":
        return next((child for child in self.children if child.step == step), None)

    def values(self) -> dict[str, str]:
        """The members that are scalars. Collected once: each member asks for those beside it."""
        if self._values is None or self._counted != len(self.children):
            self._values = {str(child.step): child.text for child in self.children if child.kind is NodeKind.SCALAR}
            self._counted = len(self.children)
        return self._values

    def ancestors(self) -> "Iterator[Node]":
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> "Iterator[Node]":
        """This node and all below it, in the order of the text."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


class TextLines:
    """A text with its lines, and positions in it as editors count them: from 0, columns in units of an encoding."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset) - 1

    def line_start(self, offset: int) -> int:
        return self._starts[self.line_of(offset)]

    def line_end(self, offset: int) -> int:
        """Where the line ends, before its line break."""
        line = self.line_of(offset) + 1
        end = self._starts[line] - 1 if line < len(self._starts) else len(self.text)
        return end - 1 if end > offset and self.text[end - 1] == "\r" else end

    def column(self, offset: int) -> int:
        return offset - self.line_start(offset)

    def offset_at(self, line: int, character: int, encoding: str = "utf-16") -> int:
        """Where an editor's position is; the nearest place, if there is none."""
        if line >= len(self._starts):
            return len(self.text)
        start = self._starts[max(line, 0)]
        end = self.line_end(start)
        shown = self.text[start:end]
        if shown.isascii():
            return min(start + max(character, 0), end)
        codec, width = _ENCODINGS[encoding]
        before = shown.encode(codec, "surrogatepass")[: width * max(character, 0)]
        return start + len(before.decode(codec, "ignore"))

    def position_of(self, offset: int, encoding: str = "utf-16") -> tuple[int, int]:
        line = self.line_of(min(offset, len(self.text)))
        before = self.text[self._starts[line] : offset]
        if before.isascii():
            return line, len(before)
        codec, width = _ENCODINGS[encoding]
        return line, len(before.encode(codec, "surrogatepass")) // width

    def offset_of_place(self, line: int, column: int) -> int:
        """Of a line and a column, in characters, from 1."""
        if not 1 <= line <= len(self._starts):
            return len(self.text)
        start = self._starts[line - 1]
        return min(start + max(column - 1, 0), self.line_end(start))
