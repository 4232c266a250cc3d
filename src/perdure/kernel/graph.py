"""A document as a graph, in no particular language and no particular picture."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    label: str
    kind: str = ""  # what sort of step; pictures may choose a shape by it
    notes: tuple[str, ...] = ()  # further lines, smaller


@dataclass(frozen=True, slots=True)
class Edge:
    source: str
    target: str
    label: str = ""
    is_exceptional: bool = False  # taken when something failed


@dataclass(slots=True)
class Graph:
    """Nodes in reading order; `groups` are boxes around some of them: title and node ids."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    groups: list[tuple[str, list[str]]] = field(default_factory=list)
