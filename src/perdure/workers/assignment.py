"""What a worker is handed, and the one door through which work in progress speaks to its run."""

from dataclasses import dataclass
from typing import Any, Protocol

from perdure.kernel.values import Instant, RunId


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


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to a wish to perform an effect.

    completed: it was performed before; `result` is what it gave.
    in_doubt: an earlier holder claimed it and vanished; it may have happened.
    """

    completed: bool
    in_doubt: bool = False
    result: bytes | None = None


class Port(Protocol):
    """How a task in flight reaches its run. Every call answers once the fact is durable."""

    async def claim_effect(self, key: str) -> Claim: ...
    async def complete_effect(self, key: str, result: bytes) -> None: ...
    async def release_effect(self, key: str) -> None: ...
    async def emit_signal(self, name: str, value: bytes) -> None: ...
    async def report(self, body: bytes) -> Any: ...
    def heartbeat(self, detail: bytes | None) -> None: ...
    def log(self, level: str, message: str, fields: dict[str, Any]) -> None: ...
