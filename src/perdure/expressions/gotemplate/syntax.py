"""The shape of a parsed template. Variables are resolved to slots, bare roots to fields of `$`; nothing is evaluated.

Every node knows the part of the source it came from (`start`, `end`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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


def walk(node: Any) -> Iterator[Any]:
    """Every node below and including this one, in source order."""
    yield node
    match node:
        case Tree(body=body):
            parts: tuple[Any, ...] = body
        case Action(pipeline=pipeline):
            parts = (pipeline,)
        case Choice(arms=arms, otherwise=otherwise):
            parts = (*(part for pipeline, body in arms for part in (pipeline, *body)), *otherwise)
        case Range(pipeline=pipeline, body=body, otherwise=otherwise):
            parts = (pipeline, *body, *otherwise)
        case Pipeline(commands=commands):
            parts = commands
        case Command(words=words):
            parts = words
        case Path(receiver=receiver):
            parts = (receiver,)
        case _:
            return
    for part in parts:
        yield from walk(part)
