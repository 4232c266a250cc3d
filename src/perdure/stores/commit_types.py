"""What the engine asks a store to write, and what the store answers.

One transaction, `Store.commit`, writes everything that a batch of turns decided: log rows, messages to other runs,
large values, permits, leased tasks. It checks the epoch of every partition it writes to, so an owner that was
taken over can write nothing. Losing a race is an answer, not an exception.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from perdure.kernel.documents.lookups import CachedValue
from perdure.kernel.ids import DEFAULT_NAMESPACE, RunName
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Status
from perdure.stores.access import ActRecord

T = TypeVar("T")

# What one run wants written.


class NewRun(msgspec.Struct, gc=False, frozen=True):
    language: str
    name: str
    program: bytes
    parent: RunId | None
    labels: dict[str, str]
    key: bytes
    created_at: Instant
    named: str | None = None  # the name that no other run of its language may have in its namespace
    namespace: str = DEFAULT_NAMESPACE


class RunSummary(msgspec.Struct, gc=False, frozen=True):
    """What a store must know of a run without reading its log. Rewritten when it is parked, ends or is taken up."""

    status: Status
    has_work: bool  # open work in the owner's process: a restart takes it up by itself
    due: Instant | None  # when a parked run wants to be woken; while there is work, nothing is due before
    ended_at: Instant | None = None
    on_wall: Instant | None = None  # the same for waits until an instant on the wall, by that clock


class Message(msgspec.Struct, gc=False, frozen=True):
    """An input on its way to another run, written with the commit that sends it."""

    to: RunId
    at: Instant
    body: bytes
    is_control: bool = False  # somebody was told that it is recorded: its run is not removed before it is decided


class RequestedPermit(msgspec.Struct, gc=False, frozen=True):
    scope: str
    permit: int
    priority: int
    limit: int | None
    asked_at: Instant
    ageing: Instant = 0


class TaskOffer(msgspec.Struct, gc=False, frozen=True):
    """A task for workers in other processes."""

    task: int
    delivery: int
    pool: str
    provider: str
    body: bytes
    namespace: str = DEFAULT_NAMESPACE  # of its run
    at: Instant = 0
    opener: str = ""  # the language that its worker must be able to open; empty: the task is not sealed
    pipeline: bytes = b""  # `OfferedPipeline`; empty: the task is offered by itself
    follows: str = ""  # the lease under which the task before it in its pipeline was done: it goes on, if it lasts
    number: int = 1  # of its outcome, under that lease
    reported: bytes = b""  # the number and digest of the outcome before


class TaskAnswer(msgspec.Struct, gc=False, frozen=True):
    """The answer of a worker elsewhere that counts with this commit: its digest is kept for a while."""

    task: int
    lease: str
    digest: bytes
    until: Instant


def append_to(items_before: Sequence[T], items: Iterable[T]) -> Sequence[T]:
    """With these at its end; the first ones get a list of their own."""
    if not isinstance(items_before, list):
        return [*items_before, *items]
    items_before.extend(items)
    return items_before


class Transition(msgspec.Struct, gc=False):
    """Everything one commit writes for one run. Most have nothing of most kinds; what there is, is `added`."""

    run: RunId
    partition: int
    seq: int  # after this transition
    row: bytes | None = None
    create: NewRun | None = None
    summary: RunSummary | None = None
    snapshot: bytes | None = None
    consumes: Sequence[int] = ()  # inbox positions, deleted by this commit
    messages: Sequence[Message] = ()
    inherited_log: Sequence[tuple[int, bytes]] = ()  # log rows of the run this one is forked from
    values: Sequence[tuple[bytes, bytes]] = ()  # digest, text
    borrowed_values: Sequence[tuple[RunId, bytes | None]] = ()  # values to copy from another run; None: all of them
    programs: Sequence[tuple[bytes, str, bytes]] = ()  # digest, language, text
    memories: Sequence[tuple[str, CachedValue]] = ()  # for other runs, by key
    permits_asked: Sequence[RequestedPermit] = ()
    permits_released: Sequence[int] = ()
    offers: Sequence[TaskOffer] = ()
    withdrawn: Sequence[int] = ()  # leased tasks that ended
    answers: Sequence[TaskAnswer] = ()  # those among them whose worker's answer ended them
    recalled: Sequence[int] = ()  # leased tasks that were asked to stop, or that their run ended without
    recalled_until: Instant = 0  # their leases last no longer
    disowned: Sequence[RunId] = ()  # children that are to be removed: names there wait for the run's next children
    name_claims: Sequence[
        tuple[RunName, RunId]
    ] = ()  # names of children that it starts; nothing is written if one is taken
    ended: bool = False
    stuck: str | None = None  # why the run cannot be decided; empty: it can again
    stream_rows: Sequence[tuple[bytes, bytes | None]] = ()  # of the run's streams: key, body; None: it is removed
    base: int | None = None  # the last event in the log that it was decided after; nothing is written if there is more
    acts: Sequence[ActRecord] = ()  # of those who asked for what was decided
    was: Status | None = None  # before the summary; None: whoever has to know looks it up
    is_shown: bool = False  # resources that show the run may have changed: the change feed tells of it
    labels: Mapping[str, str | None] | None = None  # changes of the labels of its row; None: the label is removed
    program: bytes | None = None  # the document that the run is moved to


LARGE = 1 << 20
"""Bytes from which on a store does not write a batch on the event loop: about 5 ms of copying."""


def is_large(batch: Sequence[Transition]) -> bool:
    size = 0
    for change in batch:
        if change.borrowed_values:
            return True  # they are copied inside the store, however large they are
        if change.row is not None:
            size += len(change.row)
        if change.values or change.programs or change.messages or change.snapshot or change.inherited_log:
            size += _size_beside_row(change)
        if change.stream_rows:
            size += sum(len(body or b"") for _, body in change.stream_rows)
    return size > LARGE


def _size_beside_row(change: Transition) -> int:
    size = len(change.snapshot or b"") + sum(len(message.body) for message in change.messages)
    size += sum(len(text) for _, text in change.values) + sum(len(text) for _, _, text in change.programs)
    return size + sum(len(row) for _, row in change.inherited_log)


# What a commit answers.


class DeliveredMessage(msgspec.Struct, gc=False, frozen=True):
    """A message that is in the inbox now; its position is deleted by the commit that decides it."""

    position: int
    partition: int
    message: Message


class Committed(msgspec.Struct, gc=False, frozen=True):
    refused: frozenset[RunId] = frozenset()  # runs that were to be created and already exist, or whose name is taken
    delivered: Sequence[DeliveredMessage] = ()  # messages to partitions of the same owner
    rivals: Mapping[RunId, Mapping[tuple[RunName, RunId], RunId]] = {}
    """Runs of which nothing was written, because others have names that they claim: who has which."""


class Fenced(msgspec.Struct, gc=False, frozen=True):
    """Another owner has taken over; nothing was written."""

    partitions: Sequence[int]


class CommitUnknown(msgspec.Struct, frozen=True):
    """It may or may not be on disk (a failed sync, a lost connection). Nothing may be assumed."""

    error: Exception


CommitAnswer = Committed | Fenced | CommitUnknown


LOG_BYTES_PER_ATTEMPT = 1 << 20
LOG_BYTES_PER_RUN = 16 << 20


class TaskLogRow(msgspec.Struct, gc=False, frozen=True):
    """Some lines of what one delivery of a task printed and logged; the first is line `first_line` of that delivery."""

    run: RunId
    task: int
    attempt: int
    delivery: int
    path: str
    first_line: int
    lines: int
    body: bytes
    position: int = 0  # of a stored row: later ones have greater numbers
