"""From text to tokens: text outside `{{ }}` is one token, text inside is split into tokens.

Trim markers and comments are removed here; no grammar is known. Blanks are not tokens: each token records whether one
came before it, because `x .y` and `x.y` differ.
"""

import re
from collections.abc import Callable

import msgspec

from perdure.expressions.errors import SyntaxFault
from perdure.kernel.lazy_regex import lazy_regex

Refuse = Callable[[int, str], SyntaxFault]

KEYWORDS = frozenset(["if", "else", "end", "range", "with", "break", "continue", "define", "template", "block"])
_BLANKS = " \t\r\n"


class Token(msgspec.Struct, frozen=True):
    """`kind` is text, open, close, name, field, variable, number, char, string, raw, eof, a keyword or a symbol."""

    kind: str
    text: str
    start: int
    spaced: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.text)


_OPEN = lazy_regex(r"\{\{(-(?=[ \t\r\n]))?")
_BLANK = lazy_regex(r"[ \t\r\n]*")
_WORD = lazy_regex(
    r"""
      (?P<number>[+-]?(?:\.[0-9]|[0-9])(?:[eEpP][+-]|[\w.])*)
    | (?P<char>'(?:[^'\\\n]|\\[^\n])*')
    | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
    | (?P<raw>`[^`]*`)
    | (?P<field>\.\w+)
    | (?P<variable>\$\w*)
    | (?P<name>[^\W\d]\w*)
    | (?P<symbol>:=|[|()\[\],=.])
    """,
    re.VERBOSE,
)


def tokenize(text: str, most: int, refuse: Refuse) -> list[Token]:
    """All tokens, but not more than `most`, ended by one of kind `eof`."""
    tokens: list[Token] = []
    at, trims = 0, False
    while True:
        opening = _OPEN.search(text, at)
        literal = text[at : opening.start() if opening else len(text)]
        if trims:
            literal = literal.lstrip(_BLANKS)
        if opening and opening[1]:
            literal = literal.rstrip(_BLANKS)
        if literal:
            tokens.append(Token("text", literal, at))
        if opening is None:
            tokens.append(Token("eof", "", len(text)))
            return tokens
        inside = opening.end() + bool(opening[1])
        if text.startswith("/*", inside):
            at, trims = _skip_comment(text, inside + 2, opening.start(), refuse)
        else:
            tokens.append(Token("open", opening.group(), opening.start()))
            at, trims = _read_action(text, opening.end(), tokens, refuse)
            if len(tokens) > most:
                raise refuse(opening.start(), f"the template has more than {most} words")


def _skip_comment(text: str, at: int, opening: int, refuse: Refuse) -> tuple[int, bool]:
    stop = text.find("*/", at)
    if stop < 0:
        raise refuse(opening, "this comment is not closed")
    for closing in ("}}", " -}}", "\t-}}", "\r-}}", "\n-}}"):
        if text.startswith(closing, stop + 2):
            return stop + 2 + len(closing), len(closing) > 2
    raise refuse(stop, "a comment ends with `*/}}` or `*/ -}}`, and stands alone in its braces")


def _read_action(text: str, at: int, tokens: list[Token], refuse: Refuse) -> tuple[int, bool]:
    opening = tokens[-1].start
    while True:
        past_blanks = _BLANK.match(text, at).end()  # type: ignore[union-attr]  # matches always
        spaced, at = past_blanks > at, past_blanks
        for closing in ("}}", "-}}"):
            if text.startswith(closing, at) and (spaced or closing == "}}"):
                tokens.append(Token("close", closing, at, spaced))
                return at + len(closing), len(closing) > 2
        match = _WORD.match(text, at)
        if match is None:
            raise refuse(*_explain(text, at, opening))
        kind, text_of_word = str(match.lastgroup), match.group()
        if kind == "symbol" or (kind == "name" and text_of_word in KEYWORDS):
            kind = text_of_word
        tokens.append(Token(kind, text_of_word, at, spaced))
        at = match.end()


def _explain(text: str, at: int, opening: int) -> tuple[int, str]:
    if at >= len(text) or text.startswith("{{", at):
        return opening, "this action is not closed: `}}` is missing"
    if text[at] in "'\"`":
        return at, "this quoted text is not closed"
    if text[at] == "-":
        return at, "unexpected `-`; a name with a dash is written as steps['my-step']"
    return at, f"unexpected character {text[at]!r}"
