"""The tree of a pattern, without groups: nothing is extracted.

Each part knows its `size`: how many instructions it compiles to, before any is created.
"""

import msgspec

from perdure.expressions.regex.charset import CharSet

LARGEST_PROGRAM = 5000  # instructions


class Char(msgspec.Struct, frozen=True):
    accepted: CharSet
    size: int = 1


class Assertion(msgspec.Struct, frozen=True):
    """`kind` is begin_text, end_text, begin_line, end_line, word, or not_word."""

    kind: str
    size: int = 1


class Sequence(msgspec.Struct, frozen=True):
    parts: tuple["Tree", ...]
    size: int


class Alternation(msgspec.Struct, frozen=True):
    branches: tuple["Tree", ...]
    size: int


class Repeat(msgspec.Struct, frozen=True):
    """`most` is None for no upper bound."""

    inner: "Tree"
    fewest: int
    most: int | None
    size: int


Tree = Char | Assertion | Sequence | Alternation | Repeat


def sequence(parts: list[Tree]) -> Sequence:
    return Sequence(tuple(parts), sum(part.size for part in parts))


def choice(branches: list[Tree]) -> Alternation:
    return Alternation(tuple(branches), sum(branch.size + 2 for branch in branches))


def repeat(inner: Tree, fewest: int, most: int | None) -> Repeat:
    copies = fewest + 1 if most is None else most
    return Repeat(inner, fewest, most, (inner.size + 1) * max(copies, 1))
