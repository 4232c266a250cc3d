"""Expressions that add to the end of something: `path + more`. Seen when they are compiled, not by comparing values.

So is a choice of which either arm does: `condition ? path + more : path`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perdure.expressions.cel import SyntaxFault, syntax
from perdure.expressions.cel.frame import DEFAULT_LIMITS
from perdure.expressions.cel.names import dotted_path
from perdure.expressions.cel.parser import parse
from perdure.expressions.mwl.expression import Expression, compile_expression
from perdure.expressions.mwl.functions import ClockPin
from perdure.expressions.mwl.results import Json, Purse
from perdure.expressions.source import Source
from perdure.kernel.lazy_regex import lazy_regex

_NOT_BLANK = lazy_regex(r"[^\n]")

Path = tuple[str, ...]


class Choice(msgspec.Struct, frozen=True):
    when: Expression
    then: "More"
    otherwise: "More"


More = Expression | Choice | None
"""What is added; None for an arm that adds nothing."""


class Growth(msgspec.Struct, frozen=True):
    path: Path  # to what grows
    more: More  # what is added to it; faults point into the whole expression

    @property
    def bodies(self) -> list[str]:
        """Of all expressions that may be evaluated."""
        return [expression.body for expression in _expressions(self.more)]

    def added(
        self, is_text: bool, roots: Mapping[str, Any], clock: ClockPin | None = None, purse: Purse | None = None
    ) -> Json:
        """What is added to a text or a list; what fits neither where the whole expression has to say what is wrong."""
        more = self.more
        while isinstance(more, Choice):
            holds = more.when.evaluate(roots, clock, purse)
            if not isinstance(holds, bool):
                return None
            more = more.then if holds else more.otherwise
        if more is None:
            return "" if is_text else []
        return more.evaluate(roots, clock, purse)

    def fits(self, is_text: bool, elements: int, weight: int, added: Json) -> bool:
        """Whether the sum is a list or a text, and as a whole not larger than an expression may make."""
        if isinstance(added, str):
            return is_text and weight + len(added) <= DEFAULT_LIMITS.size
        if is_text or not isinstance(added, list):
            return False
        texts = sum(len(item) for item in added if isinstance(item, str))
        return 8 * (elements + len(added)) + weight + texts <= DEFAULT_LIMITS.size


def _expressions(more: More) -> Iterator[Expression]:
    if isinstance(more, Expression):
        yield more
    elif isinstance(more, Choice):
        yield more.when
        yield from _expressions(more.then)
        yield from _expressions(more.otherwise)


def find_growth(body: str, roots: frozenset[str]) -> Growth | None:
    """The growth that an expression is, or None. `a.b + c + d` adds `c + d`."""
    if "+" not in body:
        return None
    try:
        tree = parse(Source(body), DEFAULT_LIMITS.depth)
        path, more = _Finder(body, roots).find(tree, 0, len(body))
    except (SyntaxFault, RecursionError, _NoGrowth):
        return None  # what is wrong is told by the expression itself
    return None if more is None else Growth(path, more)


class _NoGrowth(Exception):
    """It is something else."""


class _Finder:
    def __init__(self, body: str, roots: frozenset[str]) -> None:
        self._body = body
        self._roots = roots

    def find(self, node: syntax.Node, start: int, end: int) -> tuple[Path, More]:
        """What the node, written between these places, adds to which path."""
        if isinstance(node, syntax.Ternary):
            return self._choice(node, start, end)
        if isinstance(node, syntax.Chain) and all(part.operator == "+" for part in node.rest):
            return self._path(node.first), self._compiled(node.rest[0].focus + 1, end)
        return self._path(node), None

    def _choice(self, node: syntax.Ternary, start: int, end: int) -> tuple[Path, More]:
        mark = self._body.index("?", node.condition.end, node.then.start)
        colon = self._body.index(":", node.then.end, node.otherwise.start)
        path, then = self.find(node.then, mark + 1, colon)
        other, otherwise = self.find(node.otherwise, colon + 1, end)
        if path != other:
            raise _NoGrowth
        if then is None and otherwise is None:
            return path, None
        return path, Choice(self._compiled(start, mark), then, otherwise)

    def _path(self, node: syntax.Node) -> Path:
        found = dotted_path(node)
        if found is None or found[1] or found[0][0] not in self._roots or len(found[0]) < 2:
            raise _NoGrowth
        return found[0]

    def _compiled(self, start: int, end: int) -> Expression:
        """This part of the text, where it stands; parentheses around more than it are left out."""
        part = self._body[start:end]
        inside = part.count("(") - part.count(")")
        while inside < 0 and part.rstrip().endswith(")"):
            part, inside = part.rstrip()[:-1], inside + 1
        while inside > 0 and part.lstrip().startswith("("):
            start += len(part) - len(part.lstrip()) + 1
            part, inside = part.lstrip()[1:], inside - 1
        found = compile_expression(_NOT_BLANK.sub(" ", self._body[:start]) + part, self._roots)
        if not found.is_sound:
            raise _NoGrowth
        return found
