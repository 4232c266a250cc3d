"""The events of runs as they come, for many followers: one look at the commits of this process serves them all.

A run of another process is looked at once a second; nobody tells of it.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Container
from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.kernel.json_values.values import RunId

LOOKS = 10  # a second, each at a part of the followers: each of them is looked at once a second
COMMENT_EVERY = 15  # seconds without an event
RESTS = 5.0  # times as long as a history took to read, it is not read again
LONGEST_REST = 5.0  # seconds
MOST_KEPT = 1_000  # events of a run, for followers that come to the same place


class _ReadHistory(msgspec.Struct):
    """Events of a run behind one of them, as they were read last."""

    after: int = 0
    recorded: int = -1  # events of the log until then
    events: list[dict[str, Any]] = []
    not_before: float = 0.0  # it is read again
    turn: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class _Follower:
    """One who follows a run; woken when there is something to do, and not to find out whether there is."""

    __slots__ = ("goes_on", "has_news", "heard", "is_due", "partition", "quiet")

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self.goes_on = goes_on
        self.heard = asyncio.Event()
        self.has_news = False  # something was recorded, or may have been by another process
        self.is_due = False  # nothing was heard for long, or it may not follow any longer
        self.partition = 0
        self.quiet = 0  # seconds

    def wake(self) -> None:
        self.has_news = True
        self.heard.set()

    def poll(self, partitions: Container[int]) -> None:
        """Once a second."""
        self.quiet += 1
        if self.quiet % COMMENT_EVERY == 0 or not self.goes_on():
            self.is_due = True
            self.heard.set()
        if self.partition not in partitions:  # nobody tells us of it
            self.wake()


class LiveEvents:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[RunId, set[_Follower]] = {}
        self._parts: list[set[_Follower]] = [set() for _ in range(LOOKS)]
        self._next_part = 0
        self._timer: asyncio.TimerHandle | None = None
        self._read: dict[tuple[RunId, bool], _ReadHistory] = {}
        self._forget: Callable[[], None] | None = None

    def open(self) -> None:
        runtime = self._client.running()
        self._forget = runtime.watch(lambda run, _: self._wake(run))

    def close(self) -> None:
        if self._forget is not None:
            self._forget()
            self._forget = None
        for followers in self._waiting.values():
            for follower in followers:
                follower.wake()

    def _wake(self, run: RunId) -> None:
        for follower in self._waiting.get(run, ()):
            follower.wake()

    def _poll(self) -> None:
        """At a part of the followers."""
        self._timer = None
        self._next_part = (self._next_part + 1) % LOOKS
        partitions = self._client.running().partitions
        for follower in self._parts[self._next_part]:
            follower.poll(partitions)
        self._poll_later()

    def _poll_later(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(1 / LOOKS, self._poll)

    def _add(self, run: RunId, follower: _Follower) -> None:
        self._waiting.setdefault(run, set()).add(follower)
        min(self._parts, key=len).add(follower)
        self._poll_later()

    def _remove(self, run: RunId, follower: _Follower) -> None:
        for part in self._parts:
            part.discard(follower)
        self._waiting[run].discard(follower)
        if not self._waiting[run]:
            del self._waiting[run]
            for form in (False, True):
                self._read.pop((run, form), None)

    async def follow(
        self, run: RunId, after: int = 0, *, raw: bool = False, goes_on: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[dict[str, Any] | None, None]:
        """The history behind event `after` as it grows, until the run has ended.

        None: nothing came for long, or it does not go on, which is asked once a second.
        """
        last_seq, recorded = after, 0
        follower = _Follower(goes_on)
        self._add(run, follower)
        try:
            while True:
                follower.has_news = False
                row = await self._client.find(run)
                follower.partition = row.partition
                is_over = row.status.is_final
                if rows := await self._client.store.history(run, recorded):
                    recorded = rows[-1][0]
                    for event in await self._history(run, last_seq, recorded, raw=raw):
                        last_seq, follower.quiet = event["seq"], 0
                        yield event
                if is_over:
                    return
                while not follower.has_news:
                    await follower.heard.wait()
                    follower.heard.clear()
                    if follower.is_due:
                        follower.is_due = False
                        yield None
        finally:
            self._remove(run, follower)

    async def _history(self, run: RunId, after: int, recorded: int, *, raw: bool) -> list[dict[str, Any]]:
        """The events behind one of them, up to a row of the log at least.

        A language tells a history from its beginning: it is read once for all followers, and then not again for some
        time that depends on how long that took. Otherwise those who follow a long run take the time of all others.
        """
        known = self._read.setdefault((run, raw), _ReadHistory())
        async with known.turn:
            if known.after > after:  # one who comes later, or has fallen behind
                return await self._client.history(run, after, raw=raw)
            if known.recorded < recorded:
                loop = asyncio.get_running_loop()
                if (rest := known.not_before - loop.time()) > 0:
                    await asyncio.sleep(rest)
                    if rows := await self._client.store.history(run, recorded):
                        recorded = rows[-1][0]
                begun = loop.time()
                events = await self._client.history(run, after, raw=raw)
                ended = loop.time()
                known.not_before = ended + min(RESTS * (ended - begun), LONGEST_REST)
                known.after, known.recorded, known.events = after, recorded, events
            behind = known.events[bisect_right(known.events, after, key=lambda event: event["seq"]) :]
            if len(known.events) > MOST_KEPT:
                known.after = known.events[-MOST_KEPT - 1]["seq"]
                del known.events[:-MOST_KEPT]
            return behind

    async def has_more(self, run: RunId, after: int, *, raw: bool = False) -> bool:
        """Whether anything is to be expected behind this event: the run is open, or has recorded more."""
        row = await self._client.find(run)
        return not row.status.is_final or bool(await self._client.history(run, after, raw=raw, limit=1))
