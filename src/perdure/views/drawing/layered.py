"""One layered drawing: boxes, the pieces of lines between them, and ports at the top and the bottom."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perdure.views.drawing.coordinates import assign_x
from perdure.views.drawing.crossings import reduce_crossings
from perdure.views.drawing.layering import Layers, Link, Vertex, build_layers

Point = tuple[float, float]
Size = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> "Rectangle":
        return Rectangle(self.x + x, self.y + y, self.width, self.height)


@dataclass(frozen=True, slots=True)
class LinePiece:
    """The part of a line in one frame: between two children, or a child and a port. An end that is None is a port."""

    line: int
    upper: str | None
    lower: str | None
    has_label: bool
    is_turned: bool


@dataclass(slots=True)
class Content:
    """What is in a frame, drawn for itself."""

    size: Size = (0.0, 0.0)
    places: dict[str, Rectangle] = field(default_factory=dict)
    routes: dict[int, list[Point]] = field(default_factory=dict)  # by line, from top to bottom
    labels: dict[int, Rectangle] = field(default_factory=dict)
    ports: dict[int, float] = field(default_factory=dict)  # by line
    has_title: bool = False  # room for the frame's title is among the ports at the top


@dataclass(frozen=True, slots=True)
class Child:
    """A box or a frame that is drawn already. `ports` of a frame: where lines pass its border, from its left."""

    id: str
    size: Size
    loop_width: float
    ports: Mapping[int, float] | None = None

    def offset(self, line: int) -> float | None:
        """Where a line that begins or ends inside passes the border, from the middle."""
        if self.ports is None or line not in self.ports:
            return None
        return self.ports[line] - self.size[0] / 2


class LayeredDrawing:
    """Some children of a frame and the pieces between them: one layered drawing."""

    def __init__(
        self,
        children: Sequence[Child],
        pieces: Sequence[LinePiece],
        labels: Mapping[int, Size | None],
        title: Size,
    ) -> None:
        self.children = children
        self.pieces = pieces
        self.label_sizes = labels
        self.items = [
            Vertex(child.size[0] / 2, child.size[0] / 2 + child.loop_width, child.size[1], is_bend=False)
            for child in children
        ]
        self.numbers = {child.id: number for number, child in enumerate(children)}
        self.tops = [self._add(Vertex()) for piece in pieces if piece.upper is None]
        self.bottoms = [self._add(Vertex()) for piece in pieces if piece.lower is None]
        self.port_of: dict[int, int] = {}
        ports = iter(self.tops), iter(self.bottoms)
        self.links = [self._link(piece, *ports) for piece in pieces]
        if self.tops:
            self.tops.append(self._add(Vertex(0.0, *title, is_bend=False, is_pinned=True)))
        self.layers: Layers = build_layers(self.items, self.links, self.tops, self.bottoms)
        reduce_crossings(self.layers)
        self.x = assign_x(self.layers)
        low = min((x - vertex.left for x, vertex in zip(self.x, self.layers.vertices, strict=True)), default=0.0)
        self.x = [x - low for x in self.x]

    def _add(self, vertex: Vertex) -> int:
        self.items.append(vertex)
        return len(self.items) - 1

    def _link(self, piece: LinePiece, tops: Iterator[int], bottoms: Iterator[int]) -> Link:
        ends: list[tuple[int, float]] = []
        for child, ports in ((piece.upper, tops), (piece.lower, bottoms)):
            if child is None:
                ends.append((next(ports), 0.0))
                self.port_of[piece.line] = ends[-1][0]
            else:
                number = self.numbers[child]
                ends.append((number, self.children[number].offset(piece.line) or 0.0))
        label = self.label_sizes[piece.line] if piece.has_label else None
        (upper, upper_offset), (lower, lower_offset) = ends
        if piece.is_turned:
            return Link(lower, upper, label, lower_offset, upper_offset, is_turned=True)
        return Link(upper, lower, label, upper_offset, lower_offset)

    def content(self) -> Content:
        layers, vertices = self.layers, self.layers.vertices
        heights = [max((vertices[vertex].height for vertex in row), default=0.0) for row in layers.rows]
        ys = [0.0]
        for row, height in enumerate(heights[:-1]):
            ys.append(ys[-1] + height + self._gap(row))
        bottom = ys[-1] + heights[-1] if heights else 0.0
        width = max((x + vertex.right for x, vertex in zip(self.x, vertices, strict=True)), default=0.0)
        content = Content((width, bottom))
        row_of = {vertex: row for row, members in enumerate(layers.rows) for vertex in members}
        for number, child in enumerate(self.children):
            size = child.size
            y = ys[row_of[number]] + (heights[row_of[number]] - size[1]) / 2
            content.places[child.id] = Rectangle(self.x[number] - size[0] / 2, y, *size)
        attached = self._attachments()
        for number, (piece, chain) in enumerate(zip(self.pieces, layers.chains, strict=True)):
            points: list[Point] = []
            for at, vertex in enumerate(chain):
                x = attached.get((number, vertex), self.x[vertex])
                top, low = ys[row_of[vertex]], ys[row_of[vertex]] + heights[row_of[vertex]]
                place_of_child = content.places[self.children[vertex].id] if vertex < len(self.children) else None
                if at == 0:
                    points.append((x, place_of_child.y + place_of_child.height if place_of_child else 0.0))
                    points.append((x, low))
                elif at == len(chain) - 1:
                    points += [(x, top), (x, place_of_child.y if place_of_child else bottom)]
                else:
                    points += [(x, top), (x, low)]
            content.routes[piece.line] = points
            if layers.labels[number] >= 0:
                vertex = layers.labels[number]
                label = vertices[vertex]
                size = (label.left + label.right, label.height)
                middle = ys[row_of[vertex]] + heights[row_of[vertex]] / 2
                content.labels[piece.line] = Rectangle(self.x[vertex] - label.left, middle - size[1] / 2, *size)
        content.ports = {line: self.x[port] for line, port in self.port_of.items()}
        content.has_title = bool(self.tops)
        return content

    def _gap(self, row: int) -> float:
        """Below a row: more where edges run far to the side."""
        layers = self.layers
        sideways = [
            abs(self.x[vertex] + shift - self.x[other])
            for vertex in layers.rows[row]
            for other, shift in layers.below[vertex]
        ]
        has_labels = any(
            layers.vertices[vertex].is_bend and layers.vertices[vertex].height for vertex in layers.rows[row]
        )
        next_has = any(
            layers.vertices[vertex].is_bend and layers.vertices[vertex].height for vertex in layers.rows[row + 1]
        )
        least = 22.0 if has_labels or next_has else 38.0
        return least + min(34.0, 0.06 * max(sideways, default=0.0))

    def _attachments(self) -> dict[tuple[int, int], float]:
        """Where each piece meets its boxes: towards where it goes, apart from its neighbours."""
        sides: dict[tuple[int, bool], list[tuple[float, int]]] = defaultdict(list)
        attached: dict[tuple[int, int], float] = {}
        for number, (piece, chain) in enumerate(zip(self.pieces, self.layers.chains, strict=True)):
            for vertex, near, is_lower in ((chain[0], chain[1], True), (chain[-1], chain[-2], False)):
                if vertex >= len(self.children):
                    continue
                offset = self.children[vertex].offset(piece.line)
                if offset is not None:
                    attached[number, vertex] = self.x[vertex] + offset
                else:
                    sides[vertex, is_lower].append((self.x[near], number))
        for (vertex, _), ends in sides.items():
            child = self.children[vertex]
            for x, number in _spread(sorted(ends), self.x[vertex], child.size[0], is_frame=child.ports is not None):
                attached[number, vertex] = x
        return attached


def _spread(ends: list[tuple[float, int]], middle: float, width: float, *, is_frame: bool) -> list[tuple[float, int]]:
    if len(ends) == 1 and not is_frame:
        return [(middle, ends[0][1])]
    reach = max(0.0, width / 2 - 14)
    gap = min(16.0, 2 * reach / max(1, len(ends) - 1))
    targets = [max(middle - reach, min(middle + reach, x)) for x, _ in ends]
    # The nearest positions that keep the gap: neighbours that want the same place share it (pooled violators).
    pools: list[tuple[float, int]] = []
    for at, x in enumerate(targets):
        pool = (x - at * gap, 1)
        while pools and pools[-1][0] > pool[0]:
            before = pools.pop()
            count = before[1] + pool[1]
            pool = ((before[0] * before[1] + pool[0] * pool[1]) / count, count)
        pools.append(pool)
    placed = [x for x, count in pools for _ in range(count)]
    xs = [x + at * gap for at, x in enumerate(placed)]
    xs = [max(middle - reach + at * gap, min(middle + reach - (len(xs) - 1 - at) * gap, x)) for at, x in enumerate(xs)]
    return [(x, number) for x, (_, number) in zip(xs, ends, strict=True)]
