"""Layers of a graph: which edges are drawn upwards, which layer a node is in, and what lies on the way of long edges.

The first two steps of Sugiyama's method. Layers are those of the longest path from a node without predecessors, so an
edge never leads to a node beside or above its source, unless it is *turned*: an edge that closes a cycle.

Between two layers of nodes there may be a layer of labels. A label is a vertex of the drawing like a box is, so what
keeps boxes apart keeps labels apart too. A vertex without size stands wherever an edge passes through a layer.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Key = Hashable


@dataclass(slots=True)
class Vertex:
    """Something with a place in a layer: `left` and `right` are its extents from the point that is aligned."""

    left: float = 0.0
    right: float = 0.0
    height: float = 0.0
    is_bend: bool = True  # no box of the graph: an edge passes here, perhaps with its label
    is_pinned: bool = False  # stays at the left end of its layer


@dataclass(slots=True)
class Link:
    """An edge between two items of one drawing; the offsets say where it is attached, from the item's point."""

    source: int
    target: int
    label: tuple[float, float] | None = None
    source_offset: float = 0.0
    target_offset: float = 0.0
    is_turned: bool = False  # it is drawn upwards: its target is above its source

    @property
    def upper(self) -> tuple[int, float]:
        return (self.target, self.target_offset) if self.is_turned else (self.source, self.source_offset)

    @property
    def lower(self) -> tuple[int, float]:
        return (self.source, self.source_offset) if self.is_turned else (self.target, self.target_offset)


@dataclass(slots=True)
class Layers:
    """The vertices in their layers, and the segments between neighbouring layers."""

    vertices: list[Vertex]
    rows: list[list[int]] = field(default_factory=list)
    above: list[list[tuple[int, float]]] = field(default_factory=list)  # of each vertex: neighbour, offset to it
    below: list[list[tuple[int, float]]] = field(default_factory=list)
    chains: list[list[int]] = field(default_factory=list)  # of each link: its vertices from top to bottom
    labels: list[int] = field(default_factory=list)  # of each link: the vertex of its label, or -1


def turned_edges(nodes: Iterable[Key], edges: Sequence[tuple[Key, Key]]) -> set[int]:
    """Positions of the edges that close a cycle when the nodes are visited in reading order, depth first."""
    following: dict[Key, list[tuple[int, Key]]] = {node: [] for node in nodes}
    for position, (source, target) in enumerate(edges):
        following[source].append((position, target))
    turned: set[int] = set()
    is_open: dict[Key, bool] = {}  # False: left for good
    arrived = {target for source, target in edges if source != target}
    roots = [node for node in following if node not in arrived]
    for root in [*roots, *following]:
        if root in is_open:
            continue
        is_open[root] = True
        path = [(root, iter(following[root]))]
        while path:
            node, rest = path[-1]
            for position, target in rest:
                if target not in is_open:
                    is_open[target] = True
                    path.append((target, iter(following[target])))
                    break
                if is_open[target]:
                    turned.add(position)
            else:
                is_open[node] = False
                path.pop()
    return turned


def longest_paths(count: int, links: Sequence[Link]) -> list[int]:
    """The layer of each item: one below the lowest of its predecessors."""
    below: list[list[int]] = [[] for _ in range(count)]
    open_above = [0] * count
    for link in links:
        below[link.upper[0]].append(link.lower[0])
        open_above[link.lower[0]] += 1
    layers = [0] * count
    ready = [item for item in range(count) if not open_above[item]]
    roots = list(ready)
    for item in ready:
        for lower in below[item]:
            layers[lower] = max(layers[lower], layers[item] + 1)
            open_above[lower] -= 1
            if not open_above[lower]:
                ready.append(lower)
    assert len(ready) == count, "turned edges leave no cycle"
    for item in roots:  # a node that only leads to something low stands just above that
        if below[item]:
            layers[item] = min(layers[lower] for lower in below[item]) - 1
    lowest = min(layers, default=0)
    return [layer - lowest for layer in layers]


def build_layers(
    items: Sequence[Vertex], links: Sequence[Link], tops: Sequence[int] = (), bottoms: Sequence[int] = ()
) -> Layers:
    """Items in their layers; `tops` are in a layer above all others, `bottoms` in one below."""
    inner = set(range(len(items))) - set(tops) - set(bottoms)
    ends = [link for link in links if link.source in inner and link.target in inner]
    rank = [2 * layer for layer in _inner_layers(len(items), ends, inner)]
    last = max((rank[item] for item in inner), default=0)
    for item in tops:
        rank[item] = -2
    for item in bottoms:
        rank[item] = last + 2
    label_ranks = [_label_rank(link, rank) for link in links]
    used = sorted({*rank, *(at for at in label_ranks if at is not None)})
    row_of = {at: row for row, at in enumerate(used)}
    layers = Layers(list(items), [[] for _ in used], [[] for _ in items], [[] for _ in items])
    for item in range(len(items)):
        layers.rows[row_of[rank[item]]].append(item)
    for link, label_rank in zip(links, label_ranks, strict=True):
        _lay_chain(layers, link, row_of, rank, -1 if label_rank is None else row_of[label_rank])
    return layers


def _inner_layers(count: int, links: Sequence[Link], inner: set[int]) -> list[int]:
    numbers = {item: number for number, item in enumerate(sorted(inner))}
    renumbered = [Link(numbers[link.source], numbers[link.target], is_turned=link.is_turned) for link in links]
    layers = longest_paths(len(numbers), renumbered)
    return [layers[numbers[item]] if item in numbers else 0 for item in range(count)]


def _label_rank(link: Link, rank: Sequence[int]) -> int | None:
    """A label stands beside the end that the edge comes from."""
    if link.label is None:
        return None
    return rank[link.source] - 1 if link.is_turned else rank[link.source] + 1


def _lay_chain(layers: Layers, link: Link, row_of: dict[int, int], rank: Sequence[int], label_row: int) -> None:
    (upper, upper_offset), (lower, lower_offset) = link.upper, link.lower
    first, last = row_of[rank[upper]], row_of[rank[lower]]
    chain, label = [upper], -1
    for row in range(first + 1, last):
        vertex = len(layers.vertices)
        if row == label_row and link.label is not None:
            width, height = link.label
            label = vertex
            layers.vertices.append(Vertex(width / 2, width / 2, height))
        else:
            layers.vertices.append(Vertex())
        layers.above.append([])
        layers.below.append([])
        layers.rows[row].append(vertex)
        chain.append(vertex)
    chain.append(lower)
    for at, (above, below) in enumerate(pairwise(chain)):
        shift = (upper_offset if at == 0 else 0.0) - (lower_offset if at == len(chain) - 2 else 0.0)
        layers.below[above].append((below, shift))
        layers.above[below].append((above, -shift))
    layers.chains.append(chain)
    layers.labels.append(label)
