"""What surrounds the run of a scenario: tasks that mocks answer, and languages for which everything mocked exists."""

from collections.abc import Callable, Iterable
from typing import Any

from perdure.analysis.mocks import MockedCall, Mocks, names_of, not_mocked
from perdure.engine.tasks.executor import Executor, NullExecutor
from perdure.engine.virtual_clock import VirtualClock
from perdure.kernel.dialect import Dialect
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Cancelled, Outcome
from perdure.kernel.tasks.assignments import Assignment, RunPort
from perdure.providers.registry import SHIPPED, Provider, Registry, shared
from perdure.services.story.engrams import engram_resources
from perdure.services.story.engrams.registry import shared_engrams
from perdure.wiring import languages

_VERSION = "1.0.0"


class OpenRegistry(Registry):
    """Has every provider that a document names; what is not known here takes any arguments."""

    def knows(self, name: str) -> bool:
        return True

    def find(self, name: str) -> Provider | None:
        if not super().knows(name):
            self.declare_unknown(name)
        return super().find(name)

    def declare_unknown(self, name: str) -> None:
        known = shared.with_declared([name]).find(name)
        assert known is not None
        self._providers[name] = known


def scenario_languages(mocked: Iterable[str], *, has_everything: bool = False) -> dict[str, Dialect]:
    """`mocked`: names of providers that exist because they are mocked. `has_everything`: all others do, too."""
    known = shared.with_declared(mocked)
    if has_everything:
        known = OpenRegistry(known.sources, dict(known._providers), known._entry_points, _elsewhere=known._elsewhere)
    return languages(lambda code: True, lambda provider, namespace="": None, known, provided_engram)


def provided_engram(kind: str, namespace: str, name: str) -> dict[str, Any] | None:
    """Loaded code, or else an Engram of this name: a test needs none of the code that it mocks."""
    loaded = shared_engrams.find(kind, namespace, name)
    if loaded is not None:
        return loaded
    if kind == "EngramTemplate":
        return engram_resources.template(name, _VERSION)
    return engram_resources.engram(name, namespace, _VERSION) if kind == "Engram" else None


class ScenarioTasks(NullExecutor):
    """Answers tasks by mocks; has loaded functions performed; knows what was called."""

    def __init__(self, mocks: Mocks, clock: VirtualClock, use: frozenset[str]) -> None:
        self._mocks = mocks
        self._clock = clock
        self._use = use
        self._due: dict[tuple[RunId, int, int], Instant] = {}
        self._at_work: set[tuple[RunId, int]] = set()
        self.waiting: dict[tuple[RunId, int], tuple[Assignment, Callable[[Outcome], None]]] = {}
        self.worker: Executor | None = None
        self.calls: dict[str, list[Any]] = {}
        self.keys: dict[str, tuple[str, bytes]] = {}
        self.unmocked: list[str] = []
        self._seen: set[tuple[RunId, int, int]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._at_work)

    def can_perform(self, provider: str) -> bool:
        return True

    def keeps_apart(self, assignment: Assignment) -> bool:
        return False

    def perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None:
        provider, path = assignment.provider, assignment.path
        name = names_of(provider)[-1]
        attempt = (assignment.run, assignment.task, assignment.attempt)
        arguments = _arguments(assignment)
        if attempt not in self._seen:
            self._seen.add(attempt)
            self.calls.setdefault(name, []).append(arguments)
        self.keys[f"{assignment.idempotency_key}#{assignment.attempt}"] = (name, jsontext.encode(arguments))
        if self._mocks.mocks(provider, path):
            answer = self._mocks.answer(MockedCall(*attempt, provider, path, arguments))
        elif self._is_loaded(provider):
            self._work(assignment, port, done)
            return
        else:
            answer = not_mocked(provider)
            if name not in self.unmocked:
                self.unmocked.append(name)
        due = self._due.setdefault(attempt, self._clock.now() + answer.after)
        if due <= self._clock.now():
            done(answer.outcome)
            return
        self.waiting[(assignment.run, assignment.task)] = (assignment, done)
        self._clock.call_at(due, lambda: self._end(assignment, answer.outcome))

    def _is_loaded(self, provider: str) -> bool:
        is_ours = provider in SHIPPED and not self._use & {*names_of(provider)}
        return self.worker is not None and not is_ours and self.worker.can_perform(provider)

    def _work(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None:
        assert self.worker is not None
        key = (assignment.run, assignment.task)
        self._at_work.add(key)

        def ended(outcome: Outcome) -> None:
            self._at_work.discard(key)
            done(outcome)

        self.worker.perform(assignment, port, ended)

    def _end(self, assignment: Assignment, outcome: Outcome) -> None:
        held = self.waiting.get((assignment.run, assignment.task))
        if held is not None and held[0] is assignment:
            del self.waiting[(assignment.run, assignment.task)]
            held[1](outcome)

    def cancel(self, assignment: Assignment) -> None:
        key = (assignment.run, assignment.task)
        held = self.waiting.pop(key, None)
        if held is not None:
            held[1](Cancelled("asked to stop"))
        elif key in self._at_work and self.worker is not None:
            self.worker.cancel(assignment)

    async def close(self) -> None:
        self.waiting.clear()
        self._at_work.clear()
        if self.worker is not None:
            worker, self.worker = self.worker, None
            await worker.close()


def _arguments(assignment: Assignment) -> Any:
    """As the author of the document knows them: of an Engram, its inputs."""
    arguments = jsontext.decode(assignment.arguments)
    is_engram = assignment.provider.startswith("engram:") and isinstance(arguments, dict)
    return arguments.get("inputs") if is_engram else arguments
