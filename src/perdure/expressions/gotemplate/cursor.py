"""A parser's position in its tokens, its nesting depth, and how it reports problems."""

from collections.abc import Sequence

from perdure.expressions.errors import SyntaxFault
from perdure.expressions.gotemplate.budget import Limits
from perdure.expressions.gotemplate.tokens import Token, tokenize
from perdure.expressions.source import ExpressionProblem, Source


class TokenCursor:
    """Moves forward only."""

    __slots__ = ("_at", "_depth", "_limit", "_source", "_tokens")

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._tokens: Sequence[Token] = tokenize(source.text, limits.words, self.refuse)
        self._at = 0
        self._limit = limits.depth
        self._depth = 0

    @property
    def current(self) -> Token:
        return self._tokens[self._at]

    @property
    def following(self) -> Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    @property
    def previous(self) -> Token:
        return self._tokens[self._at - 1]

    def advance(self) -> Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def expect(self, kind: str, message: str) -> Token:
        if self.current.kind != kind:
            raise self.refuse_current(message)
        return self.advance()

    def enter(self) -> None:
        """Go one level deeper; `leave` returns."""
        self._depth += 1
        if self._depth > self._limit:
            raise self.refuse(self.current.start, f"this is nested deeper than {self._limit} levels")

    def leave(self) -> None:
        self._depth -= 1

    def refuse(self, offset: int, message: str) -> SyntaxFault:
        return SyntaxFault((ExpressionProblem.at(self._source, offset, message),))

    def refuse_current(self, message: str) -> SyntaxFault:
        token = self.current
        met = {"eof": "the end of the template", "close": "`}}`", "text": "text"}.get(
            token.kind, f"`{token.text[:60]}`"
        )
        return self.refuse(token.start, f"{message}, not {met}")
