"""What the engine gives tasks to."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from perdure.kernel.outcomes import Outcome
from perdure.kernel.tasks.assignments import Assignment, RunPort


class Executor(Protocol):
    """Executes tasks in this process; a `Worker` is one."""

    def can_perform(self, provider: str) -> bool:
        """Whether it can execute tasks of this provider."""

    def keeps_apart(self, assignment: Assignment) -> bool:
        """Whether the task is always executed in a process of its own, as far as is known here."""

    def can_keep_apart(self, assignment: Assignment) -> bool:
        """Whether it could be executed in a process of its own: `perform` does so if the assignment says so."""

    def perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None:
        """Start the task; `done` is called once, on the event loop, perhaps before this returns."""

    def cancel(self, assignment: Assignment) -> object:
        """Ask a running task to stop."""

    async def close(self) -> None:
        """Stop all tasks, and wait until they have stopped."""


@runtime_checkable
class BatchExecutor(Executor, Protocol):
    """Reports ends that come at the same time by one call."""

    def report_through(self, together: Callable[[Callable[[], None]], None]) -> None:
        """From now on `together` makes that call."""


class NullExecutor:
    """Executes nothing: tasks stay scheduled until another process executes them."""

    def can_perform(self, provider: str) -> bool:
        return False

    def keeps_apart(self, assignment: Assignment) -> bool:
        return False

    def can_keep_apart(self, assignment: Assignment) -> bool:
        return False

    def perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None:
        raise RuntimeError("a null executor was given a task")

    def cancel(self, assignment: Assignment) -> None:
        """Nothing runs."""

    async def close(self) -> None:
        """Nothing is open."""
