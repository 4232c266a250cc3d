"""What a decision or a judgement may ask of the house, besides the large values of its run: entries of the catalog and
of the cache. Who asks gets an answer or is told, once and for all of this asking, that there is none.
"""

from typing import Any

import msgspec


class Named(msgspec.Struct, frozen=True):
    """The resource of this kind and name; answered with its document as data, or with None."""

    kind: str
    namespace: str  # empty for kinds that have none
    name: str


class Within(msgspec.Struct, frozen=True):
    """Every resource of a kind in a namespace; answered with a list of documents as data, in order of name."""

    kind: str
    namespace: str


Question = Named | Within
Answers = dict[Question, Any]
