"""Several engines in one process on one store: they share, hand over, lose and come back as servers do."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perdure.engine.clock import SystemClock
from perdure.engine.settings import Settings
from perdure.kernel.json_values.values import RunId
from perdure.stores.commit_types import CommitAnswer, CommitUnknown, Fenced, Transition
from perdure.stores.protocol import Share, Store
from perdure.testing import ScriptedHands
from perdure.testing.opening import open_store
from perdure.wiring import Engine

PATIENCE = 60.0


class Told(Exception):
    """The fault that a test has asked for."""


class SteeredStore:
    """A real store whose owner a test can make late, rich or cut off."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.is_late = False
        self.surplus = 0
        self.may_take = True
        self.is_away = False
        self.writes_although_away = False
        self.reopened = self.rejoined = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def share(self) -> Share:
        got = await self._inner.share() if self.may_take else Share()
        return replace(got, surplus=self.surplus)

    async def rejoin(self) -> list[int]:
        while self.is_late:
            await asyncio.sleep(0.002)
        self.rejoined += 1
        return await self._inner.rejoin()

    async def give_up(self, partitions: Collection[int]) -> None:
        await self._inner.give_up(partitions)
        self.surplus = max(0, self.surplus - len(partitions))

    def commit_at_once(self, batch: Sequence[Transition]) -> CommitAnswer | None:
        return None

    async def commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        if self.is_late:
            return Fenced(sorted({change.partition for change in batch}))
        if self.is_away:
            if self.writes_although_away:
                await self._inner.commit(batch)
            return CommitUnknown(Told("the connection is lost"))
        return await self._inner.commit(batch)

    async def reopen(self) -> None:
        self.reopened += 1
        while self.is_away:
            await asyncio.sleep(0.002)
        await self._inner.reopen()


class Server:
    def __init__(self, folder: Path, name: str, hands: ScriptedHands, settings: Settings) -> None:
        self.name = name
        self.hands = hands
        clock = SystemClock()
        self.store = SteeredStore(open_store(folder, clock.now))
        store: Any = self.store
        self.engine = Engine(store, settings=settings, clock=clock, hands=hands)
        self.runtime = self.engine.runtime

    async def gives_up(self, count: int | None = None) -> None:
        """Until so many partitions of this one (all of them) are somebody else's business."""
        self.store.may_take = False
        self.store.surplus = len(self.runtime.partitions) if count is None else count
        await until(lambda: not self.store.surplus)

    async def takes(self) -> None:
        self.store.may_take = True
        await until(lambda: bool(self.runtime.partitions))


class Servers:
    """`async with Servers(folder, held={"slow"}) as (one, two)`: both serve, each with hands of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        count: int = 2,
        serves: bool = True,
        functions: dict[str, Callable[[Any, Any], Any]] | None = None,
        held: set[str] | None = None,
        **settings: Any,
    ) -> None:
        options = Settings(**{"serves": serves, "poll": 0.004, "share_every": 0.01, "drain": 60.0, **settings})
        self._all = [Server(folder, str(n), ScriptedHands(functions, held), options) for n in range(count)]

    async def __aenter__(self) -> list[Server]:
        for server in self._all:
            await server.engine.__aenter__()
        return self._all

    async def __aexit__(self, *exit: object) -> None:
        for server in self._all:
            server.store.is_away = server.store.is_late = False
            await server.engine.__aexit__(None, None, None)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.002)


async def names(server: Server, run: RunId) -> list[str]:
    return [event["event"] for event in await server.engine.history(run, raw=True)]
