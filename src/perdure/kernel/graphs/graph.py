"""A document as a graph, independent of the language and of the way it is drawn."""

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What a node is to its reader, whatever its language calls it."""

    STEP = "step"
    START = "start"
    CHOICE = "choice"
    WAIT = "wait"  # for time, for an event, for a person
    CALL = "call"  # another document runs
    JOIN = "join"
    END = "end"
    FAILURE = "failure"  # it ends with a failure


class Node(msgspec.Struct, frozen=True):
    """A step or a part of one. A node that is the `parent` of others is drawn as a frame around them."""

    id: str
    label: str
    kind: str = ""  # the kind of step, as the language calls it
    notes: tuple[str, ...] = ()  # further lines, drawn smaller
    parent: str = ""
    role: Role = Role.STEP


class Edge(msgspec.Struct, frozen=True):
    source: str
    target: str
    label: str = ""
    is_exceptional: bool = False  # taken when something failed


class Graph(msgspec.Struct):
    """Nodes in reading order, a frame before what is in it. Ids are unique; no id is empty."""

    title: str = ""
    nodes: list[Node] = msgspec.field(default_factory=list)
    edges: list[Edge] = msgspec.field(default_factory=list)
