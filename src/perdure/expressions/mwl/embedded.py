"""Which JSON strings are expressions.

A string is one when it begins with `{{`, ends with `}}`, and that one pair spans the whole value (MWL-100). Everything
else is a literal, used as written.
"""

import re

from perdure.expressions.cel.tokens import STRING_LITERAL
from perdure.kernel.lazy_regex import lazy_regex

_STRING = lazy_regex(STRING_LITERAL, re.DOTALL)
_MARK = lazy_regex(r"[bB]?[rR]?['\"]|[{}]")


def find_expression(text: str) -> str | None:
    """The body of the expression, or None for a literal."""
    if len(text) < 4 or not text.startswith("{{") or not text.endswith("}}"):
        return None
    closer = _find_closer(text)
    if closer is not None and closer != len(text) - 2:
        return None  # the pair ends earlier: two pairs, or text after the first
    return text[2:-2]


def _find_closer(text: str) -> int | None:
    """The first `}}` outside braces and string literals (MWL-101); None when the body is unbalanced."""
    depth = 0
    at = 2
    unclosed: dict[str, int] = {}  # quote: how far it is known to be ordinary text, so that no text is scanned twice
    while mark := _MARK.search(text, at):
        at = mark.end()
        char = mark[0][-1]
        if char == "{":
            depth += 1
        elif char != "}":
            if at > unclosed.get(char, 0):
                string = _STRING.match(text, mark.start())
                at = string.end() if string else at
                unclosed[char] = 0 if string else _end_of_line(text, at)
        elif depth > 0:
            depth -= 1
        elif text.startswith("}}", mark.start()):
            return mark.start()
    return None


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
