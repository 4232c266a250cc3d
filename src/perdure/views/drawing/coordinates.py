"""Where the vertices of a layered drawing stand: the method of Brandes and Köpf, with sizes and places of attachment.

Vertices are aligned with a median neighbour to blocks that stand exactly below each other; long edges come first, so
they are straight. That is done four times, from each corner, and the results are averaged. Each of the four keeps the
distances, so the average keeps them too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from perdure.views.drawing.crossings import positions_of
from perdure.views.drawing.layering import Layers

BOX_GAP = 36.0  # between boxes of one layer
BEND_GAP = 18.0  # between a box or label and an edge that passes
EDGE_GAP = 14.0  # between two edges that pass

Segment = tuple[int, int]


def assign_x(layers: Layers) -> list[float]:
    """The horizontal position of each vertex."""
    if not layers.vertices:
        return []
    crossed = _crossed_long_edges(layers)
    results = []
    for upwards in (False, True):
        for from_right in (False, True):
            rows = layers.rows[::-1] if upwards else layers.rows
            rows = [row[::-1] for row in rows] if from_right else rows
            near = layers.below if upwards else layers.above
            blocks = _align(rows, near, crossed)
            places = _compact(rows, blocks, layers, from_right)
            results.append([-x for x in places] if from_right else places)
    return _average(results, layers)


@dataclass(slots=True)
class _Blocks:
    root: list[int]
    shift: list[float]  # of a vertex from the root of its block


def _crossed_long_edges(layers: Layers) -> set[Segment]:
    """Segments that cross one of a long edge; those are not aligned, so that long edges stay straight."""
    crossed: set[Segment] = set()
    is_bend = [vertex.is_bend for vertex in layers.vertices]
    position = positions_of(layers.rows)
    for upper, lower in pairwise(layers.rows):
        low, scanned = 0, 0
        for at, vertex in enumerate(lower):
            inner = [other for other, _ in layers.above[vertex] if is_bend[vertex] and is_bend[other]]
            if not inner and at < len(lower) - 1:
                continue
            high = position[inner[0]] if inner else len(upper) - 1
            for scan in lower[scanned : at + 1]:
                for other, _ in layers.above[scan]:
                    if not low <= position[other] <= high and not (is_bend[scan] and is_bend[other]):
                        crossed.add((other, scan))
                        crossed.add((scan, other))
            low, scanned = high, at + 1
    return crossed


def _align(
    rows: Sequence[Sequence[int]], near: Sequence[Sequence[tuple[int, float]]], crossed: set[Segment]
) -> _Blocks:
    position = positions_of(rows)
    root, shift = list(range(len(near))), [0.0] * len(near)
    is_taken = [False] * len(near)  # another vertex continues its block already
    for row in rows:
        reached = -1
        for vertex in row:
            ends = sorted(near[vertex], key=lambda end: position[end[0]])
            middle = len(ends) - 1
            for at in dict.fromkeys((middle // 2, (middle + 1) // 2)) if ends else ():
                other, offset = ends[at]
                if is_taken[other] or position[other] <= reached or (other, vertex) in crossed:
                    continue
                root[vertex], shift[vertex] = root[other], shift[other] - offset
                is_taken[other] = True
                reached = position[other]
                break
    return _Blocks(root, shift)


def distance(layers: Layers, left: int, right: int) -> float:
    """What two neighbours in a layer must be apart."""
    first, second = layers.vertices[left], layers.vertices[right]
    bends = (first.is_bend and first.right == 0) + (second.is_bend and second.left == 0)
    return first.right + second.left + (BOX_GAP, BEND_GAP, EDGE_GAP)[bends]


def _compact(rows: Sequence[Sequence[int]], blocks: _Blocks, layers: Layers, from_right: bool) -> list[float]:
    """Blocks as far to the left as the distances allow; then to the right where something is waiting there."""
    root, shift = blocks.root, blocks.shift
    side = -1.0 if from_right else 1.0
    following: dict[int, dict[int, float]] = {vertex: {} for row in rows for vertex in row if root[vertex] == vertex}
    open_before = dict.fromkeys(following, 0)
    for row in rows:
        for first, second in pairwise(row):
            apart = distance(layers, second, first) if from_right else distance(layers, first, second)
            needed = apart + side * (shift[first] - shift[second])
            ends = following[root[first]]
            if root[second] not in ends:
                open_before[root[second]] += 1
                ends[root[second]] = needed
            else:
                ends[root[second]] = max(ends[root[second]], needed)
    x = dict.fromkeys(following, 0.0)
    ready = [block for block, before in open_before.items() if not before]
    for block in ready:
        for second, needed in following[block].items():
            x[second] = max(x[second], x[block] + needed)
            open_before[second] -= 1
            if not open_before[second]:
                ready.append(second)
    assert len(ready) == len(following), "blocks of one drawing have an order"
    for block in reversed(ready):
        if following[block]:
            x[block] = max(x[block], min(x[second] - needed for second, needed in following[block].items()))
    return [x[root[vertex]] + side * shift[vertex] for vertex in range(len(root))]


def _average(results: Sequence[list[float]], layers: Layers) -> list[float]:
    """The mean of the two middle positions, after all were moved to the narrowest of the four drawings."""
    spans = [_span(xs, layers) for xs in results]
    narrowest = min(range(len(results)), key=lambda at: spans[at][1] - spans[at][0])
    moved = []
    for at, xs in enumerate(results):
        is_from_right = at % 2 == 1
        by = spans[narrowest][is_from_right] - spans[at][is_from_right]
        moved.append([x + by for x in xs])
    return [sum(sorted(four)[1:3]) / 2 for four in zip(*moved, strict=True)]


def _span(xs: Sequence[float], layers: Layers) -> tuple[float, float]:
    low = min(x - vertex.left for x, vertex in zip(xs, layers.vertices, strict=True))
    high = max(x + vertex.right for x, vertex in zip(xs, layers.vertices, strict=True))
    return low, high
