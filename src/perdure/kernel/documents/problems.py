"""Problems of a document: all are reported at once, each with its place and what to do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Problem(msgspec.Struct, frozen=True):
    code: str
    message: str
    path: str = ""  # `steps[0].with`, empty for the whole document
    line: int | None = None
    column: int | None = None
    hint: str = ""
    severity: Severity = Severity.ERROR

    def describe(self, origin: str) -> str:
        place = origin if self.line is None else f"{origin}:{self.line}:{self.column}"
        path = f" ({self.path})" if self.path else ""
        hint = f"\n    {self.hint}" if self.hint else ""
        return f"{place}: {self.severity}: {self.message}{path} [{self.code}]{hint}"


MOST_COMPARED = 20_000
"""Names that are compared for suggestions about one document: about a second of work."""

LONGEST_GUESSED = 100
"""Characters of a name for which others are suggested: comparing takes the product of the lengths."""

_left: ContextVar[list[int] | None] = ContextVar("names_left_to_compare", default=None)


@contextmanager
def limited_guesses() -> Iterator[None]:
    """For the validation of one document: guessing is slow, and nobody fixes thousands of problems at a time."""
    before = _left.set([MOST_COMPARED])
    try:
        yield
    finally:
        _left.reset(before)


def guess(name: str, candidates: Sequence[str]) -> str:
    """`; did you mean 'x'?`, or nothing."""
    left = _left.get()
    if left is not None:
        left[0] -= len(candidates)
        if left[0] < 0:
            return ""
    if len(name) > LONGEST_GUESSED:
        return ""
    from difflib import get_close_matches

    lowered, short = name.lower(), [candidate for candidate in candidates if len(candidate) <= LONGEST_GUESSED]
    same = [candidate for candidate in short if candidate.lower() == lowered]
    near = same or get_close_matches(name, short, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
