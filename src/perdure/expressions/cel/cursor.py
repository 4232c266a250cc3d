"""A position in the tokens of a source, and the problem to report when an unexpected one is there."""

from typing import NoReturn

from perdure.expressions.cel.tokens import Token, tokenize
from perdure.expressions.source import ExpressionProblem, Source

_MOST_FINDINGS = 20
_OPENERS, _CLOSERS = ("(", "[", "{"), (")", "]", "}")


class ParseAborted(Exception):
    """Unwinds to the next place where parsing can continue. The problem is already reported."""


class TokenCursor:
    """Reads tokens from left to right and collects problems."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.findings: list[ExpressionProblem] = []
        self._tokens = tokenize(source.text, self.report)
        self._next = 0

    @property
    def start(self) -> int:
        """Where the next token starts."""
        return self._tokens[self._next].start

    @property
    def end(self) -> int:
        """Where the last consumed token ended."""
        return self._tokens[self._next - 1].end

    def peek(self, ahead: int = 0) -> str:
        return self._tokens[self._next + ahead].kind

    def take(self) -> Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
            return token
        self.fail("the expression ends too early" if self._next else "expected an expression")

    def put_back(self) -> None:
        self._next -= 1

    def accept(self, kind: str) -> bool:
        if self._tokens[self._next].kind != kind:
            return False
        self._next += 1
        return True

    def expect(self, kind: str) -> None:
        if not self.accept(kind):
            self.fail(f"expected `{kind}`, not {self.describe()}")

    def describe(self) -> str:
        token = self._tokens[self._next]
        return "the end" if token.kind == "end" else f"`{token.text[:40]}`"

    def report(self, offset: int, message: str) -> None:
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(ExpressionProblem.at(self.source, offset, message))

    def fail(self, message: str) -> NoReturn:
        self.report(self.start, message)
        raise ParseAborted

    def give_up(self, message: str) -> NoReturn:
        """Report a problem after which parsing cannot continue."""
        self.report(self.start, message)
        self._next = len(self._tokens) - 1
        raise ParseAborted

    def skip_to(self, closer: str) -> None:
        """Skip what was not understood, up to a comma or the closing bracket of the same level."""
        nesting = 0
        while (kind := self.peek()) != "end":
            if nesting == 0 and kind in (",", closer):
                return
            nesting += (kind in _OPENERS) - (kind in _CLOSERS)
            if nesting < 0:
                return
            self._next += 1
