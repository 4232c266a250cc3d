"""A small universe around one store, with a clock you move and an engine you crash.

    async with World(folder) as world:
        run = await world.start({"drill": 1, "steps": [{"sleep": "1h"}]})
        await world.crash()
        await world.boot()
        await world.advance(3600)
        assert await run.status() == "succeeded"

`settle` waits until nothing moves by itself. Works for your own workflows too: loaded `@perdure.provider` and
`@perdure.engram` functions are used, `mocks` answer for others, or hand in `hands` of your own. The store is a SQLite
file in the folder, unless `perdure.testing.opening` says otherwise.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Self

from perdure.engine.handle import Handle
from perdure.engine.runs.document_start import Document
from perdure.engine.settings import Settings
from perdure.kernel.dialect import Dialect
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.stores.protocol import Store
from perdure.testing.clock import FakeClock
from perdure.testing.drill import Drill
from perdure.testing.hands import ScriptedHands, WorldHands
from perdure.testing.opening import open_store, sqlite_path
from perdure.wiring import Engine, languages, local_executor

SETTLE_TIMEOUT = 60.0  # seconds of real time before a world that does not settle is called stuck


class World:
    """An engine on a store in a folder, with a clock that you move: `async with World(folder) as world`."""

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
        mocks: Mapping[str, Any] | None = None,
        shipped: Collection[str] = (),
    ) -> None:
        """`mocks`: by the name of a provider or an Engram, an answer or a function. `shipped`: which providers of
        Perdure's own (such as `python`, `http`) are really used.
        """
        self.folder = folder
        self.clock = FakeClock()
        self.hands = hands or WorldHands(functions, held, mocks, shipped)
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
        if isinstance(self.hands, WorldHands):
            self.hands.forget_mocks()

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
        if isinstance(self.hands, WorldHands):
            self.hands.worker = local_executor(self.clock, store.program, self._languages)
        self.engine = Engine(store, settings=self._settings, clock=self.clock, hands=self.hands, spoken=self._languages)
        await self.engine.runtime.open()
        await self.engine.resume()
        await self.settle()

    async def crash(self) -> None:
        """The process is gone: what was in flight is lost, what was acknowledged is on disk."""
        assert self.engine is not None
        await self.engine.runtime.die()
        self.hands.waiting.clear()
        if isinstance(self.hands, WorldHands):
            await self.hands.close()
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
        looks = 0
        while not leaving.done():
            looks += 1
            self.clock.move_to(self.clock.now())  # what is due at this instant still happens
            await asyncio.sleep(_pause(looks))
        await self.close()
        await self.boot()
        return leaving.result()

    def mock(self, name: str, answer: Any) -> None:
        """From now on tasks of this provider or Engram get the answer, or what the function returns or raises."""
        self._own_hands.mock(name, answer)

    def calls(self, name: str) -> list[Any]:
        """What tasks of this provider or Engram were called with so far, in order."""
        return self._own_hands.arguments_of(name)

    @property
    def _own_hands(self) -> WorldHands:
        if not isinstance(self.hands, WorldHands):
            raise TypeError("this world works with hands of yours: they have no mocks")
        return self.hands

    async def start(self, document: Document, input: Any = None, **options: Any) -> "RunInWorld":
        """Start a document, and let everything happen that can happen now."""
        assert self.engine is not None
        handle = await self.engine.start(document, input, **options)
        await self.settle()
        return RunInWorld(self, handle.id)

    def run(self, id: RunId) -> "RunInWorld":
        """The run of this id."""
        return RunInWorld(self, id)

    async def settle(self) -> None:
        """Until nothing moves by itself: everything decided is committed, every task at work is a held one."""
        deadline = asyncio.get_running_loop().time() + SETTLE_TIMEOUT
        calm = looks = 0
        while calm < 3 and self.engine is not None:
            looks += 1
            await asyncio.sleep(0 if calm else _pause(looks))
            runtime = self.engine.runtime
            is_calm = runtime.is_quiet and not self.hands.is_busy and runtime.tasks_in_flight <= len(self.hands.waiting)
            calm = calm + 1 if is_calm else 0
            if asyncio.get_running_loop().time() > deadline:
                tasks = self.hands.describe_tasks() if isinstance(self.hands, WorldHands) else []
                open_tasks = f": {'; '.join(tasks)}" if tasks else ""
                raise TimeoutError(f"the world does not settle within {SETTLE_TIMEOUT:g} s{open_tasks}")

    async def advance(self, seconds: float) -> None:
        """Let time pass; what becomes due on the way happens at its own instant."""
        await self.settle()
        target = self.clock.now() + int(seconds * SECOND)
        while (due := self.clock.next_alarm()) is not None and due <= target:
            self.clock.move_to(due)
            await self.settle()
        self.clock.move_to(target)
        await self.settle()

    async def advance_to_end(self, run: "RunInWorld", most: float = 366 * 86_400.0) -> None:
        """Let time pass until the run has ended, or nothing is due within so many seconds."""
        assert self.engine is not None
        await self.settle()
        last = self.clock.now() + int(most * SECOND)
        while not (await run.handle.status()).is_final:
            due = self.clock.next_alarm()
            if due is None or due > last:
                return
            self.clock.move_to(due)
            await self.settle()


def _pause(looks: int) -> float:
    """Seconds before the next look: a store with threads needs the processor too."""
    return 0 if looks < 10 else min((looks - 9) * 0.0002, 0.002)


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

    async def result(self, timeout: float = SETTLE_TIMEOUT) -> Any:
        """`timeout`: seconds of real time; the error says what the run waits for."""
        try:
            return await self.handle.result(timeout)
        except TimeoutError:
            reasons = await self.awaited()
            waits = f": it waits for {'; for '.join(reasons)}" if reasons else ""
            raise TimeoutError(f"run {self.id} has not ended within {timeout:g} s{waits}") from None

    async def awaited(self) -> list[str]:
        """What the run waits for, as text for people: tasks, decisions and signals, its next timer."""
        world, engine = self._world, self._world.engine
        assert engine is not None
        execution = await engine.execution(self.id)
        reasons = []
        for number, task in execution.state.tasks.items():
            name = task.provider
            if not world.hands.can_perform(name):
                state = "nobody performs it: load its function, mock it, or name it in `shipped`"
            elif (self.id, number) in world.hands.waiting:
                state = "it is held: release it"
            else:
                state = "it is at work"
            reasons.append(f"task {number} of provider {name!r} ({state})")
        reasons += engine.languages[execution.state.language].awaits(execution)
        reasons += [f"the run {engine_child}" for engine_child in map(execution.child_id, execution.state.children)]
        due = min((timer.due for timer in execution.state.timers.values()), default=None)
        if due is not None:
            seconds = max(0, due - world.clock.now()) / SECOND
            advice = f"let time pass: await world.advance({seconds:g})"
            reasons.append(f"a timer that is due in {seconds:g} s ({advice})")
        return reasons

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

    async def approve(self, step: str, message: str = "", *, by: str = "") -> None:
        await self.handle.approve(step, message, by=by)
        await self._world.settle()

    async def reject(self, step: str, message: str = "", *, by: str = "") -> None:
        await self.handle.reject(step, message, by=by)
        await self._world.settle()

    async def patch(self, ctx: Mapping[str, Any], *, reason: str = "", by: str = "") -> None:
        await self.handle.patch(ctx, reason=reason, by=by)
        await self._world.settle()

    async def redrive(self, step: str = "", *, by: str = "") -> None:
        await self.handle.redrive(step, by=by)
        await self._world.settle()

    async def pause(self, reason: str = "") -> None:
        await self.handle.pause(reason)
        await self._world.settle()

    async def unpause(self, reason: str = "") -> None:
        await self.handle.unpause(reason)
        await self._world.settle()
