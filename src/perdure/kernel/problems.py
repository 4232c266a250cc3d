"""What is wrong with a document: every problem at once, each with its place and what to do."""

from collections.abc import Sequence
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
        where = f" ({self.path})" if self.path else ""
        hint = f"\n    {self.hint}" if self.hint else ""
        return f"{place}: {self.severity}: {self.message}{where} [{self.code}]{hint}"


def guess(word: str, known: Sequence[str]) -> str:
    """`; did you mean 'x'?`, or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
