"""One scenario on the real engine: a store of its own, virtual time, mocks, and an engine that may die at a commit.

What answers the tasks remembers what it was asked: an attempt that is delivered again after a crash gets the same
answer, at the same instant. So a crash may cost a delivery, and must not change how the scenario ends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from perdure.analysis.expectations import Observed
from perdure.analysis.mocks import Mocks, names_of
from perdure.analysis.scenarios import DocumentScenario, ScenarioAction
from perdure.engine.handle import Handle
from perdure.engine.runs import run_views
from perdure.engine.settings import Settings
from perdure.engine.virtual_clock import START, VirtualClock
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.validation import AppliedDocument, Validated
from perdure.kernel.errors import Conflict
from perdure.kernel.events import EffectCompleted
from perdure.kernel.execution import Limits
from perdure.kernel.graphs.run_trace import trace_turns
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.outcomes import Cancelled, Failed, Succeeded
from perdure.services.scenarios.mocked_tasks import ScenarioTasks
from perdure.stores.crashing_store import CrashingStore
from perdure.stores.protocol import Store
from perdure.stores.sqlite.store import SqliteStore
from perdure.wiring import Engine, local_executor

NEVER = 1 << 60
LONGEST = 366 * 86_400 * SECOND  # of virtual time, after the actions
MOST_ALARMS = 100_000
REST_TIMEOUT = 60.0  # seconds of real time before a scenario that does not come to rest has failed
LIMITS = Limits(moves=100_000, elements=100_000, caught=5_000)  # a document that never ends is told so soon


class Effects(msgspec.Struct, frozen=True):
    """What the run did to the outside: its calls by idempotency key, and how often each effect was completed."""

    calls: dict[str, tuple[str, bytes]]
    completed: dict[str, int]


class Play(msgspec.Struct, kw_only=True):
    """One run of a scenario."""

    seen: Observed
    effects: Effects
    commits: int
    seconds: float  # of virtual time
    unmocked: list[str]
    differences: list[str]  # found by actions on the way


class ScenarioStage:
    """With `crash_at` the engine dies at that commit, just before it is on disk, or just `after`."""

    def __init__(
        self,
        folder: Path,
        scenario: DocumentScenario,
        dialects: Mapping[str, Dialect],
        mocks: Mocks,
        *,
        crash_at: int = NEVER,
        after: bool = False,
        seed: int = 7,
        begins_at: Instant = START,
        title: str | None = None,
    ) -> None:
        self.clock = VirtualClock(begins_at)
        self._seed, self._title = seed, title
        self.tasks = ScenarioTasks(mocks, self.clock, scenario.use)
        self.calls_functions = True  # that are loaded, where no mock answers
        self._folder = folder
        self._scenario = scenario
        self._dialects = dialects
        self._crash_at, self._after = crash_at, after
        self._stores: list[CrashingStore] = []
        self._engine: Engine | None = None
        self._began = self.clock.now()
        self._run = RunId("")
        self._is_repeated = False

    async def __aenter__(self) -> Self:
        await self._boot()
        return self

    async def __aexit__(self, *exit: object) -> None:
        if self._engine is not None:
            await self._engine.runtime.close()
            self._engine = None
        await self.tasks.close()

    @property
    def engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    @property
    def run(self) -> RunId:
        return self._run

    @property
    def has_crashed(self) -> bool:
        return self._stores[0].crashed.is_set()

    @property
    def commits(self) -> int:
        return sum(store.commits for store in self._stores)

    async def _boot(self) -> None:
        store: Store = SqliteStore(self._folder / "scenario.db", self.clock.now)
        at = NEVER if self._stores else self._crash_at
        self._stores.append(CrashingStore(store, at, after=self._after))
        if self.calls_functions:
            self.tasks.worker = local_executor(self.clock, store.program, self._dialects)
        watched: Any = self._stores[-1]
        self._engine = Engine(
            watched, settings=Settings(limits=LIMITS), clock=self.clock, hands=self.tasks, spoken=self._dialects
        )
        await self._engine.runtime.open()
        await self._engine.resume()
        await self._settle()

    async def _crash(self) -> None:
        """The process is gone: what was in flight is lost, what was acknowledged is in the store."""
        await self.engine.runtime.die()
        await self.tasks.close()
        self._engine = None

    # Acts.

    async def _through(self, act: Callable[[], Awaitable[Any]]) -> None:
        """Do it; and where the engine dies meanwhile, do it again with the next one, as any caller would."""
        store = self._stores[-1]
        doing = asyncio.ensure_future(act())
        dying = asyncio.ensure_future(store.crashed.wait())
        try:
            async with asyncio.timeout(REST_TIMEOUT):
                await asyncio.wait([doing, dying], return_when=asyncio.FIRST_COMPLETED)
        finally:
            dying.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.wait([doing])
        if not store.crashed.is_set():
            await doing
            return
        with suppress(Exception, asyncio.CancelledError):
            doing.exception()
        await self._crash()
        await self._boot()
        self._is_repeated = True
        try:
            async with asyncio.timeout(REST_TIMEOUT):
                await act()
        finally:
            self._is_repeated = False

    async def play(self, text: bytes, checked: tuple[Dialect, Validated], applied: Sequence[AppliedDocument]) -> Play:
        scenario = self._scenario
        differences: list[str] = []

        async def start() -> None:
            handle = await self.engine.start(
                text,
                scenario.input,
                name=self._title,
                options=scenario.options,
                applied=applied,
                namespace=scenario.namespace,
                token="scenario",
                seed=self._seed,
                checked=checked,
            )
            self._run = handle.id
            await self._settle()

        await self._through(start)
        for number, action in enumerate(scenario.actions):
            differences += await self._act(number, action)
        if scenario.to_end:
            await self._through(self._to_end)
        return Play(
            seen=await self.observe(),
            effects=Effects(dict(sorted(self.tasks.keys.items())), await self._completed()),
            commits=self.commits,
            seconds=(self.clock.now() - self._began) / SECOND,
            unmocked=self.tasks.unmocked,
            differences=differences,
        )

    async def _act(self, number: int, action: ScenarioAction) -> list[str]:
        from perdure.analysis.expectations import differences

        if action.verb == "crash":
            await self._crash()
            await self._boot()
            return []
        if action.verb == "expect":
            await self._through(self._settle)
            return [f"actions[{number}]: {difference}" for difference in differences(action.body, await self.observe())]
        if action.verb == "advance":
            target = self.clock.now() + action.body
            await self._through(lambda: self._advance(target))
            return []

        async def send() -> None:
            if self._is_repeated:
                with suppress(Conflict):  # it had been heard
                    await self._send(action, f"action-{number}")
            else:
                await self._send(action, f"action-{number}")
            await self._settle()

        try:
            await self._through(send)
        except Conflict as refusal:
            return [f"actions[{number}] ({action.verb}): {refusal}"]
        return []

    async def _send(self, action: ScenarioAction, key: str) -> None:
        handle, body = Handle(self.engine, self._run), action.body or {}
        row = await self.engine.find(self._run)
        if row.partition not in self.engine.runtime.partitions:
            await self.engine.resume()
        match action.verb:
            case "signal":
                await handle.signal(body["name"], body.get("value"), key=key, by=body.get("by", ""))
            case "approve" | "reject":
                decide = handle.approve if action.verb == "approve" else handle.reject
                await decide(body["step"], body.get("message", ""), key=key, by=body.get("by", ""))
            case "steer":
                await self.engine.steer(self._run, body["verb"], body["body"], key=key, by=body["by"])
            case "patch":
                await handle.patch(body, key=key)
            case "cancel":
                await handle.cancel(body.get("reason", ""))
            case "pause":
                await handle.pause(body.get("reason", ""), key=key)
            case "unpause":
                await handle.unpause(body.get("reason", ""), key=key)
            case _:
                await handle.redrive(body.get("step", ""), key=key, by=body.get("by", ""))

    # Time.

    async def _settle(self) -> None:
        """Until nothing moves by itself."""
        calm = looks = 0
        while calm < 4:
            looks += 1
            await asyncio.sleep(0 if calm or looks < 10 else min((looks - 9) * 0.0002, 0.002))
            runtime = self.engine.runtime
            is_calm = runtime.is_quiet and not self.tasks.is_busy and runtime.tasks_in_flight <= len(self.tasks.waiting)
            calm = calm + 1 if is_calm else 0

    async def _advance(self, target: Instant) -> None:
        await self._settle()
        while (due := self.clock.next_alarm()) is not None and due <= target:
            self.clock.move_to(due)
            await self._settle()
        self.clock.move_to(target)
        await self._settle()

    async def _to_end(self) -> None:
        await self._settle()
        last = self.clock.now() + LONGEST
        for _ in range(MOST_ALARMS):
            if (await self.engine.find(self._run)).status.is_final:
                return
            due = self.clock.next_alarm()
            if due is None or due > last:
                return
            self.clock.move_to(due)
            await self._settle()

    # What there is to see.

    async def observe(self) -> Observed:
        engine, run = self.engine, self._run
        row = await engine.find(run)
        execution = await engine.execution(run)
        dialect = self._dialects[row.language]
        seen = Observed(status=row.status.value, calls={name: list(calls) for name, calls in self.tasks.calls.items()})
        match execution.state.outcome:
            case Succeeded(value) if row.status.has_result:
                seen.result = jsontext.decode(await engine.text(run, value))
            case Failed(code, message):
                seen.error = {"code": code, "message": message}
            case Cancelled(reason):
                seen.error = {"code": "Cancelled", "message": reason}
        turns = await run_views.turns(engine.store, dialect, run)
        if dialect.draws_graphs:
            program = await run_views.program_of(engine.store, dialect, row)
            seen.graph, seen.trace = dialect.graph(program), trace_turns(dialect.tracer(program), turns)
        seen.events = await engine.history(run)
        if seen.error is not None and not seen.error["message"]:
            seen.error["message"] = dialect.cause(execution)
        if not row.status.is_final:
            seen.awaits = dialect.awaits(execution)
            seen.awaits += [
                f"task {task.path} of {names_of(task.provider)[-1]!r}" for task in execution.state.tasks.values()
            ]
        return seen

    async def _completed(self) -> dict[str, int]:
        dialect = self._dialects[(await self.engine.find(self._run)).language]
        counts: dict[str, int] = {}
        for _, events in await run_views.turns(self.engine.store, dialect, self._run):
            for event in events:
                if isinstance(event, EffectCompleted):
                    counts[event.key] = counts.get(event.key, 0) + 1
        return counts
