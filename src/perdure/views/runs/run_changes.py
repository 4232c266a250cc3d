"""Changes of runs for many followers at once: one reader of the change feed serves all followers of a server.

    store ──▶ reader, while anybody follows ──▶ unread messages of each follower ──▶ its stream

A follower first reads by itself what it has missed, a page at a time, in turn with others of the same caller; at the
end of the feed it joins the others. What it leaves unread is bounded: beyond that it is cut off, and continues by its
position. There may be thousands of followers: what is done for all of them is done in short slices.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable
from typing import Any
from weakref import WeakValueDictionary

from perdure.engine.client import Client
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.stores.feed_changes import RUN, FeedChange, FeedPage
from perdure.stores.protocol import RunFilter
from perdure.views.api_errors import PositionExpired
from perdure.views.times import iso

_log = logging.getLogger("perdure.server")

LOOK_EVERY = 0.1  # seconds between looks at the feed, while somebody follows
CHECK_EVERY = 1.0  # seconds between questions whether a follower may still see
COMMENT_EVERY = 15.0  # seconds without a message
RENEW_EVERY = 30.0  # seconds
TRIMMED_AT_ONCE = 10_000
READ_AT_ONCE = 500
MISSED_AT_ONCE = 100  # changes that a follower reads by itself, before it is another one's turn
SLICE, REST = 0.002, 0.002  # seconds of work for followers, and in which other work has its turn
WOKEN_AT_ONCE = 20  # followers: each writes to its connection when it is woken
MOST_UNREAD = 1 << 20  # bytes
SENT_AT_ONCE = 64 << 10


def matches(filter: RunFilter, change: FeedChange) -> bool:
    """Whether a change is of a run that a list with this filter would show. Removals have no status to match."""
    if change.kind != RUN or (filter.namespaces is not None and change.namespace not in filter.namespaces):
        return False
    if filter.statuses and (change.is_removed or change.status not in filter.statuses):
        return False
    return (
        (filter.name is None or change.document == filter.name)
        and (filter.language is None or change.language == filter.language)
        and (filter.parent is None or change.parent == filter.parent)
        and all(change.labels.get(name) == value for name, value in filter.labels.items())
        and (filter.created_after is None or (change.started_at or 0) >= filter.created_after)
        and (filter.created_before is None or (change.started_at or 0) < filter.created_before)
        and (filter.text is None or _has_text(filter.text, change))
    )


def _has_text(text: str, change: FeedChange) -> bool:
    begins = change.name.startswith(text) or (change.document or "").startswith(text)
    return begins or text in change.labels.values()


def change_json(change: FeedChange) -> dict[str, Any]:
    """A change of a run as the API shows it."""
    return {
        "position": change.position,
        "at": iso(change.at),
        "change": "removed" if change.is_removed else "status",
        "id": change.name,
        "language": change.language,
        "name": change.document,
        "namespace": change.namespace,
        "status": change.status,
        "parent": change.parent,
        "labels": change.labels,
        "started_at": iso(change.started_at),
        "ended_at": iso(change.ended_at),
        "events": change.number,
    }


def _message(change: FeedChange) -> bytes:
    name = b"removed" if change.is_removed else b"status"
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (change.position, name, jsontext.encode(change_json(change)))


def _place(position: int) -> bytes:
    """No event: a browser only notes the id, from which it continues after an interruption."""
    return b": here\nid: %d\n\n" % position


class _Follower:
    __slots__ = ("filter", "is_over", "position", "size", "told_at", "unread", "wake", "who")

    def __init__(self, filter: RunFilter, who: Hashable, position: int, now: float) -> None:
        self.filter = filter
        self.who = who
        self.position = position  # up to which it has everything, read or unread
        self.unread: deque[bytes] = deque()
        self.size = 0  # bytes unread
        self.told_at = now
        self.is_over = False
        self.wake = asyncio.Event()

    def tell(self, message: bytes, now: float) -> None:
        """It is woken later, see `ChangeFeed`."""
        if self.is_over:
            return
        self.told_at = now
        self.size += len(message)
        if self.size > MOST_UNREAD:
            self.end()
            self.unread.clear()
        else:
            self.unread.append(message)

    def take(self) -> bytes:
        parts, size = list[bytes](), 0
        while self.unread and size < SENT_AT_ONCE:
            parts.append(self.unread.popleft())
            size += len(parts[-1])
        self.size -= size
        if not self.unread and not self.is_over:
            self.wake.clear()
        return b"".join(parts)

    def end(self) -> None:
        self.is_over = True
        self.wake.set()


class ChangeFeed:
    """The feed of one server. It is kept open while the server lives, and read while somebody follows."""

    def __init__(self, client: Client, is_allowed: Callable[[Any], bool], keep: float = 600.0) -> None:
        """`is_allowed` says whether somebody may still see what they could see when they came."""
        self._client = client
        self._is_allowed = is_allowed
        self._keep = int(keep * SECOND)  # changes that are older are removed
        self._followers: set[_Follower] = set()
        self._told: set[_Follower] = set()  # to be woken
        self._turns: WeakValueDictionary[Hashable, asyncio.Lock] = (
            WeakValueDictionary()
        )  # of those who have missed some
        self._position = 0  # up to which all followers were told
        self._begun = asyncio.Event()  # somebody follows
        self._is_closed = False
        self.lag = 0.0  # seconds from the last change that was read to its reading

    @property
    def followers(self) -> int:
        return len(self._followers)

    async def open(self) -> None:
        await self._client.store.open_feed(self._client.clock.now() + self._keep)

    def close(self) -> None:
        self._is_closed = True
        for follower in self._followers:
            follower.end()

    async def run(self) -> None:
        """Until cancelled. A store that is away is waited for."""
        await asyncio.gather(self._read_always(), self._renew_always())

    async def _renew_always(self) -> None:
        store = self._client.store
        while True:
            await asyncio.sleep(RENEW_EVERY)
            try:
                await self.open()
                now = self._client.clock.now()
                while await store.trim_feed(now - self._keep, TRIMMED_AT_ONCE) == TRIMMED_AT_ONCE:
                    await asyncio.sleep(0)
            except PerdureError as error:
                _log.warning("the change feed cannot be kept now: %s", error)

    async def _read_always(self) -> None:
        clock = asyncio.get_running_loop().time
        checked_at = 0.0
        while True:
            if not self._followers:
                self._begun.clear()
                await self._begun.wait()
            await asyncio.sleep(LOOK_EVERY)
            try:
                while self._followers and await self._read() == READ_AT_ONCE:
                    await self._wake_told()
            except PerdureError as error:
                _log.warning("the change feed cannot be read now: %s", error)
            if (now := clock()) - checked_at >= CHECK_EVERY:
                checked_at = now
                self._check(now)
            await self._wake_told()

    async def _wake_told(self) -> None:
        followers, self._told = self._told, set()
        for number, follower in enumerate(followers, 1):
            follower.wake.set()
            if number % WOKEN_AT_ONCE == 0:
                await asyncio.sleep(REST)

    async def _read(self) -> int:
        """Tell all followers what is new; how many changes there were."""
        before, clock = self._position, asyncio.get_running_loop().time
        page = await self._client.store.read_feed(before, READ_AT_ONCE)
        now = begun = clock()
        if not page.continues(before):  # it was not read for so long, or the store was replaced
            self._position = page.last
            for follower in list(self._followers):
                self._tell_reset(follower, page, now)
            return 0
        if not page.changes:
            return 0
        for change in page.changes:
            if change.kind == RUN:
                message = _message(change)
                for follower in self._followers:
                    if follower.position < change.position and matches(follower.filter, change):
                        self._tell(follower, message, now)
            self._position = change.position  # of each one: whoever comes now has to have read so far
            if clock() - begun > SLICE:
                await asyncio.sleep(REST)
                begun = clock()
        self.lag = max(0.0, (self._client.clock.now() - page.changes[-1].at) / SECOND)
        return len(page.changes)

    def _tell_reset(self, follower: _Follower, page: FeedPage, now: float) -> None:
        follower.position = page.last
        self._tell(follower, _reset(page), now)

    def _tell(self, follower: _Follower, message: bytes, now: float) -> None:
        follower.tell(message, now)
        self._told.add(follower)

    def _check(self, now: float) -> None:
        allowed = {who: self._is_allowed(who) for who in {follower.who for follower in self._followers}}
        for follower in self._followers:
            if not allowed[follower.who]:
                follower.end()
            elif now - follower.told_at >= COMMENT_EVERY:
                self._tell(follower, _place(max(self._position, follower.position)), now)

    async def follow(self, filter: RunFilter, after: int | None, who: Hashable) -> AsyncGenerator[bytes, None]:
        """Messages behind a position as they come; without one, those from now on."""
        page = await self._client.store.read_feed(after or 0, 1)
        if after is None or not page.continues(after):
            yield _place(page.last) if after is None else _reset(page)
            position = page.last
        else:
            yield _place(after)
            position = after
        turn = self._turns.setdefault(who, asyncio.Lock())
        while True:  # what it has missed
            async with turn:
                page = await self._client.store.read_feed(position, MISSED_AT_ONCE)
                text = b"".join(_message(change) for change in page.changes if matches(filter, change))
                await asyncio.sleep(REST)
            if not self._is_allowed(who):  # whoever reads slowly may miss changes for ever
                return
            if not page.continues(position):
                position = page.last
                yield _reset(page)
                continue
            if page.changes:
                position = page.changes[-1].position
            if text:
                yield text
            if len(page.changes) < MISSED_AT_ONCE and (not self._followers or self._position <= position):
                break
        follower = _Follower(filter, who, position, asyncio.get_running_loop().time())
        if not self._followers:
            self._position = position
        self._followers.add(follower)
        self._begun.set()
        try:
            while not self._is_closed:
                await follower.wake.wait()
                if text := follower.take():
                    yield text
                elif follower.is_over:
                    return
        finally:
            self._followers.discard(follower)

    async def page(self, filter: RunFilter, after: int | None, limit: int) -> tuple[list[dict[str, Any]], int]:
        """Changes behind a position, and the position to continue from; without one, none, and where the feed ends."""
        if after is None:
            return [], (await self._client.store.read_feed(0, 1)).last
        changes: list[dict[str, Any]] = []
        position = after
        while limit > 0:
            asked = min(limit, MISSED_AT_ONCE)
            page = await self._client.store.read_feed(position, asked)
            if not page.continues(position):
                raise PositionExpired(f"the changes after position {position} are gone")
            changes += [change_json(change) for change in page.changes if matches(filter, change)]
            position = page.changes[-1].position if page.changes else position
            limit = limit - asked if len(page.changes) == asked else 0
            await asyncio.sleep(0)
        return changes, position


def _reset(page: FeedPage) -> bytes:
    return b'id: %d\nevent: reset\ndata: {"position": %d}\n\n' % (page.last, page.last)
