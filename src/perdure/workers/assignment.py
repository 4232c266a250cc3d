"""What a worker is handed, and the one door through which work in progress speaks to its run.

The door's type lives with the providers, who must not know workers; it is named here for those who hold both.
"""

from dataclasses import dataclass

from perdure.kernel.values import Instant, RunId
from perdure.providers.context import Claim, Port

__all__ = ["Assignment", "Claim", "Port"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """One delivery of one attempt of a task. `arguments` and `input` are JSON text."""

    run: RunId
    task: int
    path: str
    provider: str
    arguments: bytes
    input: bytes
    attempt: int
    delivery: int
    idempotency_key: str
    deadline: Instant | None = None
    hold_effects_in_doubt: bool = False
