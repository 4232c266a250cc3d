"""Words joined in other ways: snake_case, kebab-case, CamelCase. Spaces, `_` and `-` separate words."""

from collections.abc import Iterator
from itertools import pairwise

from perdure.expressions.gotemplate.functions.letters import lower, to_lower, upper
from perdure.expressions.gotemplate.functions.library import takes_letters
from perdure.kernel.lazy_regex import lazy_regex

_JOINTS = lazy_regex(r"[\s_-]+")
_PIECE = 50_000  # characters in which one call replaces joints


def join_words(text: str, joint: str) -> str:
    apart = "".join(joint + char if _begins_a_word(text, at) else char for at, char in enumerate(text))
    return lower("".join(_JOINTS.sub(joint, piece) for piece in _pieces(apart)))


def _pieces(text: str) -> Iterator[str]:
    """Parts of the text, between which no row of joints is divided."""
    at = 0
    while at < len(text):
        row = _JOINTS.match(text, at + _PIECE - 1)
        stop = row.end() if row else at + _PIECE
        yield text[at:stop]
        at = stop


def _begins_a_word(text: str, at: int) -> bool:
    """An upper-case letter after a lower-case one or a digit does, and the last of several before a lower-case one."""
    if at == 0 or not text[at].isupper():
        return False
    before = text[at - 1]
    return before.islower() or before.isdigit() or (before.isupper() and text[at + 1 : at + 2].islower())


def camel_case(text: str) -> str:
    """Every word begins with an upper-case letter; in a row of upper-case letters only the first stays one."""
    bare = text.lstrip("_- ")
    joined = "".join(_capitalize(word) for word in _JOINTS.split(bare))
    return text[: len(text) - len(bare)] + joined


def _capitalize(word: str) -> str:
    rest = (to_lower(char) if before.isupper() else char for before, char in pairwise(word))
    return upper(word[:1]) + "".join(rest)


FUNCTIONS = {
    "camelcase": takes_letters(camel_case),
    "kebabcase": takes_letters(lambda text: join_words(text, "-")),
    "snakecase": takes_letters(lambda text: join_words(text, "_")),
}
