"""The end of the change feed, read once per server for all watches; and what each change means for objects.

A change has a position. One commit may change several objects: each gets a version of its own, made of the position and
its place among them. A list has the version behind all objects of its position.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.engine.resources.field_managers import stored_managers
from perdure.engine.resources.resource_usage import with_usage
from perdure.engine.runs import run_views
from perdure.engine.secrets.kept_secrets import SECRET_KIND
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.errors import PerdureError
from perdure.kernel.instants import format_instant
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.server.kubernetes.core_objects import blanked, complete_namespace
from perdure.server.kubernetes.discovery import NAMESPACE
from perdure.server.kubernetes.event_objects import new_events
from perdure.server.kubernetes.run_resources import complete, run_version, shown_objects, without_version
from perdure.server.kubernetes.selectors import PLACES
from perdure.stores.feed_changes import RUN, SHOWN, FeedChange
from perdure.views.api_errors import PositionExpired

if TYPE_CHECKING:
    from perdure.engine.client import Client
    from perdure.server.kubernetes.run_resources import RunViews

_log = logging.getLogger("perdure.server")

Object = dict[str, Any]
LOOK_EVERY = 0.1  # seconds
READ_AT_ONCE = 200
KEPT = 2_000  # changes in memory
MEANINGS_KEPT = 500


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object before and after; None: it was not there, or is not."""

    version: int
    kind: str
    before: Object | None
    after: Object | None
    is_before_known: bool = True

    @property
    def last(self) -> Object:
        shown = self.after or self.before
        assert shown is not None
        return {**shown, "metadata": {**shown["metadata"], "resourceVersion": str(self.version)}}


class FeedTail:
    """Read while somebody watches."""

    def __init__(self, client: "Client", run_views: "RunViews") -> None:
        self._client = client
        self._run_views = run_views
        self._changes: deque[FeedChange] = deque(maxlen=KEPT)
        self._begin = self._end = 0  # positions: all changes behind the first and up to the second are kept
        self._watchers = 0
        self._news = asyncio.Condition()
        self._reader: asyncio.Task[None] | None = None
        self._meanings: OrderedDict[int, asyncio.Future[list[ObjectChange]]] = OrderedDict()
        self._counted: OrderedDict[int, asyncio.Future[list[ObjectChange]]] = OrderedDict()
        self._last_views: OrderedDict[tuple[RunId, int], list[Object]] = OrderedDict()
        self.listing = asyncio.Lock()  # of watches that begin with a list: a page of one at a time

    async def follow(self, position: int) -> AsyncIterator[list[FeedChange]]:
        """Changes behind a position as they come; an empty list now and then. `PositionExpired`: some are gone."""
        self._watchers += 1
        if self._reader is None or self._reader.done():
            self._reader = asyncio.ensure_future(self._read_always())
        try:
            while True:
                if self._begin <= position and self._reader is not None and self._end:
                    changes = [change for change in self._changes if change.position > position]
                else:
                    page = await self._client.store.read_feed(position, READ_AT_ONCE)
                    if not page.continues(position):
                        raise PositionExpired(f"the changes after position {position} are gone")
                    changes = list(page.changes)
                if changes:
                    position = changes[-1].position
                    yield changes
                    continue
                try:
                    async with asyncio.timeout(1.0), self._news:
                        await self._news.wait()
                except TimeoutError:
                    yield []
        finally:
            self._watchers -= 1

    async def _read_always(self) -> None:
        """Until nobody watches any more."""
        store = self._client.store
        self._changes.clear()
        self._begin = self._end = (await store.read_feed(0, 1)).last
        while self._watchers:
            try:
                page = await store.read_feed(self._end, READ_AT_ONCE)
                if not page.continues(self._end):
                    self._changes.clear()
                    self._begin = self._end = page.last
                for change in page.changes:
                    if len(self._changes) == KEPT:
                        self._begin = self._changes[0].position
                    self._changes.append(change)
                    self._end = change.position
                if page.changes:
                    async with self._news:
                        self._news.notify_all()
                    continue
            except PerdureError as error:
                _log.warning("the change feed cannot be read now: %s", error)
            await asyncio.sleep(LOOK_EVERY)
        self._end = 0

    async def meaning(self, change: FeedChange) -> list[ObjectChange]:
        """The objects that a change is about, computed once for all watches."""
        return await _shared(self._meanings, change.position, partial(self._object_changes, change))

    async def counted(self, change: FeedChange, kind: ResourceKind) -> list[ObjectChange]:
        """The same change of an entry of this kind, with its use, which is counted once for all watches as well."""
        return await _shared(self._counted, change.position, partial(self._count, change, kind))

    async def _count(self, change: FeedChange, kind: ResourceKind) -> list[ObjectChange]:
        changes = await self.meaning(change)
        there = [changed for changed in changes if changed.after is not None]
        usage = await with_usage(self._client, kind, [changed.last for changed in there])
        shown = dict(zip((changed.version for changed in there), usage, strict=True))
        return [replace(changed, after=shown.get(changed.version)) for changed in changes]

    async def events(self, change: FeedChange) -> list[ObjectChange]:
        """The Events of a change; only who watches Events has them told."""
        if change.kind not in (RUN, SHOWN) or change.is_removed:
            return []
        row = await self._client.store.find(RunId(change.name))
        if row is None:
            return []
        before = await self._number_before(row.id, change.number)
        items = await new_events(self._client, row, before, change.number)
        return [
            ObjectChange(change.position * PLACES + min(place, PLACES - 2), "Event", None, item)
            for place, item in enumerate(items, 1)
        ]

    async def _object_changes(self, change: FeedChange) -> list[ObjectChange]:
        if change.kind not in (RUN, SHOWN):
            return _entry_change(change)
        language = self._client.languages.get(change.language or "")
        if language is None or not language.shows_resources:
            return []
        run = RunId(change.name)
        if change.is_removed:
            if change.body is not None:
                views = _last_objects(change)
            else:  # it could not be read, or there was no room
                kept = self._last_views.pop((run, change.number), None) or self._run_views.kept(run, change.number)
                views = kept or [_removed_run(change, language.name_label)]
            return _differences(change.position, views, [])
        after = await self._views(run, change.number)
        if after is None:  # it is gone; its removal is told behind this
            removal = await self._removal(run, change.position)
            if removal is None or removal.body is None or removal.number != change.number:
                return []
            changed = _differences(change.position, [], _last_objects(removal))
            return [replace(object_change, is_before_known=False) for object_change in changed]
        before = await self._views(run, await self._number_before(run, change.number))
        self._last_views.pop((run, before[1]) if before else (run, 0), None)
        return _differences(change.position, before[0] if before else [], after[0])

    async def _removal(self, run: RunId, position: int) -> FeedChange | None:
        """Told behind this position, as far as it was read."""
        if self._begin <= position:
            changes = list(self._changes)
        else:
            changes = list((await self._client.store.read_feed(position, READ_AT_ONCE)).changes)
        return next((change for change in changes if change.is_removed and change.name == run), None)

    async def _number_before(self, run: RunId, number: int) -> int:
        """How many events the run had before the commit after which it had this many."""
        rows = await self._client.store.history(run, 0)
        return max((last for last, _ in rows if last < number), default=0)

    async def _views(self, run: RunId, number: int) -> tuple[list[Object], int] | None:
        """What the run showed after so many events; None if it is gone, or had not begun."""
        if number == 0:
            return None
        known = self._last_views.get((run, number))
        if known is not None:
            return known, number
        client = self._client
        row = await client.store.find(run)
        if row is None:
            return None
        dialect = run_views.dialect_of(client.languages, row.language)
        program = await run_views.program_of(client.store, dialect, row)
        recorded = await run_views.turns(client.store, dialect, run)
        execution = await run_views.begin_stored(client.store, run, dialect, recorded, program)
        try:
            await run_views.told_aside(recorded, lambda: execution.fold(run_views.cut(recorded, number)))
            views = await shown_objects(client, execution)
        except PerdureError:
            return None
        self._last_views[run, number] = views
        if len(self._last_views) > MEANINGS_KEPT:
            self._last_views.popitem(last=False)
        return views, number


