"""A store that dies at a chosen commit, just before it is on disk or just after."""

import asyncio
from collections.abc import Sequence
from typing import Any

from perdure.stores.commit_types import CommitAnswer, Transition
from perdure.stores.protocol import Store


class CrashingStore:
    """Everything else is the real store's. `crashed` is set when the moment has come; then no answer ever comes."""

    def __init__(self, inner: Store, commit: int, *, after: bool, dies: bool = True) -> None:
        """One that does not die only says, with `crashed`, that the moment has come."""
        self._inner = inner
        self._commit = commit
        self._after = after
        self._dies = dies
        self.commits = 0
        self.crashed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit_at_once(self, batch: Sequence[Transition]) -> None:
        return None  # so that every commit passes below

    async def commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        self.commits += 1
        if self.commits == self._commit:
            if self._after and self._dies:
                await self._inner.commit(batch)
            self.crashed.set()
        if self._dies and self.crashed.is_set():
            await asyncio.Future()
        return await self._inner.commit(batch)
