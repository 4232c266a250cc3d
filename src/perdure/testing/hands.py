"""Hands for tests: plain functions at once, and tasks that are held until the test lets them go."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.tasks.assignments import Assignment, RunPort
from perdure.providers.registry import SHIPPED, Provider, shared
from perdure.providers.task_outcomes import describe, to_outcome

if TYPE_CHECKING:
    from perdure.engine.tasks.executor import Executor


class ScriptedHands:
    """`functions` answer at once; every other name in `held` waits for `release`. Everything performed is recorded.

    Names in `isolated` stand for functions that are done in a process of their own, those in `importable` for such that
    could be.
    """

    def __init__(
        self, functions: dict[str, Callable[[Any, Any], Any]] | None = None, held: set[str] | None = None
    ) -> None:
        self.functions: dict[str, Callable[[Any, Any], Any]] = {
            "echo": lambda arguments, input: input,
            **(functions or {}),
        }
        self.held = held or set()
        self.isolated: set[str] = set()
        self.importable: set[str] = set()
        self.performed: list[Assignment] = []
        self.waiting: dict[tuple[str, int], tuple[Assignment, RunPort, Callable[[Outcome], None]]] = {}
        self.cancelled: list[Assignment] = []

    @property
    def is_busy(self) -> bool:
        """Whether a task is at work that nobody holds."""
        """Whether something is at work that will come to an end, or begin to wait, by itself."""
        return False

    def can_perform(self, provider: str) -> bool:
        return provider in self.functions or provider in self.held

    def keeps_apart(self, assignment: Assignment) -> bool:
        return assignment.provider in self.isolated

    def can_keep_apart(self, assignment: Assignment) -> bool:
        return assignment.provider in self.importable

    def perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None:
        self.performed.append(assignment)
        if assignment.provider in self.held:
            self.waiting[(assignment.run, assignment.task)] = (assignment, port, done)
            return
        function = self.functions[assignment.provider]
        try:
            value = function(jsontext.decode(assignment.arguments), jsontext.decode(assignment.input))
            done(Succeeded(jsontext.encode(value)))
        except Exception as error:
            done(Failed(type(error).__name__, str(error), retryable=True))

    def release(self, outcome: Outcome, assignment: Assignment | None = None) -> Assignment:
        """Let the oldest held task, or this one, end so."""
        key = next(iter(self.waiting)) if assignment is None else (assignment.run, assignment.task)
        request, _, done = self.waiting.pop(key)
        done(outcome)
        return request

    def cancel(self, assignment: Assignment) -> None:
        self.cancelled.append(assignment)
        held = self.waiting.pop((assignment.run, assignment.task), None)
        if held is not None:
            held[2](Cancelled("asked to stop"))

    async def close(self) -> None:
        self.waiting.clear()


class WorldHands(ScriptedHands):
    """What a world works with: mocks by name, the functions that are loaded, and what `ScriptedHands` does.

    A mock is an answer, or a function: that of a provider gets the arguments by name, that of an Engram its inputs.
    It may raise `perdure.ProviderFailure`. Of the providers that Perdure brings, only those in `shipped` are used.
    """

    def __init__(
        self,
        functions: dict[str, Callable[[Any, Any], Any]] | None = None,
        held: set[str] | None = None,
        mocks: Mapping[str, Any] | None = None,
        shipped: Collection[str] = (),
    ) -> None:
        super().__init__(functions, held)
        self.mocks: dict[str, Any] = {}
        self.shipped = frozenset(shipped)
        self.at_work: dict[tuple[str, int], Assignment] = {}
        self.worker: Executor | None = None  # does what is not mocked; a world makes one with each engine
        self._lent: list[Callable[[], None]] = []
        for name, answer in (mocks or {}).items():
            self.mock(name, answer)

    def mock(self, name: str, answer: Any) -> None:
        """From now on tasks of this provider or Engram get the answer. A provider that is not loaded exists now."""
        if inspect.iscoroutinefunction(answer):
            raise TypeError(f"the mock of {name!r} is a coroutine function (expected an answer, or a plain function)")
        self.mocks[name] = answer
        if not shared.knows(name):
            self._lent.append(shared.lend(Provider.of(name, _anything, declared={"additionalProperties": True})))

    def forget_mocks(self) -> None:
        """Tasks are performed by their providers again."""
        self.mocks.clear()
        while self._lent:
            self._lent.pop()()

    def arguments_of(self, name: str) -> list[Any]:
        """What tasks of this provider or Engram were called with, in order."""
        return [_arguments(assignment) for assignment in self.performed if _name(assignment.provider) == name]

    @property
    def is_busy(self) -> bool:
        """Whether a task is at work that will end by itself."""
        return bool(self.at_work)

    def describe_tasks(self) -> list[str]:
        """What is open here, as text for people."""
        held = (f"{_label(assignment)} is held: release it" for assignment, _, _ in self.waiting.values())
        return [*held, *(f"{_label(assignment)} is at work" for assignment in self.at_work.values())]

    def can_perform(self, provider: str) -> bool:
        return _name(provider) in self.mocks or super().can_perform(provider) or self._is_loaded(provider)

    def _is_loaded(self, provider: str) -> bool:
        is_ours = provider in SHIPPED and provider not in self.shipped
        return self.worker is not None and not is_ours and self.worker.can_perform(provider)

    def perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None:
        provider = assignment.provider
        if _name(provider) in self.mocks:
            self.performed.append(assignment)
            done(self._answer(assignment))
        elif super().can_perform(provider):
            super().perform(assignment, port, done)
        else:
            assert self.worker is not None
            self.performed.append(assignment)
            key = (assignment.run, assignment.task)
            self.at_work[key] = assignment

            def ended(outcome: Outcome) -> None:
                self.at_work.pop(key, None)
                done(outcome)

            self.worker.perform(assignment, port, ended)

    def _answer(self, assignment: Assignment) -> Outcome:
        name = _name(assignment.provider)
        answer, arguments = self.mocks[name], _arguments(assignment)
        try:
            if callable(answer):
                answer = answer(arguments) if name != assignment.provider else answer(**arguments)
        except Exception as error:
            provider = shared.find(assignment.provider)
            return describe(error, "" if provider is None else provider.prefix)
        return to_outcome(answer)

    def cancel(self, assignment: Assignment) -> None:
        if (assignment.run, assignment.task) in self.at_work and self.worker is not None:
            self.cancelled.append(assignment)
            self.worker.cancel(assignment)
        else:
            super().cancel(assignment)

    async def close(self) -> None:
        await super().close()
        self.at_work.clear()
        if self.worker is not None:
            worker, self.worker = self.worker, None
            await worker.close()


def _anything(**arguments: Any) -> Any:
    """Stands for a provider that exists only as a mock."""
    raise NotImplementedError


def _name(provider: str) -> str:
    """The name by which people know it: that of an Engram, without its version."""
    return provider.removeprefix("engram:").partition("@")[0] if provider.startswith("engram:") else provider


def _arguments(assignment: Assignment) -> Any:
    arguments = jsontext.decode(assignment.arguments)
    return arguments.get("inputs") if assignment.provider.startswith("engram:") else arguments


def _label(assignment: Assignment) -> str:
    return f"task {assignment.task} of run {assignment.run}, provider {_name(assignment.provider)!r},"
