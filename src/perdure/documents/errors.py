"""Texts that cannot be read: the limits, the codes of problems, and the exception that carries all problems."""

from collections.abc import Sequence

import msgspec

from perdure.kernel.documents.problems import Problem

# Limits of a text.


class Limits(msgspec.Struct, frozen=True):
    """Far above what people write, and small enough to stop attacks."""

    size: int = 4_194_304  # bytes of text
    depth: int = 100  # lists and mappings inside each other
    nodes: int = 1_000_000  # keys and values, with every alias expanded
    text: int = 33_554_432  # characters of them, likewise
    documents: int = 1_000  # in one text
    problems: int = 100  # reported at once; then reading stops


DEFAULT_LIMITS = Limits()


ENCODING = "DOC-ENCODING"  # the bytes are not UTF-8 text
SYNTAX = "DOC-SYNTAX"  # the text is not YAML
UNQUOTED_TEMPLATE = "DOC-UNQUOTED-TEMPLATE"  # `a: {{ x }}`, which YAML takes for a mapping in a mapping
DUPLICATE_KEY = "DOC-DUPLICATE-KEY"
KEY = "DOC-KEY"  # a key that is not text
VALUE = "DOC-VALUE"  # a value that cannot be represented in JSON
ALIAS = "DOC-ALIAS"  # an alias without its anchor, or inside it
LIMIT = "DOC-LIMIT"  # larger or deeper than allowed, with aliases expanded
COUNT = "DOC-COUNT"  # no document where one is needed, or more than one


class UnreadableText(ValueError):
    """The text cannot be read. `problems` are in the order of the text and never empty."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.describe("document") for problem in problems))
        self.problems = tuple(problems)
