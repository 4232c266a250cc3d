"""The kernel's part of a run's state; `state_changes` says how events change it.

Mutable and owned by one slot; every change takes constant time at any width. A dialect's part is in `Execution.body`;
the kernel knows only what is open to the outside.
"""

import msgspec

from perdure.kernel import events as e
from perdure.kernel.inputs import CALENDAR_RANK
from perdure.kernel.json_values.values import NULL, Instant, Payload, RunId, digest
from perdure.kernel.outcomes import Outcome, Status
from perdure.kernel.tasks.crash_attribution import StartPlace
from perdure.kernel.tasks.effects import Effect


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
    laid_down: bool = False  # not started, and no executor has it
    timer: int = 0  # bounds it, and is removed with it
    held: str = ""  # the effect that an operator has to settle first
    suspicion: int = 0  # see `crash_attribution`
    place: int = StartPlace.UNKNOWN  # of this delivery
    losses: int = 0  # that made it more suspicious
    charges: int = 0
    charged_at: int = 0  # the delivery that was charged last
    machine: str = ""  # on which this delivery was started alone

    @property
    def is_kept_back(self) -> bool:
        """Whether nobody has it, and nothing but a pause or a hand-over of its run is the reason."""
        return self.laid_down and not self.cancelling and not self.held


class OpenTimer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    due: Instant
    rank: int

    def due_with(self, ahead: Instant) -> Instant:
        """By the store's clock, given how far the wall clock is ahead of it."""
        return self.due - ahead if self.rank == CALENDAR_RANK else self.due

    child: int = 0  # the timer is its grace, and is removed with its end


class OpenChild(msgspec.Struct, gc=False, array_like=True):
    start: e.ChildStarted  # what is needed to start it again in a fork
    cancelling: bool = False
    timer: int = 0  # ends its grace, and is removed with it
    grace: Instant = 0


class Permit(msgspec.Struct, gc=False, array_like=True):
    scope: str
    granted: bool = False
    priority: int = 0  # these are needed to request it again in a fork
    limit: int | None = None
    ageing: Instant = 0


class Pause(msgspec.Struct, gc=False, array_like=True, frozen=True):
    at: Instant
    by: str
    reason: str
    holds: bool  # the kernel makes no move, and keeps tasks back


class DocumentBefore(msgspec.Struct, gc=False, array_like=True, frozen=True):
    """What a run had before it was moved to another document; to undo the move, it returns to it."""

    program: bytes
    language: str
    document: Payload
    mapping: dict[str, str]  # of the move
    at: Instant


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
    at: Instant = 0  # the latest clock reading that was used; it never decreases
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
    disowned: bool = False  # to be removed as soon as the run has ended
    enumerated: int = 0  # with `moves`, as long as the work continues in slices
    caught: int = 0
    held_tasks: int = 0  # open tasks that wait for an operator
    suspects: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """By site: suspicion and losses of a task that was called back, for the next task there."""
    declined: int = 0  # control messages that were acknowledged and did not count
    declined_messages: list[tuple[str, str, str, Instant]] = msgspec.field(
        default_factory=list
    )  # those that are listed
    forked_from: list[RunId] = msgspec.field(default_factory=list)  # the runs whose past this run shares

    pause: Pause | None = None
    doubts: dict[str, int] = msgspec.field(default_factory=dict)
    """By site: the life in which an effect was claimed whose end is not known; it is only repeated under its key."""
    namespace: str = ""  # see `Execution.namespace`
    started_by: tuple[str, str] | None = None
    from_api: bool = False
    moves_made: int = 0  # to another document, and back
    documents_before: list[DocumentBefore] = msgspec.field(default_factory=list)  # of moves that were not undone

    @property
    def is_held(self) -> bool:
        """Whether it makes no move and nothing of it is handed out, because it is paused."""
        return self.pause is not None and self.pause.holds

    @property
    def has_local_work(self) -> bool:
        """Whether a restart has to load this run at once, rather than wait for an input or a timer."""
        return self.sliced or self.local_tasks > 0

    @property
    def activity(self) -> Status:
        """The status, refined for an open run: is it working or waiting?"""
        if self.pause is not None:
            return Status.PAUSED
        if self.status.is_final or len(self.tasks) > self.held_tasks or self.sliced:
            return self.status
        return Status.WAITING


def content(kind: str, name: str, body: Payload) -> bytes:
    """What a key stands for: the content of the message, but not its sender."""
    body_digest = digest(body) if isinstance(body, bytes) else body.digest
    return digest(f"{kind}\x1f{name}\x1f".encode() + body_digest)[:16]


def steering(verb: str, body: Payload) -> bytes:
    """What the key of a steering message stands for: a redrive is the same whether its run is open or has ended."""
    return content("reopen", "", body) if verb == "redrive" else content("steer", verb, body)


def settlement(effect: str, result: Payload | None) -> bytes:
    """What the key of a settled effect stands for."""
    return content("settle", effect, b"" if result is None else result)


def migration(program: bytes, mapping: dict[str, str], undoes: bool) -> bytes:
    """What the key of a move to another document stands for."""
    return content("migrate", "undo" if undoes else "", program + msgspec.json.encode(mapping, order="sorted"))
