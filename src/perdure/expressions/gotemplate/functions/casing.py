"""Words joined in other ways: snake_case, kebab-case, CamelCase. Spaces, `_` and `-` are what joins words."""

import re
from itertools import pairwise

from perdure.expressions.gotemplate.functions.library import TEXT, takes

_JOINTS = re.compile(r"[\s_-]+")
# A capital after a small letter or digit begins a word, and so does the last of several capitals before a small one.
_BEGINNINGS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def join_words(text: str, joint: str) -> str:
    return _JOINTS.sub(joint, _BEGINNINGS.sub(joint, text)).lower()


def camel_case(text: str) -> str:
    """Every word begins with a capital; in a row of capitals only the first stays one."""
    bare = text.lstrip("_- ")
    words = "".join(_capitalize(word) for word in _JOINTS.split(bare))
    return text[: len(text) - len(bare)] + words


def _capitalize(word: str) -> str:
    rest = (char.lower() if before.isupper() else char for before, char in pairwise(word))
    return word[:1].upper() + "".join(rest)


FUNCTIONS = {
    "camelcase": takes(camel_case, TEXT),
    "kebabcase": takes(lambda text: join_words(text, "-"), TEXT),
    "snakecase": takes(lambda text: join_words(text, "_"), TEXT),
}
