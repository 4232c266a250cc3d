"""From text to tokens. Reports every character it cannot use; knows no grammar."""

import re
from collections.abc import Callable

import msgspec

from perdure.kernel.lazy_regex import lazy_regex

Report = Callable[[int, str], None]

KEYWORDS = frozenset({"true", "false", "null", "in"})
RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)


class Token(msgspec.Struct, frozen=True):
    """`kind` is int, uint, double, string, bytes, name, quoted, end, or the text of a keyword or symbol."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


_QUOTED = r"""'''(?:[^\\]|\\[\s\S])*?'''|\"""(?:[^\\]|\\[\s\S])*?\"""|'(?:[^'\\\r\n]|\\.)*'|"(?:[^"\\\r\n]|\\.)*\""""
_RAW = r"""'''[\s\S]*?'''|\"""[\s\S]*?\"""|'[^'\r\n]*'|"[^"\r\n]*\""""
STRING_LITERAL = rf"[bB]?(?:[rR](?:{_RAW})|(?:{_QUOTED}))"  # strings and bytes, for callers that must skip them
_TOKEN = lazy_regex(
    rf"""
      (?P<blank>[\t\n\f\r\ ]+|//[^\n]*)
    | (?P<bytes>[bB](?:[rR](?:{_RAW})|(?:{_QUOTED})))
    | (?P<string>[rR](?:{_RAW})|(?:{_QUOTED}))
    | (?P<double>(?:[0-9]+\.[0-9]+|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    | (?P<int>0x[0-9a-fA-F]+|[0-9]+)
    | (?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    | (?P<quoted>`[a-zA-Z0-9_.\-/\ ]+`)
    | (?P<symbol>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{{}}])
    """,
    re.VERBOSE,
)


def tokenize(text: str, report: Report) -> list[Token]:
    """All tokens, ended by one of kind `end`. Anything else is reported and skipped."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            at = _skip_bad(text, at, report)
            continue
        kind, lexeme = str(match.lastgroup), match.group()
        if kind == "symbol" or (kind == "name" and lexeme in KEYWORDS):
            kind = lexeme
        if kind != "blank":
            tokens.append(Token(kind, lexeme, at))
        at = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


def _skip_bad(text: str, at: int, report: Report) -> int:
    if text[at] in "'\"":
        report(at, "this string is not closed")
        return len(text)
    if text[at] == "`":
        report(at, "a quoted name holds letters, digits, `_`, `.`, `-`, `/` and spaces, and ends with a backquote")
        end = text.find("`", at + 1)
        return len(text) if end < 0 else end + 1
    report(at, f"unexpected character {text[at]!r}")
    return at + 1
