"""What a decision or a validation may look up, besides the large values of its run: catalog entries and the cache.

The caller gets an answer, or is told that there is none, which holds until the decision has been made.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from perdure.kernel.json_values.values import Instant, RunId


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
    """A value that some run has stored under a key; answered with a `CachedValue`, or with None."""

    key: str


class CalleeLookup(msgspec.Struct, gc=False, frozen=True):
    """A document of the catalog that can be run; answered with a `Callee`, or with None."""

    name: str
    version: str | None = None  # of the entry; None: its latest
    namespace: str = "default"  # of the run that asks
    language: str = ""  # only a document of this one; empty: of any, and then the name must have one meaning


ORIGIN, FROM_API = "origin", "api"
"""The member of the metadata of a resource that was written through the API of a server, and its value."""


class Callee(msgspec.Struct, gc=False, frozen=True):
    """A document ready to be run: what a run of it is pinned to."""

    language: str
    text: bytes
    calls: bool = True  # it may start other documents itself
    from_api: bool = False  # it came through the API of a server


class QueuedTaskLookup(msgspec.Struct, gc=False, frozen=True):
    """Whether a task is still queued in its pool and no worker has it; answered with True or False."""

    run: RunId
    task: int


class StrandedRunLookup(msgspec.Struct, gc=False, frozen=True):
    """Whether a run cannot end by itself, because it is stuck, has no live owner or is gone; True or False."""

    parent: RunId
    run: RunId


class PermitQueueLookup(msgspec.Struct, gc=False, frozen=True):
    """The state of a scope of permits, for one run; answered with a `PermitQueue`."""

    scope: str
    run: RunId


class PermitQueue(msgspec.Struct, gc=False, frozen=True):
    held: int  # permits granted, over all runs
    highest: int | None = None  # the highest priority, with ageing, of another run that holds a permit or waits for one


class CachedValue(msgspec.Struct, gc=False, frozen=True):
    """A value that outlives the run which computed it."""

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
Fetch = Callable[[Sequence[Lookup]], Awaitable[LookupAnswers]]
