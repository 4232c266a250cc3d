"""Errors of expressions and templates of any language.

`SyntaxFault` is raised when compiling and lists every problem. Everything that an evaluation raises is a `Failure`:
`EvaluationFault` when there is no value for these data (in CEL, `&&` and `||` may absorb it), `LimitExceeded` when the
expression needs too much (nothing absorbs it). What a step waits for, retries or fails on is decided by the dialect.
Jinja's errors also have codes; they share `LocatedError`.
"""

from collections.abc import Callable

from perdure.expressions.source import ExpressionProblem, Position, Source, Spanned


class ExpressionError(Exception):
    """Base of all errors that an expression language raises on purpose."""


class SyntaxFault(ExpressionError):
    """The text is not an expression of the language, or uses something that its context does not allow."""

    def __init__(self, findings: tuple[ExpressionProblem, ...]) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = findings


class OutOfStack(SyntaxFault):
    """The caller left too little stack to compile. This depends on the caller, not on the text: never cache it."""


class LocatedError(ExpressionError):
    """A message and, once known, the part of the text that it is about."""

    place = ""  # the path to the expression, if it is inside a larger value

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.position: Position | None = None
        self.expression: str | None = None
        self._picture = ""

    def _locate(self, source: Source, offset: int, fragment: str) -> None:
        self.position = source.position(offset)
        self.expression = fragment
        self._picture = source.point_at(offset)

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        if self.position is None:
            return place + self.message
        return f"{place}{self.position}: {self.message}, in `{self.expression}`\n{self._picture}"


class Failure(LocatedError):
    """A failure of one evaluation."""

    def __init__(self, message: str, culprit: Spanned | None = None, hint: Callable[[], str] | None = None) -> None:
        super().__init__(message)
        self.culprit = culprit
        self._hint = hint  # called only when the failure is shown: most are absorbed and must stay cheap

    def blame(self, culprit: Spanned) -> None:
        """Name the sub-expression, unless a smaller one was already named."""
        if self.culprit is None:
            self.culprit = culprit

    def locate(self, source: Source) -> None:
        """Fill in position, sub-expression and picture; a failure without a node stays unchanged."""
        if self._hint is not None:
            self.message += self._hint()
            self._hint = None
        if self.culprit is not None:
            offset = getattr(self.culprit, "focus", self.culprit.start)
            self._locate(source, offset, source.fragment(self.culprit.start, self.culprit.end))


class EvaluationFault(Failure):
    """The expression has no value for these data."""


class LimitExceeded(Failure):
    """The expression needed more steps, depth, output or size than allowed."""
