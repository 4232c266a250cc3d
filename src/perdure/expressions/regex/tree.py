"""The tree of a pattern. Groups are gone: nothing is extracted."""

import msgspec

from perdure.expressions.regex.charset import CharSet

LARGEST_PROGRAM = 5000  # instructions


class Char(msgspec.Struct, frozen=True):
    accepted: CharSet


class Assertion(msgspec.Struct, frozen=True):
    """`kind` is begin_text, end_text, begin_line, end_line, word, or not_word."""

    kind: str


class Sequence(msgspec.Struct, frozen=True):
    parts: tuple["Tree", ...]


class Choice(msgspec.Struct, frozen=True):
    branches: tuple["Tree", ...]


class Repeat(msgspec.Struct, frozen=True):
    """`most` is None for no upper bound."""

    inner: "Tree"
    fewest: int
    most: int | None


Tree = Char | Assertion | Sequence | Choice | Repeat


def program_size(tree: Tree) -> int:
    """How many instructions the tree compiles to, known before any is made."""
    match tree:
        case Sequence(parts):
            return sum(map(program_size, parts))
        case Choice(branches):
            return sum(map(program_size, branches)) + 2 * len(branches)
        case Repeat(inner, fewest, most):
            copies = fewest + 1 if most is None else most
            return (program_size(inner) + 1) * max(copies, 1)
    return 1
