"""The change feed of a store: changes of the status of runs and of the catalog, in one order for all who read it.

A change is a row that is written in the transaction of the change. Rows are written only while somebody wants them:
an engine that nobody follows pays nothing. A position is never given twice, also after the feed was closed or the store
was copied: a new feed begins at the store's clock in microseconds, and there are fewer changes than that.
"""

import json
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from perdure.kernel.json_values.values import Instant

FOREVER: Instant = 1 << 62
RUN = "run"  # the kind of changes of the status of runs
SHOWN = "shown"  # of other changes of runs that their language shows as resources; all other kinds are those of entries


class EntryFacts(msgspec.Struct, gc=False, frozen=True):
    """What an entry is besides what it says."""

    uid: str
    generation: int
    created_at: Instant
    status: bytes | None
    managers: bytes | None = None


_NULL = msgspec.Raw(b"null")


class _KeptEntry(msgspec.Struct, gc=False, frozen=True):
    """How a store keeps an entry in the feed, made by its own statements."""

    uid: str
    generation: int
    created_at: Instant
    status: msgspec.Raw
    object: msgspec.Raw
    managers: msgspec.Raw = _NULL


class FeedChange(msgspec.Struct, gc=False, frozen=True):
    """One change, with what was changed as it was then: the run or the entry may be gone when this is read."""

    position: int
    at: Instant
    kind: str
    namespace: str
    name: str  # of the entry; the id of the run
    number: int  # events of the run; version of the entry
    is_removed: bool
    status: str | None  # of a run; after its removal the last one
    language: str | None
    document: str | None  # what the run executes
    parent: str | None
    labels: dict[str, str]
    started_at: Instant | None
    ended_at: Instant | None
    body: bytes | None
    """Of an entry: the object as JSON, after its removal the last one. Of a run that was removed: what it showed."""
    entry: EntryFacts | None = None


class FeedPage(msgspec.Struct, gc=False, frozen=True):
    floor: int  # changes up to this position are gone
    last: int  # the last position that was given
    changes: Sequence[FeedChange] = ()

    def continues(self, position: int) -> bool:
        """Whether everything behind the position is still there."""
        return self.floor <= position <= self.last


FEED_COLUMNS = (
    "position, at, kind, namespace, name, number, is_removed, status, language, document, parent, labels, started_at,"
    " ended_at, body"
)


KEPT = b'{"uid":'
"""How the text of an entry begins in the feed."""


def feed_change(row: tuple[Any, ...]) -> FeedChange:
    position, at, kind, namespace, name, number, is_removed, status, language, document, parent, labels, *rest = row
    head = (position, at, kind, namespace, name, number, bool(is_removed), status, language, document, parent)
    shown = json.loads(labels) if labels else {}
    started_at, ended_at, body = rest
    if body is None or not body.startswith(KEPT):
        return FeedChange(*head, shown, started_at, ended_at, body)
    kept = msgspec.json.decode(body, type=_KeptEntry)
    status, managers = (None if text == b"null" else text for text in (bytes(kept.status), bytes(kept.managers)))
    facts = EntryFacts(kept.uid, kept.generation, kept.created_at, status, managers)
    return FeedChange(*head, shown, started_at, ended_at, bytes(kept.object), facts)


class ChangeFeedStore(Protocol):
    async def open_feed(self, until: Instant) -> FeedPage:
        """Have changes written until then, at least; while there are hooks, for ever.

        If none were written up to now, a new feed begins behind all positions that were ever given; every change that
        is committed after this returns is in it.
        """

    async def read_feed(self, after: int, limit: int) -> FeedPage:
        """Changes behind the position, in order. No change ever appears at or below a position that was answered."""

    async def has_changed(self, after: int, kinds: Sequence[str], namespace: str, name: str) -> bool:
        """Whether there is a change behind the position of what has this name, also one that was not read yet."""

    async def is_feed_open(self) -> bool:
        """Whether changes are written now."""

    async def trim_feed(self, before: Instant, limit: int) -> int:
        """Remove up to `limit` changes that are older than this, the oldest first, none that a hook has not read; how
        many.
        """
