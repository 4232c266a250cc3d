"""What can go wrong with an expression, and how it is told.

`SyntaxFault` is raised by compiling and lists every problem found.
`EvaluationFault` is an error in CEL's sense: `&&` and `||` may absorb it.
`LimitExceeded` is ours: no operator absorbs it, evaluation ends.
"""

from collections.abc import Callable

from perdure.expressions.problems import Finding, Spanned
from perdure.expressions.source import Position, Source


class CelError(Exception):
    """Anything this room raises on purpose."""


class SyntaxFault(CelError):
    """The text is not a CEL expression."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = findings


class OutOfStack(SyntaxFault):
    """The caller left too little stack to compile. About this moment, not about the text: never remember it."""


class Failure(CelError):
    """A failure of an evaluation: a sentence, and once known the sub-expression it is about."""

    def __init__(self, message: str, culprit: Spanned | None = None, hint: Callable[[], str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.culprit = culprit
        self._hint = hint  # asked only when the failure is shown: most are absorbed and must stay cheap
        self.position: Position | None = None
        self.expression: str | None = None
        self._picture = ""

    def blame(self, culprit: Spanned) -> None:
        """Name the sub-expression, unless a smaller one was named already."""
        if self.culprit is None:
            self.culprit = culprit

    def locate(self, source: Source) -> None:
        """Fill in position, sub-expression and picture; a failure without a culprit stays as it is."""
        if self._hint is not None:
            self.message += self._hint()
            self._hint = None
        if self.culprit is None:
            return
        offset = getattr(self.culprit, "focus", self.culprit.start)
        self.position = source.position(offset)
        self.expression = source.fragment(self.culprit.start, self.culprit.end)
        self._picture = source.point_at(offset)

    def __str__(self) -> str:
        if self.position is None:
            return self.message
        return f"{self.position}: {self.message}, in `{self.expression}`\n{self._picture}"


class EvaluationFault(Failure):
    """The expression has no value for these data."""


class LimitExceeded(Failure):
    """The expression asked for more steps, depth or size than it was given."""
