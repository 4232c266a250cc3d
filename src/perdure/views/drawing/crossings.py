"""The order of vertices within their layers, so that few edges cross: the third step of Sugiyama's method.

Layers are sorted by the positions of their neighbours, downwards and upwards in turn; then neighbours are exchanged
where that removes crossings. The best order seen is kept. Everything is deterministic.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise

from perdure.views.drawing.layering import Layers

MOST_SWEEPS = 24
WORK = 400_000  # segments that are looked at in all sweeps together; a large drawing gets fewer sweeps
SWAPPED_UP_TO = 4_000  # segments; above it neighbours are not exchanged one by one


def reduce_crossings(layers: Layers) -> int:
    """Order `layers.rows`; the number of crossings that remain."""
    segments = sum(len(near) for near in layers.below)
    _set_first_order(layers)
    best, fewest = [list(row) for row in layers.rows], count_crossings(layers)
    sweeps = max(2, min(MOST_SWEEPS, WORK // max(1, segments)))
    unchanged = 0
    for sweep in range(sweeps):
        if fewest == 0 or unchanged > 4:
            break
        _sort_rows(layers, downwards=sweep % 2 == 0)
        if segments <= SWAPPED_UP_TO:
            _swap_neighbours(layers)
        crossings = count_crossings(layers)
        unchanged += 1
        if crossings < fewest:
            best, fewest, unchanged = [list(row) for row in layers.rows], crossings, 0
    layers.rows[:] = best
    return fewest


def _set_first_order(layers: Layers) -> None:
    """As the edges are met from the top, depth first: what belongs together begins together."""
    order: dict[int, int] = {}
    for row in layers.rows:
        for root in row:
            pending = [root]
            while pending:
                vertex = pending.pop()
                if vertex not in order:
                    order[vertex] = len(order)
                    pending += [near for near, _ in reversed(layers.below[vertex])]
    for row in layers.rows:
        row.sort(key=lambda vertex: (not layers.vertices[vertex].is_pinned, order[vertex]))


def positions_of(rows: Sequence[Sequence[int]]) -> dict[int, int]:
    return {vertex: position for row in rows for position, vertex in enumerate(row)}


def _sort_rows(layers: Layers, *, downwards: bool) -> None:
    rows = layers.rows if downwards else layers.rows[::-1]
    near = layers.above if downwards else layers.below
    for fixed, row in pairwise(rows):
        place = {vertex: float(position) for position, vertex in enumerate(fixed)}
        keys: dict[int, float] = {}
        previous = -1.0
        for vertex in row:  # one without neighbours stays behind the one before it
            ends = [place[other] + _lean(layers, other, -offset) for other, offset in near[vertex]]
            previous = keys[vertex] = sum(ends) / len(ends) if ends else previous
        row.sort(key=lambda vertex: (not layers.vertices[vertex].is_pinned, keys[vertex]))


def _lean(layers: Layers, vertex: int, offset: float) -> float:
    """Where on a wide vertex an edge is attached, as a part of a position."""
    extent = layers.vertices[vertex].left + layers.vertices[vertex].right
    return 0.0 if extent <= 0 else max(-0.45, min(0.45, offset / extent))


def _swap_neighbours(layers: Layers) -> None:
    position = positions_of(layers.rows)
    for _ in range(8):
        has_improved = False
        for row in layers.rows:
            for at in range(len(row) - 1):
                first, second = row[at], row[at + 1]
                if layers.vertices[first].is_pinned:
                    continue
                now = _crossed(layers, first, second, position)
                if now and _crossed(layers, second, first, position) < now:
                    row[at], row[at + 1] = second, first
                    position[first], position[second] = at + 1, at
                    has_improved = True
        if not has_improved:
            return


def _crossed(layers: Layers, left: int, right: int, position: dict[int, int]) -> int:
    """Crossings of the edges of two neighbours, in this order."""
    total = 0
    for near in (layers.above, layers.below):
        of_right = sorted([position[other] for other, _ in near[right]])
        for other, _ in near[left]:
            at = position[other]
            total += next((number for number, place in enumerate(of_right) if place >= at), len(of_right))
    return total


def count_crossings(layers: Layers) -> int:
    total = 0
    for upper, lower in pairwise(layers.rows):
        position = {vertex: at for at, vertex in enumerate(lower)}
        seen: list[int] = []
        for vertex in upper:
            ends = [position[other] for other, _ in layers.below[vertex]]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total
