"""Watches: an event for each change of the objects that somebody selects, from a version on."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perdure.engine.resources.catalog import ResourceNotFound
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.errors import UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.server.calls import EventStream
from perdure.server.kubernetes.discovery import NAMESPACE
from perdure.server.kubernetes.printed_tables import partial_object, table, wants_metadata, wants_table
from perdure.server.kubernetes.run_resources import is_before
from perdure.server.kubernetes.selectors import (
    FIRST_POSITION,
    ObjectQuery,
    ObjectSelection,
    list_version,
    read_number,
    split_version,
)
from perdure.server.kubernetes.statuses import status_object
from perdure.stores.feed_changes import RUN, SHOWN, FeedChange
from perdure.stores.protocol import Store
from perdure.views.api_errors import PositionExpired

if TYPE_CHECKING:
    from perdure.server.calls import ApiCall
    from perdure.server.kubernetes.discovery import ApiResource
    from perdure.server.kubernetes.feed_tail import FeedTail, ObjectChange

Object = dict[str, Any]
BOOKMARK_EVERY = 60.0  # seconds
LONGEST = 3_600.0  # seconds: who watches longer asks again
SEARCHED_AT_ONCE = 500
LISTED_AT_ONCE = 100  # objects of the list with which a watch begins


async def find_position(store: Store, version: int, kind: ResourceKind) -> int | None:
    """Of the change that gave an object of this kind the version with which it was read; None: that is gone.

    A run is read with as many events as it has, some of which may have changed nothing that is shown.
    """
    position, last = (await store.read_feed(0, 1)).floor, None
    while True:
        page = await store.read_feed(position, SEARCHED_AT_ONCE)
        for change in page.changes:
            if kind.of_runs:
                if change.kind in (RUN, SHOWN) and is_before(RunId(change.name), change.number, version):
                    last = change.position
            elif change.kind == kind.name and change.number == version:
                return change.position
        if len(page.changes) < SEARCHED_AT_ONCE:
            return last
        position = page.changes[-1].position


class Watch:
    def __init__(
        self, call: "ApiCall", resource: "ApiResource", objects: Any, tail: "FeedTail", selection: ObjectSelection
    ) -> None:
        self._call = call
        self._kind: ResourceKind = resource.kind
        self._is_core = resource.is_core  # nothing uses it that could be counted
        self._objects = objects
        self._tail = tail
        self._selection = selection
        self._query: ObjectQuery = call.query
        self._namespace = call.path.get("namespace") if resource.kind.has_namespace else None
        self._states: dict[str, bool] = {}  # whether an object matches, as the watcher was told
        self._knows_all = False  # it was told of all that match
        self._is_begun = False  # a table has had its header
        self._version()  # one that cannot be read is refused before the stream begins
        if self._query.send_initial_events is not None:
            raise UnfitInput("sendInitialEvents: not supported", hint="List first, then watch from that version.")

    def stream(self) -> EventStream:
        return EventStream(self._events(), {"Content-Type": "application/json;stream=watch"})

    async def _events(self) -> AsyncGenerator[bytes, None]:
        try:
            async for line in self._told():
                yield line
        except PositionExpired as gone:
            yield _line("ERROR", status_object(410, "Expired", str(gone)))

    async def _told(self) -> AsyncGenerator[bytes, None]:
        store, clock = self._call.engine.store, asyncio.get_running_loop().time
        page = await store.read_feed(0, 1)
        if self._version() in (None, 0):
            position, seen, self._knows_all = page.last, list_version(page.last), True
            behind: Sequence[Any] | None = []
            while behind is not None:
                if not self._is_allowed():
                    return
                async with self._tail.listing:  # who watches begins with a list, and many begin at once
                    items, behind = await self._objects.page(self._namespace, self._selection, LISTED_AT_ONCE, behind)
                    lines = [self._listed(item, seen) for item in items]
                yield b"".join(lines)
        else:
            seen = self._version() or 0
            if seen < FIRST_POSITION:
                seen = await self._read_version(seen, page.last)
            position = split_version(seen)[0] - 1
            if not page.floor <= position + 1 <= page.last:
                raise PositionExpired(f"too old resource version: {seen}")
            position = max(position, page.floor)
        ends_at = clock() + min(self._query.timeout_seconds or LONGEST, LONGEST)
        told_at = clock()
        async for changes in self._tail.follow(position):
            if not self._is_allowed():
                return
            for change in changes:
                for changed in await self._changes(change):
                    if changed.version > seen and (line := self._event(changed)) is not None:
                        yield line
                position = change.position
            seen = max(seen, list_version(position))
            now = clock()
            if self._query.allow_watch_bookmarks and now - told_at >= BOOKMARK_EVERY:
                told_at = now
                yield self._bookmark(seen)
            if now >= ends_at or self._call.server.is_stopping:
                if self._query.allow_watch_bookmarks:  # where the next watch goes on
                    yield self._bookmark(seen)
                return

    def _is_allowed(self) -> bool:
        """Whether the watcher may still see what they could see when they came."""
        is_allowed: bool = self._call.server.authentication.tokens.is_valid(self._call.caller)
        return is_allowed

    async def _read_version(self, version: int, last: int) -> int:
        """The same as a version of the feed: what has happened since is told. `last`: the feed's last position."""
        position = await find_position(self._call.engine.store, version, self._kind)
        if position is not None:
            return list_version(position)
        name = self._selection.fields.equal.get("metadata.name")
        is_one = name is not None and (self._namespace is not None or not self._kind.has_namespace)
        if name is not None and is_one and self._sees(self._namespace or "", name):
            with suppress(ResourceNotFound):
                item = await self._objects.get(self._namespace or "", name)
                if item["metadata"].get("resourceVersion") == str(version):  # it did not change for long
                    return list_version(last)
        raise PositionExpired(f"too old resource version: {version}")

    async def _changes(self, change: FeedChange) -> "list[ObjectChange]":
        if self._kind.name == "Event":
            return await self._tail.events(change)
        if self._kind.of_runs or change.kind != self._kind.name or self._is_core:
            return await self._tail.meaning(change)
        if self._kind.has_namespace and not self._call.caller.sees(change.namespace or ""):
            return []
        return await self._tail.counted(change, self._kind)

    def _sees(self, namespace: str, name: str) -> bool:
        """Whether the watcher may see this object: a Namespace is under its own name."""
        if self._kind is NAMESPACE:
            return self._call.caller.sees(name)
        return not self._kind.has_namespace or self._call.caller.sees(namespace)

    def _version(self) -> int | None:
        text = self._query.resource_version
        return read_number(text) if text else None

    def _event(self, changed: "ObjectChange") -> bytes | None:
        """What the watcher is told: that an object has begun to match, still does, or does not any more."""
        if changed.kind not in (self._kind.name, ""):
            return None
        shown = changed.last
        if not shown["kind"]:  # of a run that is gone
            if not self._kind.is_request:
                return None
            shown = {**shown, "apiVersion": self._kind.api_version, "kind": self._kind.name}
        metadata = shown["metadata"]
        namespace = metadata.get("namespace", "")
        if self._kind.has_namespace and self._namespace not in (None, namespace):
            return None
        if not self._sees(namespace, metadata["name"]):
            return None
        key = _key(shown)
        matched = self._states.get(key)
        if matched is None:
            matched = self._may_have_matched(changed)
        matches = changed.after is not None and self._selection.matches(changed.after)
        self._states[key] = matches
        if changed.after is None:
            del self._states[key]
        if matches:
            return self._line("MODIFIED" if matched else "ADDED", shown)
        return self._line("DELETED", shown) if matched and self._selection.fields.matches(shown) else None

    def _may_have_matched(self, changed: "ObjectChange") -> bool:
        """Before a change of an object that the watcher was not told of yet."""
        if changed.is_before_known:
            return changed.before is not None and self._selection.matches(changed.before)
        return not self._knows_all

    def _listed(self, item: Object, version: int) -> bytes:
        self._states[_key(item)] = True
        return self._line("ADDED", {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}})

    def _line(self, kind: str, item: Object) -> bytes:
        if wants_table(self._call):
            metadata = {"resourceVersion": item["metadata"].get("resourceVersion", "")}
            now = self._call.engine.clock.wall()
            included = self._query.include_object
            item = table(self._kind, [item], now, included, metadata, header=not self._is_begun)
            self._is_begun = True
        elif wants_metadata(self._call):
            item = partial_object(item)
        return _line(kind, item)

    def _bookmark(self, version: int) -> bytes:
        metadata = {"resourceVersion": str(version), "creationTimestamp": None}
        item = {"kind": self._kind.name, "apiVersion": self._kind.api_version, "metadata": metadata}
        return _line("BOOKMARK", item)


def _key(item: Object) -> str:
    metadata = item["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _line(kind: str, item: Object) -> bytes:
    return jsontext.encode({"type": kind, "object": item}) + b"\n"
