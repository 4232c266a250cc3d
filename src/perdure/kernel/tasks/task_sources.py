"""Where a worker elsewhere gets its tasks, and where it answers: a server, or in tests an engine."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from perdure.kernel.json_values.values import Instant
from perdure.kernel.outcomes import Outcome
from perdure.kernel.tasks.assignments import Assignment, RunPort
from perdure.kernel.tasks.crash_attribution import StartPlace


class TaskGrant(msgspec.Struct, frozen=True, gc=False):
    """One delivery of a task, for as long as the lease is kept."""

    lease: str
    assignment: Assignment
    asked_at: float  # `time.monotonic`, from before it was asked for: by the worker's own clock it lasts from then
    granted_at: Instant = 0
    pipeline: Any = None  # what the task's language says about its pipeline; None: the task is alone
    number: int = 1  # of the outcome that is reported next under this lease


class KeptLeases(msgspec.Struct, frozen=True):
    lost: frozenset[str]  # they belong to others now
    recalled: frozenset[str]  # their tasks should stop


class TaskSource(Protocol):
    """Answers are retried until they are heard: the same answer twice is the same."""

    lease_for: float  # seconds
    beat_every: float

    async def lease(self, count: int, wait: float) -> list[TaskGrant]: ...

    async def give_back_unheard(self) -> None:
        """After a `lease` that was cut off: what it may have got is given back."""

    async def renew(self, leases: Sequence[str]) -> KeptLeases: ...

    async def begin(self, lease: str, place: StartPlace, cleared: bool | None = None) -> bool:
        """Record where a suspect begins; False: the lease is not ours any more."""

    async def end(self, lease: str, outcome: Outcome, *, was_alone: bool = False) -> bool:
        """Answer; False: the lease is not ours any more, and nothing was changed."""

    async def pass_on(self, grant: TaskGrant, outcome: Outcome) -> TaskGrant | None:
        """Report the outcome of a task of a pipeline; the next one, if it goes on under this lease."""

    async def release(self, lease: str, *, has_begun: bool) -> None: ...

    def port_for(self, grant: TaskGrant) -> RunPort: ...
