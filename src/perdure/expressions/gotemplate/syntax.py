"""The shape of a parsed template. Variables are resolved to slots, bare roots to fields of `$`; nothing is evaluated.

Every node knows the part of the source it came from (`start`, `end`).
"""

from dataclasses import dataclass

ROOT_SLOT = 0  # `$`, the data a template is rendered with


@dataclass(frozen=True, slots=True)
class Node:
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Dot(Node):
    """`.`, the value the surrounding block is about."""


@dataclass(frozen=True, slots=True)
class Nil(Node):
    """`nil`, which may be passed but is no value by itself."""


@dataclass(frozen=True, slots=True)
class Literal(Node):
    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Variable(Node):
    name: str
    slot: int


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A function, called without arguments unless it is the first word of a command."""

    name: str


@dataclass(frozen=True, slots=True)
class Pipeline(Node):
    """`commands` joined by `|`; the result also goes into `slots`."""

    commands: tuple["Command", ...]
    slots: tuple[int, ...] = ()
    declares: bool = False


@dataclass(frozen=True, slots=True)
class Path(Node):
    """A receiver and the fields or subscripts looked up in it, one after the other."""

    receiver: "Operand"
    steps: tuple[str | int, ...]


Operand = Dot | Nil | Literal | Variable | Name | Pipeline | Path


@dataclass(frozen=True, slots=True)
class Command(Node):
    words: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Text(Node):
    text: str


@dataclass(frozen=True, slots=True)
class Action(Node):
    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class Choice(Node):
    """`if` or `with`, and its `else if` or `else with`: the first arm whose pipeline is true."""

    keyword: str
    arms: tuple[tuple[Pipeline, "Block"], ...]
    otherwise: "Block"


@dataclass(frozen=True, slots=True)
class Range(Node):
    pipeline: Pipeline
    body: "Block"
    otherwise: "Block"


@dataclass(frozen=True, slots=True)
class Leave(Node):
    """`break` or `continue`."""

    keyword: str


Statement = Text | Action | Choice | Range | Leave
Block = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole template, and how many variables it has."""

    body: Block
    slots: int
