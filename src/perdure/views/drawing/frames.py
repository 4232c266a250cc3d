"""Boxes, frames around boxes, and lines between them, with a place for each: nothing overlaps, no line crosses a box.

Each frame is drawn for itself, from the inside out; around it, it is a box like any other. A line that leaves a frame
leads to a *port*, a point on the frame's border, and goes on from there in the drawing around it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt

from perdure.views.drawing.layered import Child, Content, LayeredDrawing, LinePiece, Point, Rectangle, Size
from perdure.views.drawing.layering import turned_edges

PADDING = 18.0  # between a frame and what is in it
COMPONENT_GAP = 44.0
ONE_ROW = 640.0  # width of a row of independent parts, such as the branches of a parallel step
LOOP_WIDTH = 30.0
LOOP_HEIGHT = 18.0
ROOT = ""


@dataclass(frozen=True, slots=True)
class Box:
    """`size` is that of the box, or for a frame that of its title."""

    id: str
    size: Size
    parent: str = ROOT


@dataclass(frozen=True, slots=True)
class Line:
    source: str
    target: str
    label: Size | None = None


@dataclass(slots=True)
class Drawing:
    """Places of boxes and frames; of each line its points, from source to target, and the place of its label.

    Two neighbouring points are one above the other, or they are joined by a curve that begins and ends vertically. The
    four points of a line from a box to itself are those of one curve.
    """

    width: float = 0.0
    height: float = 0.0
    places: dict[str, Rectangle] = field(default_factory=dict)
    routes: list[list[Point]] = field(default_factory=list)
    labels: list[Rectangle | None] = field(default_factory=list)


def draw(boxes: Sequence[Box], lines: Sequence[Line]) -> Drawing:
    return _Layout(boxes, lines).drawing()


class _Layout:
    def __init__(self, boxes: Sequence[Box], lines: Sequence[Line]) -> None:
        self.boxes = {box.id: box for box in boxes}
        self.lines = lines
        self.children: dict[str, list[str]] = defaultdict(list)
        for box in boxes:
            self.children[box.parent].append(box.id)
        self.loops: dict[str, list[int]] = defaultdict(list)
        self.pieces: dict[str, list[LinePiece]] = defaultdict(list)
        self.chains: list[list[str]] = [[] for _ in lines]  # the frames whose pieces make the line, in its direction
        self.turned: set[int] = set()
        self.contents: dict[str, Content] = {}
        self._split_lines()

    # Lines become pieces, each in one frame.

    def _split_lines(self) -> None:
        level: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
        for number, line in enumerate(self.lines):
            from_root, to_root = self._path(line.source), self._path(line.target)
            if line.source == line.target:
                self.loops[line.source].append(number)
                continue
            shared = 0
            while shared < min(len(from_root), len(to_root)) and from_root[shared] == to_root[shared]:
                shared += 1
            frame = from_root[shared - 1]
            self.chains[number] += [*reversed(from_root[shared:-1]), frame, *to_root[shared:-1]]
            if shared == len(to_root):  # from inside a frame to its border
                self.pieces[frame].append(LinePiece(number, from_root[shared], None, True, is_turned=False))
                self._add_ports(number, from_root[shared:], at_source=True)
            elif shared == len(from_root):
                self.pieces[frame].append(LinePiece(number, None, to_root[shared], True, is_turned=False))
                self._add_ports(number, to_root[shared:], at_source=False)
            else:
                level[frame].append((number, from_root[shared], to_root[shared]))
        for frame, ends in level.items():
            turned = turned_edges(self.children[frame], [(source, target) for _, source, target in ends])
            for at, (number, source, target) in enumerate(ends):
                upper, lower = (target, source) if at in turned else (source, target)
                line = self.lines[number]
                if at in turned:
                    self.turned.add(number)
                self.pieces[frame].append(LinePiece(number, upper, lower, True, is_turned=at in turned))
                for end, child, at_source in ((line.source, source, True), (line.target, target, False)):
                    path = self._path(end)
                    self._add_ports(number, path[path.index(child) :], at_source=at_source)

    def _add_ports(self, number: int, path: Sequence[str], *, at_source: bool) -> None:
        """Pieces from the box at the end of the path to the borders of the frames around it."""
        is_turned = number in self.turned
        for frame, child in pairwise(path):
            ends = (child, None) if at_source != is_turned else (None, child)
            self.pieces[frame].append(LinePiece(number, ends[0], ends[1], False, is_turned))

    def _path(self, id: str) -> list[str]:
        """The frames around a box from the outermost, and the box."""
        path = [id]
        while path[-1] != ROOT:
            path.append(self.boxes[path[-1]].parent)
        return path[::-1]

    # Frames are drawn from the inside out.

    def drawing(self) -> Drawing:
        frames = [frame for frame in self.children if frame == ROOT or frame in self.boxes]
        for frame in sorted(frames, key=lambda frame: -len(self._path(frame))):
            self.contents[frame] = self._content(frame)
        root = self.contents[ROOT] if ROOT in self.contents else Content()
        drawing = Drawing(*root.size, {}, [[] for _ in self.lines], [None for _ in self.lines])
        origins: dict[str, Point] = {ROOT: (0.0, 0.0)}
        for frame in sorted(frames, key=lambda frame: len(self._path(frame))):
            x, y = origins[frame]
            content = self.contents[frame]
            for id, place in content.places.items():
                drawing.places[id] = place.moved(x, y)
                origins[id] = drawing.places[id].x, drawing.places[id].y
            for number, place in content.labels.items():
                drawing.labels[number] = place.moved(x, y)
            for number, route in content.routes.items():
                if number not in self.turned and not self.chains[number]:
                    drawing.routes[number] = [(px + x, py + y) for px, py in route]
        for number, chain in enumerate(self.chains):
            for frame in chain:
                x, y = origins[frame]
                piece = [(px + x, py + y) for px, py in self.contents[frame].routes[number]]
                drawing.routes[number] += reversed(piece) if number in self.turned else piece
        drawing.routes = [_without_repeats(route) for route in drawing.routes]
        return drawing

    def _content(self, frame: str) -> Content:
        title = self.boxes[frame].size if frame != ROOT else (0.0, 0.0)
        pieces = self.pieces[frame]
        has_ports = any(piece.upper is None or piece.lower is None for piece in pieces)
        groups = [self.children[frame]] if has_ports else self._components(frame)
        parts = []
        for group in groups:
            members = set(group)
            inside = pieces if has_ports else [piece for piece in pieces if piece.upper in members]
            children = [self._child(id) for id in group]
            labels = {piece.line: self.lines[piece.line].label for piece in inside}
            parts.append(LayeredDrawing(children, inside, labels, title).content())
            for child in group:
                self._add_loops(child, parts[-1])
        content = parts[0] if has_ports else _packed(parts)
        return content if frame == ROOT else _framed(content, title, self._loops_height(frame))

    def _components(self, frame: str) -> list[list[str]]:
        """The children in groups without lines between them, in reading order."""
        leader = {child: child for child in self.children[frame]}

        def find(child: str) -> str:
            while leader[child] != child:
                leader[child] = leader[leader[child]]
                child = leader[child]
            return child

        for piece in self.pieces[frame]:
            assert piece.upper is not None and piece.lower is not None
            leader[find(piece.lower)] = find(piece.upper)
        groups: dict[str, list[str]] = defaultdict(list)
        for child in self.children[frame]:
            groups[find(child)].append(child)
        return list(groups.values())

    def _child(self, id: str) -> Child:
        """A box or frame, high enough for its loops."""
        if id in self.contents:
            return Child(id, self.contents[id].size, self._loop_width(id), self.contents[id].ports)
        width, height = self.boxes[id].size
        return Child(id, (width, max(height, self._loops_height(id))), self._loop_width(id))

    def _loops_height(self, child: str) -> float:
        return sum(self._loop_height(number) for number in self.loops[child]) + 4

    def _loop_height(self, number: int) -> float:
        label = self.lines[number].label
        return max(LOOP_HEIGHT + 6, label[1] + 6 if label else 0.0)

    def _loop_width(self, child: str) -> float:
        """The room that the loops of a box need at its right side."""
        labels = [self.lines[number].label for number in self.loops[child]]
        return max((LOOP_WIDTH + (label[0] + 6 if label else 0.0) for label in labels), default=0.0)

    def _add_loops(self, child: str, content: Content) -> None:
        numbers, place = self.loops[child], content.places[child]
        right = place.x + place.width
        y = place.y + (place.height - self._loops_height(child)) / 2 + 2
        for number in numbers:
            height = self._loop_height(number)
            middle, label = y + height / 2, self.lines[number].label
            upper, lower = middle - LOOP_HEIGHT / 2, middle + LOOP_HEIGHT / 2
            content.routes[number] = [(right, upper), (right + LOOP_WIDTH, upper - 3)]
            content.routes[number] += [(right + LOOP_WIDTH, lower + 3), (right, lower)]
            if label:
                content.labels[number] = Rectangle(right + LOOP_WIDTH - 2, middle - label[1] / 2, *label)
            y += height


def _packed(parts: list[Content]) -> Content:
    """Parts beside each other: a few in one row, many in as many rows as make the whole about as high as wide."""
    area = sum((part.size[0] + COMPONENT_GAP) * (part.size[1] + COMPONENT_GAP) for part in parts)
    limit = max([ONE_ROW, sqrt(area) * 1.4, *(part.size[0] for part in parts)])
    whole = Content()
    x = y = row = 0.0
    for part in parts:
        if x and x + part.size[0] > limit:
            x, y, row = 0.0, y + row + COMPONENT_GAP, 0.0
        _add_moved(whole, part, x, y)
        whole.size = max(whole.size[0], x + part.size[0]), max(whole.size[1], y + part.size[1])
        x, row = x + part.size[0] + COMPONENT_GAP, max(row, part.size[1])
    return whole


def _framed(content: Content, title: Size, least: float) -> Content:
    """The content within its border, below its title."""
    above = PADDING / 2 + (0.0 if content.has_title else title[1] + PADDING / 2)
    width = max(content.size[0], title[0]) + 2 * PADDING
    left = (width - content.size[0]) / 2
    height = max(least, content.size[1] + above + PADDING)
    framed = Content((width, height))
    _add_moved(framed, content, left, above)
    framed.ports = {line: x + left for line, x in content.ports.items()}
    for line, x in framed.ports.items():  # from the row of ports to the border itself
        route = framed.routes[line]
        if content.routes[line][0] == (content.ports[line], 0.0):
            route.insert(0, (x, 0.0))
        else:
            route.append((x, height))
    return framed


def _add_moved(whole: Content, part: Content, x: float, y: float) -> None:
    whole.places |= {id: place.moved(x, y) for id, place in part.places.items()}
    whole.labels |= {line: place.moved(x, y) for line, place in part.labels.items()}
    whole.routes |= {line: [(px + x, py + y) for px, py in route] for line, route in part.routes.items()}


def _without_repeats(route: Sequence[Point]) -> list[Point]:
    """Rounded, and without points that change nothing."""
    points = [(round(x, 1), round(y, 1)) for x, y in route]
    points = [point for at, point in enumerate(points) if at == 0 or point != points[at - 1]]
    return [
        point
        for at, point in enumerate(points)
        if not (0 < at < len(points) - 1 and points[at - 1][0] == point[0] == points[at + 1][0])
    ]
