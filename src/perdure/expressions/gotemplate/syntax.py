"""The shape of a parsed template. Variables are resolved to slots, bare roots to fields of `$`; nothing is evaluated.

Every node knows the part of the source it came from (`start`, `end`).
"""

import msgspec

ROOT_SLOT = 0  # `$`, the data a template is rendered with


class Node(msgspec.Struct, frozen=True):
    start: int
    end: int


class Dot(Node, frozen=True):
    """`.`, the current value of the surrounding block."""


class Nil(Node, frozen=True):
    """`nil`, which may be passed but is not a value by itself."""


class Literal(Node, frozen=True):
    value: bool | int | float | str


class Variable(Node, frozen=True):
    name: str
    slot: int


class Name(Node, frozen=True):
    """A function, called without arguments unless it comes first in a command."""

    name: str


class Pipeline(Node, frozen=True):
    """`commands` joined by `|`; the result also goes into `slots`."""

    commands: tuple["CommandNode", ...]
    slots: tuple[int, ...] = ()
    declares: bool = False


class Path(Node, frozen=True):
    """A receiver and the fields or subscripts looked up in it, one by one."""

    receiver: "Operand"
    steps: tuple[str | int, ...]


Operand = Dot | Nil | Literal | Variable | Name | Pipeline | Path


class CommandNode(Node, frozen=True):
    operands: tuple[Operand, ...]


class Text(Node, frozen=True):
    text: str


class ActionNode(Node, frozen=True):
    pipeline: Pipeline


class ConditionNode(Node, frozen=True):
    """`if` or `with`, and its `else if` or `else with`: the first arm whose pipeline is true."""

    keyword: str
    arms: tuple[tuple[Pipeline, "Block"], ...]
    otherwise: "Block"


class Range(Node, frozen=True):
    pipeline: Pipeline
    body: "Block"
    otherwise: "Block"


class LoopControl(Node, frozen=True):
    """`break` or `continue`."""

    keyword: str


Statement = Text | ActionNode | ConditionNode | Range | LoopControl
Block = tuple[Statement, ...]


class Tree(msgspec.Struct, frozen=True):
    """A whole template, and how many variables it has."""

    body: Block
    slots: int
