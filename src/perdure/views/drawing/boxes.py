"""What a drawing says in each box, frame and label: its lines of text, cut to size, and how much room they take.

Widths are those of a wide sans-serif font, because the font of the reader is not known: text may be narrower than its
box, never wider.
"""

import unicodedata
from dataclasses import dataclass

from perdure.kernel.graphs.graph import Edge, Graph, Node, Role
from perdure.views.drawing.frames import Box, Drawing, Line, draw
from perdure.views.drawing.layered import Size

TITLE, SMALL = 13.0, 11.0  # font sizes
LINE_HEIGHT = {TITLE: 17.0, SMALL: 14.0}
WIDEST_TITLE, WIDEST_NOTE, WIDEST_LABEL = 210.0, 230.0, 170.0
MOST_NOTES = 5
ICON = 15.0  # the room of a sign before a line

_NARROW = frozenset("ijl.,:;'|!()[]{}/\\ ·ftr-`\"")
_WIDE = frozenset("mwMW@%—…")


@dataclass(frozen=True, slots=True)
class TextLine:
    text: str
    size: float = SMALL
    style: str = ""  # `title`, `kind`, `note` or `status`


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What a run made of a node: a word, and a line that says it with numbers."""

    word: str
    line: str


@dataclass(slots=True)
class Picture:
    """A graph ready to be painted."""

    graph: Graph
    drawing: Drawing
    texts: dict[str, list[TextLine]]
    labels: list[list[str]]
    frames: frozenset[str]


def width_of(text: str, size: float) -> float:
    return sum(_width(letter) for letter in text) * size


def _width(letter: str) -> float:
    if letter in _NARROW:
        return 0.42
    if letter in _WIDE or unicodedata.east_asian_width(letter) in "WF":
        return 1.02
    return 0.72 if letter.isupper() else 0.65


def clean(text: str) -> str:
    """One line that any reader of XML accepts and that shows what it contains."""
    letters = (" " if letter.isspace() else letter for letter in text)
    shown = "".join(
        letter if letter.isprintable() and ord(letter) not in (0xFFFE, 0xFFFF) else "�" for letter in letters
    )
    return " ".join(shown.split())


def wrapped(text: str, widest: float, size: float, most: int) -> list[str]:
    """At most so many lines; what does not fit is cut, and `…` says so."""
    rest = clean(text)
    lines: list[str] = []
    while rest and len(lines) < most:
        if width_of(rest, size) <= widest:
            lines.append(rest)
            break
        fitting = 1
        while fitting < len(rest) and width_of(rest[: fitting + 1], size) <= widest:
            fitting += 1
        if len(lines) == most - 1:
            lines.append(rest[: max(1, fitting - 1)].rstrip() + "…")
            break
        end = _break(rest, fitting)
        lines.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return lines


def _break(text: str, fitting: int) -> int:
    """Behind the last blank or sign that lets a line end, if that leaves a fair part of it."""
    for at in range(fitting, fitting // 2, -1):
        if text[at - 1] in " /._-,:&|" or text[at : at + 1] == " ":
            return at
    return fitting


def compose(graph: Graph, statuses: dict[str, NodeStatus] | None = None) -> Picture:
    """Texts, sizes and places of everything in a graph; with statuses, of a run."""
    parents = {node.parent for node in graph.nodes}
    frames = frozenset(node.id for node in graph.nodes if node.id in parents)
    texts = {node.id: _lines(node, node.id in frames, (statuses or {}).get(node.id)) for node in graph.nodes}
    labels = [wrapped(edge.label, WIDEST_LABEL, SMALL, 3) for edge in graph.edges]
    boxes = [Box(node.id, _size(node, texts[node.id], node.id in frames), node.parent) for node in graph.nodes]
    drawing = draw(boxes, [_line(edge, label) for edge, label in zip(graph.edges, labels, strict=True)])
    return Picture(graph, drawing, texts, labels, frames)


def _line(edge: Edge, label: list[str]) -> Line:
    if not label:
        return Line(edge.source, edge.target)
    width = max(width_of(text, SMALL) for text in label) + 8
    return Line(edge.source, edge.target, (width, len(label) * LINE_HEIGHT[SMALL] + 2))


def _lines(node: Node, is_frame: bool, status: NodeStatus | None) -> list[TextLine]:
    is_said = node.kind in ("", node.label) or any(note.startswith(node.kind) for note in node.notes)
    kind = [] if is_said else [TextLine(clean(node.kind), SMALL, "kind")]
    titles = [TextLine(text, TITLE, "title") for text in wrapped(node.label, WIDEST_TITLE, TITLE, 1 if is_frame else 2)]
    widest = WIDEST_NOTE * (2 if is_frame else 1)
    notes = [TextLine(wrapped(note, widest, SMALL, 1)[0], SMALL, "note") for note in node.notes if clean(note)]
    if len(notes) > MOST_NOTES:
        notes = [*notes[: MOST_NOTES - 1], TextLine(f"and {len(notes) - MOST_NOTES + 1} more", SMALL, "note")]
    status_lines = [TextLine(status.line, SMALL, "status")] if status is not None and status.line else []
    return [*(titles or [TextLine("(unnamed)", TITLE, "title")]), *kind, *notes, *status_lines]


def _size(node: Node, lines: list[TextLine], is_frame: bool) -> Size:
    widths = [width_of(line.text, line.size) + (ICON if line.style == "status" else 0.0) for line in lines]
    height = sum(LINE_HEIGHT[line.size] for line in lines)
    if is_frame:
        return max(widths), height + 2
    if node.role is Role.START and len(lines) == 1:
        return max(widths) + 28, height + 8
    return max(110.0, max(widths) + 26), height + 18
