"""Expressions that add to the end of something: `path + more`. Seen when they are compiled, not by comparing values."""

import msgspec

from perdure.expressions.cel import SyntaxFault, syntax
from perdure.expressions.cel.frame import DEFAULT_LIMITS
from perdure.expressions.cel.names import dotted_path
from perdure.expressions.cel.parser import parse
from perdure.expressions.mwl.expression import Expression, compile_expression
from perdure.expressions.mwl.results import Json
from perdure.expressions.source import Source
from perdure.kernel.late import late

_NOT_BLANK = late(r"[^\n]")


class Growth(msgspec.Struct, frozen=True):
    path: tuple[str, ...]  # to what grows
    more: Expression  # what is added to it; faults point into the whole expression

    def fits(self, is_text: bool, elements: int, weight: int, added: Json) -> bool:
        """Whether the sum is a list or a text, and as a whole not larger than an expression may make."""
        if isinstance(added, str):
            return is_text and weight + len(added) <= DEFAULT_LIMITS.size
        if is_text or not isinstance(added, list):
            return False
        texts = sum(len(item) for item in added if isinstance(item, str))
        return 8 * (elements + len(added)) + weight + texts <= DEFAULT_LIMITS.size


def find_growth(body: str, roots: frozenset[str]) -> Growth | None:
    """The growth that an expression is, or None. `a.b + c + d` adds `c + d`."""
    if "+" not in body:
        return None
    try:
        tree = parse(Source(body), DEFAULT_LIMITS.depth)
    except (SyntaxFault, RecursionError):
        return None  # told by the expression itself
    if not isinstance(tree, syntax.Chain) or any(part.operator != "+" for part in tree.rest):
        return None
    found = dotted_path(tree.first)
    if found is None or found[1] or found[0][0] not in roots or len(found[0]) < 2:
        return None
    behind = tree.rest[0].focus + 1
    more = compile_expression(_NOT_BLANK.sub(" ", body[:behind]) + body[behind:], roots)
    return Growth(found[0], more) if more.is_sound else None