async def _shared(
    known: OrderedDict[int, asyncio.Future[list[ObjectChange]]],
    position: int,
    work: Callable[[], Coroutine[Any, Any, list[ObjectChange]]],
) -> list[ObjectChange]:
    """What the work gives, which is done once: whoever asks meanwhile waits for it."""
    done = known.get(position)
    if done is None:
        done = known[position] = asyncio.ensure_future(work())
        if len(known) > MEANINGS_KEPT:
            known.popitem(last=False)
    try:
        return await asyncio.shield(done)
    except PerdureError:
        known.pop(position, None)  # perhaps it succeeds later
        raise


def _entry_change(change: FeedChange) -> list[ObjectChange]:
    if change.body is None or change.entry is None:
        return []
    item: Object = jsontext.decode(change.body)
    facts = change.entry
    metadata = {
        **item.get("metadata", {}),
        **({"namespace": change.namespace} if change.namespace else {}),
        "uid": facts.uid,
        "generation": facts.generation,
        "creationTimestamp": format_instant(facts.created_at),
    }
    item = {**item, "metadata": metadata}
    if facts.managers is not None:
        metadata["managedFields"] = stored_managers(facts.managers)
    if change.kind == SECRET_KIND:  # whose status is its values, encrypted
        item = blanked(item)
    elif change.kind == NAMESPACE.name:
        item = complete_namespace(change.name, None, item)
    elif facts.status is not None:
        item["status"] = jsontext.decode(facts.status)
    version = change.position * PLACES + 1
    if change.is_removed:
        return [ObjectChange(version, change.kind, item, None)]
    is_new = facts.created_at == change.at
    return [ObjectChange(version, change.kind, None, item, is_before_known=is_new)]


def _last_objects(removal: FeedChange) -> list[Object]:
    assert removal.body is not None
    return complete(jsontext.decode(removal.body), run_version(RunId(removal.name), removal.number))


def _removed_run(change: FeedChange, label: str) -> Object:
    """What is left of a run that nobody here has looked at."""
    metadata = {
        "name": change.labels.get(label, change.name),
        "namespace": change.namespace,
        "uid": change.name,
        "labels": change.labels,
        "creationTimestamp": format_instant(change.started_at or change.at),
    }
    return {"apiVersion": "", "kind": "", "metadata": metadata}


def _differences(position: int, before: list[Object], after: list[Object]) -> list[ObjectChange]:
    """What changed, the run itself first; versions of objects are not compared."""
    old, new = ({_key(item): item for item in items} for items in (before, after))
    changed = [key for key in {**new, **old} if _content(old.get(key)) != _content(new.get(key))]
    return [
        ObjectChange(position * PLACES + min(place, PLACES - 2), key[0], old.get(key), new.get(key))
        for place, key in enumerate(changed, 1)
    ]


def _key(item: Object) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _content(item: Object | None) -> Object | None:
    return None if item is None else without_version(item)
