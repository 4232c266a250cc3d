"""A document as a graph, in no particular language and no particular picture."""

import msgspec


class Node(msgspec.Struct, frozen=True):
    id: str
    label: str
    kind: str = ""  # what sort of step; pictures may choose a shape by it
    notes: tuple[str, ...] = ()  # further lines, smaller


class Edge(msgspec.Struct, frozen=True):
    source: str
    target: str
    label: str = ""
    is_exceptional: bool = False  # taken when something failed


class Graph(msgspec.Struct):
    """Nodes in reading order; `groups` are boxes around some of them: title and node ids."""

    nodes: list[Node] = msgspec.field(default_factory=list)
    edges: list[Edge] = msgspec.field(default_factory=list)
    groups: list[tuple[str, list[str]]] = msgspec.field(default_factory=list)
