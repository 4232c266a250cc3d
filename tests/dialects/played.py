"""Scenarios on the real engine and a real store: the same steering as in `tests.dialects.universe`, another driver.

    async with Stage(folder, {"story": Story()}, work) as stage:
        await stage.begin("story", text, inputs)
        await stage.settle()
        shown = await stage.show()

The outside remembers what it was asked: an attempt that is delivered again after a crash gets the same answer, at the
same instant. So a crash may cost a delivery and must not change how the scenario ends.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from perdure.engine.settings import Settings
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.validation import Resource
from perdure.kernel.errors import Conflict
from perdure.kernel.execution import Limits
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId, digest
from perdure.kernel.outcomes import Cancelled, Failed, Outcome
from perdure.kernel.secrets.secret_masking import Mask
from perdure.kernel.tasks.assignments import Assignment, RunPort
from perdure.kernel.tasks.crash_attribution import LossKind
from perdure.providers.failure import ProviderFailure
from perdure.services.playbook.keychain import HostKeychain, HostSecrets
from perdure.stores.protocol import ResourceWrite, Store
from perdure.testing import CrashingStore, FakeClock, ScriptedHands, World
from perdure.workers.unsealer import Unsealer
from tests.dialects.universe import Answer, Work

RUN = RunId("run")
NEVER = 1_000_000
MOST_ALARMS = 5_000

Attempt = tuple[RunId, int, int]


class Outside(ScriptedHands):
    """What the tasks of a scenario do, and when they are done with it."""

    def __init__(self, work: Mapping[str, Work], languages: Mapping[str, Dialect], variables: dict[str, str]) -> None:
        super().__init__()
        self._work = work
        self.languages = languages
        self._variables = variables
        self._mask = Mask()
        self._answers: dict[Attempt, tuple[Instant, Answer]] = {}
        self._said: dict[Attempt, int] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self.clock = FakeClock()  # the world's, from the start of the play
        self.store: Store | None = None

    def can_perform(self, provider: str) -> bool:
        return provider in self._work

    def work(self, assignment: Assignment) -> Work:
        return self._work[assignment.provider]

    def perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None:
        self.performed.append(assignment)
        task = asyncio.get_running_loop().create_task(self._perform(assignment, port, done))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way)

    async def _perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None:
        attempt = (assignment.run, assignment.task, assignment.attempt)
        if attempt not in self._answers:
            answer = await self._answer(assignment)
            self._answers[attempt] = (self.clock.now() + answer.after, answer)
        due, answer = self._answers[attempt]
        for report in answer.says[self._said.get(attempt, 0) :]:
            await port.report(jsontext.encode(report))
            self._said[attempt] = self._said.get(attempt, 0) + 1
        for key, result in answer.does.items():
            claim = await port.claim_effect(key)
            if not claim.completed:
                await port.complete_effect(key, jsontext.encode(result))
        outcome = self._mask.outcome(answer.outcome())
        self.waiting[(assignment.run, assignment.task)] = (assignment, port, done)
        self.clock.call_at(due, lambda: self._end(assignment, outcome))

    def _end(self, assignment: Assignment, outcome: Outcome) -> None:
        held = self.waiting.get((assignment.run, assignment.task))
        if held is not None and held[0] is assignment:
            self.release(outcome, assignment)

    async def _answer(self, assignment: Assignment) -> Answer:
        try:
            arguments = (
                jsontext.decode(assignment.arguments) if not assignment.sealed else await self._opened(assignment)
            )
            answer = await asyncio.to_thread(self.work(assignment), arguments)  # it may drive a loop of its own
        except ProviderFailure as failure:
            answer = Failed(failure.code, failure.message, failure.retryable, jsontext.encode(failure.details))
        except Exception as error:
            answer = Failed(f"Provider.Call.X.Errors.{type(error).__name__}", str(error))
        if isinstance(answer, Failed | Cancelled):
            answer = Answer(failure=answer)
        return answer if isinstance(answer, Answer) else Answer(answer)

    async def _opened(self, assignment: Assignment) -> dict[str, Any]:
        assert self.store is not None
        openers = {name: language for name, language in self.languages.items() if language.opens_envelopes}
        unsealer = Unsealer(
            openers,
            self.store.program,
            self.clock.now,
            HostKeychain(HostSecrets(lambda name: None, {"PERDURE_KEYCHAIN_ENV": "*", **self._variables})),
        )
        try:
            return await unsealer.open(assignment, self._mask)
        finally:
            await unsealer.close()

    def cancel(self, assignment: Assignment) -> None:
        answered = self._answers.get((assignment.run, assignment.task, assignment.attempt))
        if answered is None or not answered[1].stubborn:
            super().cancel(assignment)

    def forget(self, run: RunId, task: int) -> None:
        """The process that worked on it is gone, and with it all it knew."""
        self.waiting.pop((run, task), None)
        for attempt in [key for key in self._answers if key[:2] == (run, task)]:
            del self._answers[attempt]

    async def close(self) -> None:
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await super().close()


class Stage:
    """One scenario. With `crash_at` its engine dies at that commit, just before it is on disk or just `after`.

    Where it `leaves` instead, it hands over in order at that moment; where it `pauses`, the run is paused and its
    engine dies, and the next one unpauses it.
    """

    def __init__(
        self,
        folder: Path,
        languages: Mapping[str, Dialect],
        work: Mapping[str, Work],
        *,
        variables: dict[str, str] | None = None,
        limits: Limits | None = None,
        crash_at: int = NEVER,
        after: bool = False,
        leaves: bool = False,
        pauses: bool = False,
    ) -> None:
        self.outside = Outside(work, languages, variables or {})
        self._crash_at, self._after, self._leaves, self._pauses = crash_at, after, leaves, pauses
        self.was_paused = False
        self.stores: list[CrashingStore] = []
        self.is_drained = True  # whether nothing was at work that did not end when the engine left
        self.world = World(
            folder,
            hands=self.outside,
            spoken=languages,
            wrap=self._watch,
            settings=Settings(limits=limits or Limits(), grace=0.02),
        )
        self.outside.clock = self.world.clock

    def _watch(self, store: Store) -> Any:
        self.outside.store = store
        at = NEVER if self.stores else self._crash_at
        self.stores.append(CrashingStore(store, at, after=self._after, dies=not (self._leaves or self._pauses)))
        return self.stores[-1]

    @property
    def commits(self) -> int:
        return sum(store.commits for store in self.stores)

    @property
    def crashed(self) -> bool:
        return len(self.stores) > 1

    async def __aenter__(self) -> Self:
        await self.world.boot()
        return self

    async def __aexit__(self, *exit: object) -> None:
        await self.world.__aexit__(*exit)

    async def begin(
        self,
        language: str,
        text: bytes,
        input: Any = None,
        options: dict[str, Any] | None = None,
        *,
        labels: dict[str, str] | None = None,
    ) -> None:
        encoded_input, encoded_options = jsontext.encode(input), jsontext.encode(options or {})
        start = i.Start(language, digest(text), "test", encoded_input, encoded_options, 7, labels=labels or {})
        await self._through(lambda: self._start(start, text))

    async def _start(self, start: i.Start, text: bytes) -> None:
        engine = self.world.engine
        assert engine is not None
        if await engine.store.find(RUN) is not None:
            return  # it was on disk before the crash
        answer: asyncio.Future[i.InputAnswer] = asyncio.get_running_loop().create_future()
        program = engine.languages[start.language].load(text)
        engine.runtime.create(
            RUN, start, text, program, lambda refusal: None if answer.done() else answer.set_result(refusal)
        )
        await answer

    async def settle(self, until: Instant | None = None) -> None:
        """Until nothing but the outside can move anything, or until this instant."""
        await self._through(lambda: self._settle(until))

    async def _settle(self, until: Instant | None) -> None:
        clock = self.world.clock
        await self.world.settle()
        for _ in range(MOST_ALARMS):
            due = clock.next_alarm()
            if due is None or (until is not None and due > until):
                break
            clock.move_to(due)
            await self.world.settle()
        else:
            raise AssertionError("the scenario does not come to rest")
        if until is not None:
            clock.move_to(until)
            await self.world.settle()

    async def tell(self, message: i.Input) -> None:
        engine = self.world.engine
        assert engine is not None
        await self._through(lambda: self._ask(message))

    async def _ask(self, message: i.Input) -> None:
        engine = self.world.engine
        assert engine is not None
        if (await engine.find(RUN)).partition in engine.runtime.partitions:
            await engine.runtime.ask(RUN, message)
        else:  # it had ended when its engine died: a letter makes it open again, and somebody takes it up
            await engine.tell(RUN, message)
            await engine.resume()

    async def lose(self, path: str) -> None:
        """The process at work on this task is gone."""
        assert self.world.engine is not None
        tasks = (await self.world.engine.execution(RUN)).state.tasks
        number = next((number for number, task in tasks.items() if task.path == path), None)
        if number is None:
            assert not self.is_drained, f"nothing is at work on {path}"
            return  # it was lost once more when its engine left, and has ended of that
        self.outside.forget(RUN, number)
        with suppress(Conflict):  # heard before an engine died, and said again to the next: it has ended the run
            await self.tell(
                i.TaskLost(number, tasks[number].delivery, "its process ended before it did", LossKind.ALONE)
            )

    async def apply(self, resource: Resource) -> None:
        """Into the catalog as it is, whatever a judge would say of it."""
        metadata = resource["metadata"]
        namespace = "" if resource["kind"].endswith("Template") else metadata.get("namespace", "default")
        key = ResourceKey(resource["kind"], namespace, metadata["name"])
        body = jsontext.encode(resource)
        assert self.world.engine is not None
        await self.world.engine.store.write_catalog([ResourceWrite(key, metadata["name"], 1, body, body, {}, None, 0)])
        await self.world.engine.runtime.read_inbox()  # those who wait for it are told, and need not be polled for

    async def is_over(self) -> bool:
        assert self.world.engine is not None
        return (await self.world.engine.find(RUN)).status.is_final

    async def show(self) -> Any:
        assert self.world.engine is not None
        return await self.world.engine.show(RUN)

    async def _pause_and_crash(self) -> None:
        await self.world.settle()
        engine = self.world.engine
        assert engine is not None
        if await engine.store.find(RUN) is None or await self.is_over():
            return
        with suppress(Conflict):  # it is not open to messages any more
            await engine.handle(RUN).pause("to look around", key="pause", by="test")
            self.was_paused = True
        await self.world.settle()
        handed_out = self._handed_out()
        await self.world.crash()
        await self.world.boot()
        if self.was_paused:
            assert self.world.engine is not None
            is_held = (await self.world.engine.execution(RUN)).state.is_held
            assert not is_held or self._handed_out() == handed_out, "a paused run hands nothing out"
            await self.world.engine.handle(RUN).unpause(key="unpause", by="test")
            await self.world.settle()

    def _handed_out(self) -> int:
        return sum(assignment.run == RUN for assignment in self.outside.performed)

    async def _through(self, act: Callable[[], Any]) -> None:
        """Do it; and where the engine dies meanwhile, do it again with the next one, as any caller would."""
        store = self.stores[-1]
        doing = asyncio.ensure_future(act())
        dying = asyncio.ensure_future(store.crashed.wait())
        await asyncio.wait([doing, dying], return_when=asyncio.FIRST_COMPLETED)
        if not store.crashed.is_set():
            dying.cancel()
            await doing
            return
        doing.cancel()
        await asyncio.wait([doing])
        if self._leaves:
            self.is_drained = await self.world.hand_over()
        elif self._pauses:
            await self._pause_and_crash()
        else:
            await self.world.crash()
            await self.world.boot()
        await act()
