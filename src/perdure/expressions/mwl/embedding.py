"""Which JSON strings are expressions.

A string is one when it begins with `{{`, ends with `}}`, and that one pair spans the whole value (MWL-100).
Everything else is a literal, used as written.
"""

import re

from perdure.expressions.cel.tokens import STRING_LITERAL

_MARK = re.compile(rf"(?P<string>{STRING_LITERAL})|[{{}}]", re.DOTALL)


def find_expression(text: str) -> str | None:
    """The body of the expression, or None for a literal."""
    if len(text) < 4 or not text.startswith("{{") or not text.endswith("}}"):
        return None
    closer = _find_closer(text)
    if closer is not None and closer != len(text) - 2:
        return None  # the pair ends earlier: two pairs, or text behind the first
    return text[2:-2]


def _find_closer(text: str) -> int | None:
    """The first `}}` outside braces and string literals (MWL-101); None when the body is unbalanced."""
    depth = 0
    at = 2
    while mark := _MARK.search(text, at):
        at = mark.end()
        if mark["string"]:
            continue
        if mark[0] == "{":
            depth += 1
        elif depth > 0:
            depth -= 1
        elif text.startswith("}}", mark.start()):
            return mark.start()
    return None
