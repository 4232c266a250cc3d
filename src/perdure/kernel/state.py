"""The kernel's part of a run's state; `state_changes` says how events change it.

Mutable and owned by one slot; every change is constant time at any width.
What a dialect keeps is its own (`Execution.body`); the kernel only knows what is open to the world.
"""

import msgspec

from perdure.kernel import events as e
from perdure.kernel.crash_attribution import StartPlace
from perdure.kernel.effects import Effect
from perdure.kernel.inputs import CALENDAR_RANK
from perdure.kernel.outcomes import Outcome, Status
from perdure.kernel.values import NULL, Instant, Payload, RunId, digest


class OpenTask(msgspec.Struct, gc=False, array_like=True):
    provider: str
    path: str
    arguments: Payload
    input: Payload
    attempt: int
    delivery: int
    pool: str
    deadline: Instant | None
    max_deliveries: int  # how many charges end it
    grace: Instant
    hold_effects_in_doubt: bool
    cancelling: bool = False
    sealed: bool = False
    key: str = ""
    laid_down: bool = False  # not begun, and in nobody's hands
    timer: int = 0  # bounds it, and goes with it
    held: str = ""  # the effect that an operator has to settle first
    suspicion: int = 0  # see `crash_attribution`
    place: int = StartPlace.UNKNOWN  # of this delivery
    losses: int = 0  # that made it more suspicious
    charges: int = 0
    charged_at: int = 0  # the delivery that was charged last
    machine: str = ""  # on which this delivery was begun alone


class OpenTimer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    due: Instant
    rank: int

    def due_with(self, ahead: Instant) -> Instant:
        """By the store's clock, where the wall is so much ahead of it."""
        return self.due - ahead if self.rank == CALENDAR_RANK else self.due

    child: int = 0  # that it is the grace of; it goes with its end


class OpenChild(msgspec.Struct, gc=False, array_like=True):
    start: e.ChildStarted  # what is needed to start it anew in a fork
    cancelling: bool = False
    timer: int = 0  # ends its grace, and goes with it
    grace: Instant = 0


class Permit(msgspec.Struct, gc=False, array_like=True):
    scope: str
    granted: bool = False
    priority: int = 0  # these are needed to ask for it anew in a fork
    limit: int | None = None
    ageing: Instant = 0


class State(msgspec.Struct, gc=False, array_like=True):
    language: str = ""
    name: str = ""
    program: bytes = b""
    input: Payload = NULL
    options: bytes = b"{}"
    seed: int = 0
    parent: tuple[RunId, int] | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    key: bytes = b""
    status: Status = Status.RUNNING
    outcome: Outcome | None = None
    incarnation: int = 1
    started_at: Instant = 0
    ended_at: Instant | None = None
    at: Instant = 0  # the latest reading of the clock that was used; it never goes back
    seq: int = 0  # events folded so far
    issued: int = 0  # the last number given to a task, timer, child or permit
    moves: int = 0
    sliced: bool = False
    cancel_requested: bool = False
    tasks: dict[int, OpenTask] = msgspec.field(default_factory=dict)
    timers: dict[int, OpenTimer] = msgspec.field(default_factory=dict)
    children: dict[int, OpenChild] = msgspec.field(default_factory=dict)
    permits: dict[int, Permit] = msgspec.field(default_factory=dict)
    effects: dict[str, Effect] = msgspec.field(default_factory=dict)
    keys: dict[str, bytes] = msgspec.field(default_factory=dict)
    local_tasks: int = 0  # open tasks that run in the engine's own process
    tasks_scheduled: int = 0
    tasks_ended: int = 0
    disowned: bool = False  # to be removed as soon as it has ended
    enumerated: int = 0  # with `moves`, as long as the work goes on in slices
    caught: int = 0
    held_tasks: int = 0  # open tasks that wait for an operator
    suspects: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """By site: suspicion and losses of a task that was called back, for the next one there."""
    declined: int = 0  # words that were acknowledged and did not count
    declined_words: list[tuple[str, str, str, Instant]] = msgspec.field(default_factory=list)  # those that are listed
    forked_from: list[RunId] = msgspec.field(default_factory=list)  # the runs whose past is this run's past too

    @property
    def has_local_work(self) -> bool:
        """Whether a restart has to take this run up by itself, rather than wait for an input or a timer."""
        return self.sliced or self.local_tasks > 0

    @property
    def activity(self) -> Status:
        """The status with a finer word for an open run: does it work, or does it wait?"""
        if self.status.is_final or len(self.tasks) > self.held_tasks or self.sliced:
            return self.status
        return Status.WAITING


def content(kind: str, name: str, body: Payload) -> bytes:
    """What a key stands for: everything that was said with it, but not who said it."""
    body_digest = digest(body) if isinstance(body, bytes) else body.digest
    return digest(f"{kind}\x1f{name}\x1f".encode() + body_digest)[:16]


def settlement(effect: str, result: Payload | None) -> bytes:
    """What the key of a settled effect stands for."""
    return content("settle", effect, b"" if result is None else result)
