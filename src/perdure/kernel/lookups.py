"""What a decision or a judgement may ask of the house, besides the large values of its run: entries of the catalog and
of the cache. Who asks gets an answer or is told, once and for all of this asking, that there is none.
"""

from typing import Any

import msgspec

from perdure.kernel.values import Instant, RunId


class Named(msgspec.Struct, gc=False, frozen=True):
    """The resource of this kind and name; answered with its document as data, or with None."""

    kind: str
    namespace: str  # empty for kinds that have none
    name: str


class Within(msgspec.Struct, gc=False, frozen=True):
    """Every resource of a kind in a namespace; answered with a list of documents as data, in order of name."""

    kind: str
    namespace: str


class Cached(msgspec.Struct, gc=False, frozen=True):
    """What was remembered under a key, by whichever run; answered with a `Memory`, or with None."""

    key: str


class Called(msgspec.Struct, gc=False, frozen=True):
    """A document of the catalog that can be run; answered with a `Callee`, or with None."""

    name: str
    version: str | None = None  # of the entry; None: its latest


class Callee(msgspec.Struct, gc=False, frozen=True):
    """A document, ready to be run: what a run of it is pinned to."""

    language: str
    text: bytes
    calls: bool = True  # it may start others in its turn


class Untaken(msgspec.Struct, gc=False, frozen=True):
    """Whether a task still waits in its pool, and no worker has it; answered with True or False."""

    run: RunId
    task: int


class Stranded(msgspec.Struct, gc=False, frozen=True):
    """Whether a run cannot end by itself, because it is stuck, has no live owner or is gone; True or False."""

    parent: RunId
    run: RunId


class InLine(msgspec.Struct, gc=False, frozen=True):
    """How a scope of permits stands for one run; answered with a `Line`."""

    scope: str
    run: RunId


class Line(msgspec.Struct, gc=False, frozen=True):
    held: int  # permits that are granted, over all runs
    highest: int | None = None  # the highest priority, ageing counted, of another run that holds one or waits


class Memory(msgspec.Struct, gc=False, frozen=True):
    """A value that outlives the run which found it."""

    value: bytes  # JSON text
    created_at: Instant
    expires_at: Instant | None = None


Question = Named | Within | Cached | Called | Untaken | Stranded | InLine
Answers = dict[Question, Any]
