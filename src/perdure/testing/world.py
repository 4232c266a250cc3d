"""A small universe around one store, with a clock you move and an engine you crash.

    async with World(folder) as world:
        run = await world.start({"drill": 1, "steps": [{"sleep": "1h"}]})
        await world.crash()
        await world.boot()
        await world.advance(3600)
        assert await run.status() == "succeeded"

`settle` waits until nothing moves by itself. Works for your own workflows too: hand in your providers as `functions`,
or `hands` of your own. The store is a SQLite file in the folder, unless `perdure.testing.opening` says otherwise.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from perdure.engine.handle import Handle
from perdure.engine.settings import Settings
from perdure.kernel.dialect import Dialect
from perdure.kernel.values import SECOND, RunId
from perdure.stores.protocol import Store
from perdure.testing.clock import FakeClock
from perdure.testing.drill import Drill
from perdure.testing.hands import ScriptedHands
from perdure.testing.opening import open_store, sqlite_path
from perdure.wiring import Engine, languages

PATIENCE = 10.0  # seconds of real time before a world that does not settle is called stuck


class World:
    def __init__(
        self,
        folder: Path,
        *,
        functions: dict[str, Callable[[Any, Any], Any]] | None = None,
        held: set[str] | None = None,
        settings: Settings | None = None,
        wrap: Callable[[Store], Store] | None = None,
        vfs: str | None = None,
        spoken: Mapping[str, Dialect] | None = None,
        hands: ScriptedHands | None = None,
    ) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.hands = hands or ScriptedHands(functions, held)
        self.drill = Drill()
        self._languages: Mapping[str, Dialect] = {
            **languages(lambda provider: True),
            "drill": self.drill,
            **(spoken or {}),
        }
        self._settings = settings or Settings()
        self._wrap = wrap
        self._vfs = vfs
        self.engine: Engine | None = None

    async def __aenter__(self) -> Self:
        await self.boot()
        return self

    async def __aexit__(self, *exit: object) -> None:
        if self.engine is not None:
            await self.engine.runtime.close()
            self.engine = None

    @property
    def path(self) -> Path:
        """The file of a world on SQLite."""
        return sqlite_path(self.folder)

    def open_store(self) -> Store:
        """One more connection to the store of this world, as another process would have it."""
        return open_store(self.folder, self.clock.now, self._vfs)

    async def boot(self) -> None:
        """Start an engine that takes up everything without an owner."""
        assert self.engine is None, "one engine at a time: crash or close it first"
        store = self.open_store()
        if self._wrap is not None:
            store = self._wrap(store)
        self.engine = Engine(store, settings=self._settings, clock=self.clock, hands=self.hands, spoken=self._languages)
        await self.engine.runtime.open()
        await self.engine.resume()
        await self.settle()

    async def crash(self) -> None:
        """The process is gone: what was in flight is lost, what was acknowledged is on disk."""
        assert self.engine is not None
        await self.engine.runtime.die()
        self.hands.waiting.clear()
        self.engine = None

    async def close(self) -> None:
        """End the engine in an orderly way, as Ctrl-C does."""
        assert self.engine is not None
        await self.engine.runtime.close()
        self.hands.waiting.clear()
        self.engine = None

    async def hand_over(self) -> bool:
        """Another engine takes over from one that leaves in order, as on SIGTERM; no time passes.

        False: a task was at work that did not end within the grace; it is delivered again.
        """
        assert self.engine is not None
        leaving = asyncio.ensure_future(self.engine.runtime.leave())
        while not leaving.done():
            self.clock.move_to(self.clock.now())  # what is due at this instant still happens
            await asyncio.sleep(0)
        await self.close()
        await self.boot()
        return leaving.result()

    async def start(self, document: Mapping[str, Any], input: Any = None, **options: Any) -> "RunInWorld":
        assert self.engine is not None
        handle = await self.engine.start(document, input, **options)
        await self.settle()
        return RunInWorld(self, handle.id)

    def run(self, id: RunId) -> "RunInWorld":
        return RunInWorld(self, id)

    async def settle(self) -> None:
        """Until nothing moves by itself: everything decided is committed, every task at work is a held one."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        calm = looks = 0
        while calm < 3 and self.engine is not None:
            looks += 1
            await asyncio.sleep(0 if calm or looks < 100 else 0.0005)  # a store with threads wants to have its turn
            runtime = self.engine.runtime
            is_calm = runtime.is_quiet and not self.hands.is_busy and runtime.tasks_in_flight <= len(self.hands.waiting)
            calm = calm + 1 if is_calm else 0
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError("the world does not settle")

    async def advance(self, seconds: float) -> None:
        """Let time pass; what becomes due on the way happens at its own instant."""
        await self.settle()
        target = self.clock.now() + int(seconds * SECOND)
        while (due := self.clock.next_alarm()) is not None and due <= target:
            self.clock.move_to(due)
            await self.settle()
        self.clock.move_to(target)
        await self.settle()


class RunInWorld:
    """A run by its id; works across crashes."""

    def __init__(self, world: World, id: RunId) -> None:
        self._world = world
        self.id = id

    @property
    def handle(self) -> Handle:
        assert self._world.engine is not None
        return self._world.engine.handle(self.id)

    async def status(self) -> str:
        return (await self.handle.status()).value

    async def result(self) -> Any:
        return await asyncio.wait_for(self.handle.result(), PATIENCE)

    async def show(self) -> Any:
        return await self.handle.show()

    async def events(self) -> list[str]:
        return [event["event"] for event in await self.handle.history()]

    async def signal(self, name: str, value: Any = None, key: str | None = None) -> None:
        await self.handle.signal(name, value, key=key)
        await self._world.settle()

    async def cancel(self, reason: str = "") -> None:
        await self.handle.cancel(reason)
        await self._world.settle()
