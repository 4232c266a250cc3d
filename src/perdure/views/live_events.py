"""The events of runs as they come, for many followers: one look at the commits of this process serves them all.

A run of another process is looked at once a second; nobody tells of it.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.kernel.values import RunId

LOOK_EVERY = 1.0  # seconds between looks at a run of which nothing is heard
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


class LiveEvents:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[RunId, set[asyncio.Event]] = {}
        self._read: dict[tuple[RunId, bool], _ReadHistory] = {}
        self._forget: Callable[[], None] | None = None

    def open(self) -> None:
        runtime = self._client.running()
        self._forget = runtime.watch(lambda run, _: self._wake(run))

    def close(self) -> None:
        if self._forget is not None:
            self._forget()
            self._forget = None
        for events in self._waiting.values():
            for event in events:
                event.set()

    def _wake(self, run: RunId) -> None:
        for event in self._waiting.get(run, ()):
            event.set()

    async def follow(
        self, run: RunId, after: int = 0, *, raw: bool = False
    ) -> AsyncGenerator[dict[str, Any] | None, None]:
        """The history behind event `after` as it grows, until the run has ended. None: nothing came for a second."""
        last_seq, recorded = after, 0
        heard = asyncio.Event()
        self._waiting.setdefault(run, set()).add(heard)
        try:
            while True:
                heard.clear()
                row = await self._client.find(run)
                is_over = row.status.is_final
                if rows := await self._client.store.history(run, recorded):
                    recorded = rows[-1][0]
                    for event in await self._history(run, last_seq, recorded, raw=raw):
                        last_seq = event["seq"]
                        yield event
                if is_over:
                    return
                while not heard.is_set():
                    try:
                        async with asyncio.timeout(LOOK_EVERY):
                            await heard.wait()
                    except TimeoutError:
                        yield None
                        if row.partition not in self._client.running().partitions:
                            break  # nobody tells us of it
        finally:
            self._waiting[run].discard(heard)
            if not self._waiting[run]:
                del self._waiting[run]
                for form in (False, True):
                    self._read.pop((run, form), None)

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
        return not row.status.is_final or bool(await self._client.history(run, after, raw=raw))
