"""The syntax tree of CEL after macros were recognised. Data only."""

from dataclasses import dataclass

from perdure.expressions.cel.values import Value


@dataclass(frozen=True, slots=True)
class Node:
    """Where it stands in the source, how deep the tree below it is, and how much work it is in nodes."""

    start: int
    end: int
    height: int
    size: int


@dataclass(frozen=True, slots=True)
class Literal(Node):
    value: Value


@dataclass(frozen=True, slots=True)
class Name(Node):
    """An identifier; `absolute` when written with a leading dot."""

    name: str
    absolute: bool


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`operand.field`, or `operand.?field` when optional. `focus` is where the field is written."""

    operand: Node
    field: str
    optional: bool
    focus: int


@dataclass(frozen=True, slots=True)
class Has(Node):
    """`has(operand.field)`."""

    operand: Node
    field: str


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`operand[key]`, or `operand[?key]` when optional."""

    operand: Node
    key: Node
    optional: bool
    focus: int


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`function(args)`, or `target.function(args)`."""

    function: str
    target: Node | None
    args: tuple[Node, ...]
    focus: int


@dataclass(frozen=True, slots=True)
class Unary(Node):
    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """A comparison or `in`."""

    operator: str
    left: Node
    right: Node
    focus: int


@dataclass(frozen=True, slots=True)
class Operand:
    """One `+ value` of a chain; it spans the chain from its start to here."""

    start: int
    end: int
    focus: int
    operator: str
    value: Node


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """Arithmetic of one precedence, from left to right: `first + b - c`. Flat, as a long sum is not a deep tree."""

    first: Node
    rest: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Conjunction(Node):
    """`a && b && …`, flat like a chain."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Disjunction(Node):
    """`a || b || …`."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Ternary(Node):
    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class ListLiteral(Node):
    """Elements, each with whether it was written `?element`."""

    elements: tuple[tuple[bool, Node], ...]


@dataclass(frozen=True, slots=True)
class MapLiteral(Node):
    """Entries as (optional, key, value)."""

    entries: tuple[tuple[bool, Node, Node], ...]


@dataclass(frozen=True, slots=True)
class Loop(Node):
    """A comprehension macro over `operand`.

    With one variable it is bound to list elements or map keys; with two, to index and element or key and value.
    """

    kind: str
    operand: Node
    variables: tuple[str, ...]
    condition: Node | None
    result: Node | None


@dataclass(frozen=True, slots=True)
class Bind(Node):
    """`cel.bind(variable, value, result)`."""

    variable: str
    value: Node
    result: Node


@dataclass(frozen=True, slots=True)
class OptionalMap(Node):
    """`operand.optMap(variable, result)`, or `optFlatMap` when flat."""

    operand: Node
    variable: str
    result: Node
    flat: bool
