"""What a decision or a judgement may ask of the house, besides the large values of its run: entries of the catalog and
of the cache. Who asks gets an answer or is told, once and for all of this asking, that there is none.
"""

from typing import Any

import msgspec

from perdure.kernel.values import Instant


class Named(msgspec.Struct, frozen=True):
    """The resource of this kind and name; answered with its document as data, or with None."""

    kind: str
    namespace: str  # empty for kinds that have none
    name: str


class Within(msgspec.Struct, frozen=True):
    """Every resource of a kind in a namespace; answered with a list of documents as data, in order of name."""

    kind: str
    namespace: str


class Cached(msgspec.Struct, frozen=True):
    """What was remembered under a key, by whichever run; answered with a `Memory`, or with None."""

    key: str


class Memory(msgspec.Struct, frozen=True):
    """A value that outlives the run which found it."""

    value: bytes  # JSON text
    created_at: Instant
    expires_at: Instant | None = None


Question = Named | Within | Cached
Answers = dict[Question, Any]
