"""Hands that take nothing up: tasks stay scheduled until a process comes that stays."""

from collections.abc import Callable

from perdure.kernel.assignments import Assignment, RunPort
from perdure.kernel.outcomes import Outcome


class NullExecutor:
    def can_perform(self, provider: str) -> bool:
        return False

    def keeps_apart(self, assignment: Assignment) -> bool:
        return False

    def can_keep_apart(self, assignment: Assignment) -> bool:
        return False

    def perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None:
        raise RuntimeError("nothing is handed to hands that can perform nothing")

    def cancel(self, assignment: Assignment) -> None:
        """There is nothing to stop."""

    async def close(self) -> None:
        """There is nothing to give back."""
