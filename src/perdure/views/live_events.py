"""The events of runs as they come, for many followers: one look at the commits of this process serves them all.

A run of another process is looked at once a second; nobody tells of it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from perdure.engine.client import Client
from perdure.kernel.values import RunId

LOOK_EVERY = 1.0  # seconds between looks at a run of which nothing is heard


class LiveEvents:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[RunId, set[asyncio.Event]] = {}
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
                is_over = (await self._client.find(run)).status.is_final
                if rows := await self._client.store.history(run, recorded):
                    recorded = rows[-1][0]
                    for event in await self._client.history(run, last_seq, raw=raw):
                        last_seq = event["seq"]
                        yield event
                if is_over:
                    return
                try:
                    await asyncio.wait_for(heard.wait(), LOOK_EVERY)
                except TimeoutError:
                    yield None
        finally:
            self._waiting[run].discard(heard)
            if not self._waiting[run]:
                del self._waiting[run]

    async def has_more(self, run: RunId, after: int, *, raw: bool = False) -> bool:
        """Whether anything is to be expected behind this event: the run is open, or has recorded more."""
        row = await self._client.find(run)
        return not row.status.is_final or bool(await self._client.history(run, after, raw=raw))
