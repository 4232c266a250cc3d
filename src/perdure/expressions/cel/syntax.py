"""The syntax tree of CEL after macros were recognised. Data only."""

import msgspec

from perdure.expressions.cel.values import Value


class Node(msgspec.Struct, frozen=True):
    """Where it is in the source, how deep the tree below it is, and how much work it is in nodes."""

    start: int
    end: int
    height: int
    size: int


class Literal(Node, frozen=True):
    value: Value


class Name(Node, frozen=True):
    """An identifier; `absolute` when written with a leading dot."""

    name: str
    absolute: bool


class Select(Node, frozen=True):
    """`operand.field`, or `operand.?field` when optional. `focus` is where the field is written."""

    operand: Node
    field: str
    optional: bool
    focus: int


class Has(Node, frozen=True):
    """`has(operand.field)`."""

    operand: Node
    field: str


class Index(Node, frozen=True):
    """`operand[key]`, or `operand[?key]` when optional."""

    operand: Node
    key: Node
    optional: bool
    focus: int


class CallExpression(Node, frozen=True):
    """`function(args)`, or `target.function(args)`."""

    function: str
    target: Node | None
    args: tuple[Node, ...]
    focus: int


class Unary(Node, frozen=True):
    operator: str
    operand: Node


class Binary(Node, frozen=True):
    """A comparison or `in`."""

    operator: str
    left: Node
    right: Node
    focus: int


class Operand(msgspec.Struct, frozen=True):
    """One `+ value` of a chain; it spans the chain from its start to here."""

    start: int
    end: int
    focus: int
    operator: str
    value: Node


class Chain(Node, frozen=True):
    """Arithmetic of one precedence, from left to right: `first + b - c`. Flat, as a long sum is not a deep tree."""

    first: Node
    rest: tuple[Operand, ...]


class Conjunction(Node, frozen=True):
    """`a && b && …`, flat like a chain."""

    terms: tuple[Node, ...]


class Disjunction(Node, frozen=True):
    """`a || b || …`."""

    terms: tuple[Node, ...]


class Ternary(Node, frozen=True):
    condition: Node
    then: Node
    otherwise: Node


class ListLiteral(Node, frozen=True):
    """Elements, each with whether it was written `?element`."""

    elements: tuple[tuple[bool, Node], ...]


class MapLiteral(Node, frozen=True):
    """Entries as (optional, key, value)."""

    entries: tuple[tuple[bool, Node, Node], ...]


class Loop(Node, frozen=True):
    """A comprehension macro over `operand`.

    With one variable it is bound to list elements or map keys; with two, to index and element or key and value.
    """

    kind: str
    operand: Node
    variables: tuple[str, ...]
    condition: Node | None
    result: Node | None


class Bind(Node, frozen=True):
    """`cel.bind(variable, value, result)`."""

    variable: str
    value: Node
    result: Node


class OptionalMap(Node, frozen=True):
    """`operand.optMap(variable, result)`, or `optFlatMap` when flat."""

    operand: Node
    variable: str
    result: Node
    flat: bool
