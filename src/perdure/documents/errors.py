"""A text that gives no data: the codes of what can be wrong, and the exception that carries every problem found."""

from collections.abc import Sequence

import msgspec

from perdure.kernel.problems import Problem

# How much a text may ask of its reader.


class Limits(msgspec.Struct, frozen=True):
    """Generous for people, tight for attackers."""

    size: int = 4_194_304  # bytes of text
    depth: int = 100  # lists and mappings inside each other
    nodes: int = 1_000_000  # keys and values once every alias is written out
    text: int = 33_554_432  # characters of them, likewise
    documents: int = 1_000  # in one text
    problems: int = 100  # told at once; then reading ends


DEFAULT_LIMITS = Limits()


ENCODING = "DOC-ENCODING"  # the bytes are not UTF-8 text
SYNTAX = "DOC-SYNTAX"  # the text is not YAML
UNQUOTED_TEMPLATE = "DOC-UNQUOTED-TEMPLATE"  # `a: {{ x }}`, which YAML takes for a mapping in a mapping
DUPLICATE_KEY = "DOC-DUPLICATE-KEY"
KEY = "DOC-KEY"  # a key that is no text
VALUE = "DOC-VALUE"  # a value without a form in JSON
ALIAS = "DOC-ALIAS"  # an alias without its anchor, or inside it
LIMIT = "DOC-LIMIT"  # larger, deeper or more unfolded than allowed
COUNT = "DOC-COUNT"  # no document where one is needed, or more than one


class UnreadableText(ValueError):
    """Why there is no data. `problems` are in the order of the text and never empty."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.describe("document") for problem in problems))
        self.problems = tuple(problems)
