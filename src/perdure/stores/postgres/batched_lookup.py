"""Questions by key, many at a time: whoever asks while others are being answered shares the next round trip.

A hundred runs that begin together ask for the same few entries; one query answers them all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Round(Generic[K, V]):
    __slots__ = ("answer", "keys")

    def __init__(self) -> None:
        self.keys: set[K] = set()
        self.answer: asyncio.Task[Mapping[K, V]] | None = None


class BatchedLookup(Generic[K, V]):
    def __init__(self, fetch: Callable[[list[K]], Awaitable[Mapping[K, V]]]) -> None:
        """`fetch` answers for those of the keys that there is an answer to."""
        self._fetch = fetch
        self._next: _Round[K, V] = _Round()
        self._turn: asyncio.Lock | None = None

    async def ask(self, keys: Collection[K]) -> dict[K, V]:
        if not keys:
            return {}
        joined = self._next
        joined.keys.update(keys)
        if joined.answer is None:
            joined.answer = asyncio.get_running_loop().create_task(self._answer(joined))
        answers = await asyncio.shield(joined.answer)  # one who gives up waiting does not take the answer from others
        return {key: answers[key] for key in keys if key in answers}

    async def _answer(self, round: _Round[K, V]) -> Mapping[K, V]:
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            self._next = _Round()  # what is asked from here on must not be answered by an older look
            return await self._fetch(list(round.keys))
