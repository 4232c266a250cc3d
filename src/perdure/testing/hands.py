"""Hands for tests: plain functions at once, and tasks that are held until the test lets them go."""

from collections.abc import Callable
from typing import Any

from perdure.kernel import jsontext
from perdure.kernel.assignments import Assignment, RunPort
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded


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
        found, _, done = self.waiting.pop(key)
        done(outcome)
        return found

    def cancel(self, assignment: Assignment) -> None:
        self.cancelled.append(assignment)
        held = self.waiting.pop((assignment.run, assignment.task), None)
        if held is not None:
            held[2](Cancelled("asked to stop"))

    async def close(self) -> None:
        self.waiting.clear()
