"""The tree of a pattern. Groups are gone: nothing is extracted."""

from dataclasses import dataclass

from perdure.expressions.regex.charset import CharSet

LARGEST_PROGRAM = 5000  # instructions


@dataclass(frozen=True, slots=True)
class Char:
    accepted: CharSet


@dataclass(frozen=True, slots=True)
class Assertion:
    """`kind` is begin_text, end_text, begin_line, end_line, word, or not_word."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple["Tree", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    branches: tuple["Tree", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
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
