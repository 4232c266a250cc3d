"""What a decision or a judgement may ask of the house, besides the large values of its run: entries of the catalog and
of the cache. Who asks gets an answer or is told, once and for all of this asking, that there is none.
"""

from typing import Any

import msgspec

from perdure.kernel.values import Instant, RunId


class ResourceKey(msgspec.Struct, gc=False, frozen=True):
    """The resource of this kind and name; answered with its document as data, or with None."""

    kind: str
    namespace: str  # empty for kinds that have none
    name: str


class ResourcesInNamespace(msgspec.Struct, gc=False, frozen=True):
    """Every resource of a kind in a namespace; answered with a list of documents as data, in order of name."""

    kind: str
    namespace: str


class CacheLookup(msgspec.Struct, gc=False, frozen=True):
    """What was remembered under a key, by whichever run; answered with a `CachedValue`, or with None."""

    key: str


class CalleeLookup(msgspec.Struct, gc=False, frozen=True):
    """A document of the catalog that can be run; answered with a `Callee`, or with None."""

    name: str
    version: str | None = None  # of the entry; None: its latest


class Callee(msgspec.Struct, gc=False, frozen=True):
    """A document, ready to be run: what a run of it is pinned to."""

    language: str
    text: bytes
    calls: bool = True  # it may start others in its turn


class QueuedTaskLookup(msgspec.Struct, gc=False, frozen=True):
    """Whether a task still waits in its pool, and no worker has it; answered with True or False."""

    run: RunId
    task: int


class StrandedRunLookup(msgspec.Struct, gc=False, frozen=True):
    """Whether a run cannot end by itself, because it is stuck, has no live owner or is gone; True or False."""

    parent: RunId
    run: RunId


class PermitQueueLookup(msgspec.Struct, gc=False, frozen=True):
    """How a scope of permits stands for one run; answered with a `PermitQueue`."""

    scope: str
    run: RunId


class PermitQueue(msgspec.Struct, gc=False, frozen=True):
    held: int  # permits that are granted, over all runs
    highest: int | None = None  # the highest priority, ageing counted, of another run that holds one or waits


class CachedValue(msgspec.Struct, gc=False, frozen=True):
    """A value that outlives the run which found it."""

    value: bytes  # JSON text
    created_at: Instant
    expires_at: Instant | None = None


Lookup = (
    ResourceKey
    | ResourcesInNamespace
    | CacheLookup
    | CalleeLookup
    | QueuedTaskLookup
    | StrandedRunLookup
    | PermitQueueLookup
)
LookupAnswers = dict[Lookup, Any]
