"""Work that leaves the process: tasks of pools, leased by workers elsewhere, answered once.

ready ──lease──▶ leased ──answer──▶ answered, for an hour, so that the same answer twice is the same
  ▲ ▲              │ └──release──▶ ready                 un-begun: costs no delivery
  │ └──────────────┘
  │ recalled: it lasts for the grace that its worker has to stop; if its run has ended, nothing follows from its answer
  │ a pipeline: leased ──outcome──▶ its next task is leased, by the same lease
  └── next delivery ◀── lost: the lease ended without an answer, and its run is told
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Protocol

import msgspec

from perdure.kernel.errors import Conflict
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.tasks.crash_attribution import StartPlace
from perdure.stores.commit_types import Message

ANSWERS_KEPT: Instant = 3_600 * SECOND


class LeaseRequest(msgspec.Struct, gc=False, frozen=True):
    """What a worker asks for. Tasks are given in order of turns: the oldest offer first, and runs take turns."""

    pools: Sequence[str]
    worker: str  # a name, which proves nothing
    count: int
    until: Instant
    providers: Sequence[str] | None = None  # None: any
    opens: Sequence[str] | None = None  # languages whose sealed tasks it can open; None: any
    namespaces: Sequence[str] | None = None  # None: all
    holder: str = ""  # the access token that it came with
    key: str = ""  # the same request again gets the same tasks, while their leases last
    content: bytes = b""  # by which it is known whether it is the same

    @property
    def name(self) -> str:
        """How the rows of its tasks name it: by its key, and by what it asks for."""
        return _digits(self.key.encode()) + _digits(self.content)

    @property
    def names(self) -> tuple[str, str]:
        """The first and the last name that a request under its key can have."""
        key = _digits(self.key.encode())
        return key + "0" * _DIGITS, key + "9" * _DIGITS

    def given_before(self, rows: Sequence[Sequence[Any]]) -> "list[TaskLease]":
        """What it got already: leases, each with the name of its request. Raises `Conflict` if another one did."""
        if any(row[-1] != self.name for row in rows):
            raise Conflict("the Idempotency-Key was used for another request", hint="Use another key.")
        return [lease_row(row[:-1]) for row in rows]


_DIGITS = 39  # of 128 bits: every collation has digits in one order


def _digits(text: bytes) -> str:
    return f"{int.from_bytes(sha256(text).digest()[:16], 'big'):0{_DIGITS}d}"


class TaskLease(msgspec.Struct, gc=False, frozen=True):
    """A grant of one delivery to one worker. Whoever knows `lease`, 128 random bits, may answer."""

    lease: str
    run: RunId
    task: int
    delivery: int
    pool: str
    namespace: str
    worker: str
    until: Instant
    body: bytes  # `AssignmentMessage`; empty once it is answered
    is_recalled: bool = False
    is_touched: bool = False  # it has claimed, reported or signalled something: it cannot be given back un-begun
    answer: bytes | None = None  # the digest of the answer that counted
    pipeline: bytes = b""  # `OfferedPipeline`; empty: the task was offered by itself
    number: int = 1  # of the outcome that is reported next under this lease
    reported: bytes = b""  # `report_name` of the last one that was; empty: none was

    @property
    def is_let_go(self) -> bool:
        """It was recalled, and its worker has not answered yet."""
        return self.is_recalled and self.answer is None


LEASE_COLUMNS = (
    "lease, run, task, delivery, pool, namespace, worker, until, body, recalled, touched, answer,"
    " pipeline, number, reported"
)


def lease_row(row: Sequence[Any]) -> TaskLease:
    return TaskLease(*(*row[:9], bool(row[9]), bool(row[10]), *row[11:]))


def report_name(number: int, digest: bytes) -> bytes:
    """By which a report of an outcome is recognized when it comes again."""
    return number.to_bytes(4, "big") + digest


class LeaseRenewal(msgspec.Struct, gc=False, frozen=True):
    """What became of the leases a worker asked to keep: `lost` ones belong to others now."""

    lost: frozenset[str]
    recalled: frozenset[str]


class PoolBacklog(msgspec.Struct, gc=False, frozen=True):
    """What one pool has for one provider."""

    pool: str
    provider: str
    opener: str  # the language that its worker must be able to open; empty: the tasks are not sealed
    namespace: str
    ready: int
    leased: int
    oldest: Instant | None  # of those that are ready
    releases: int = 0  # the most that one of them was given back without having begun


class WorkerRow(msgspec.Struct, gc=False, frozen=True):
    """A worker elsewhere as it was last seen at a server, for one of its pools."""

    pool: str
    name: str
    holder: str
    providers: str  # JSON: a list, or null for any
    opens: str  # JSON
    slots: int
    seen_at: Instant
    left_at: Instant | None = None


class TaskLeaseStore(Protocol):
    async def lease(self, request: LeaseRequest) -> list[TaskLease]:
        """Under a key: what it got before, while that lasts. Raises `Conflict` for another request under the key."""

    async def find_leases(self, leases: Sequence[str]) -> dict[str, TaskLease]:
        """Those that last, and those that were answered and are remembered."""

    async def is_offered(self, run: RunId, task: int) -> bool:
        """Whether the task waits for a worker; False once one has it, and for a task of no pool."""

    async def renew(self, leases: Sequence[str], until: Instant) -> LeaseRenewal:
        """Those that were recalled last as long as their recall says, and no longer."""

    async def begin(self, lease: str, place: StartPlace, message: Message | None = None) -> bool:
        """Write on the row where its worker begins the task, and send the message; False: it is not its any more."""

    async def clear_lost(self, lease: str, now: Instant) -> None:
        """Tell the run that the worker of a lease that was lost last is alive, and was only late."""

    async def touch(self, lease: str) -> bool:
        """From here on it cannot be released; False: it is not its any more."""

    async def report(self, lease: str, message: Message | None, answer: bytes = b"", kept_until: Instant = 0) -> bool:
        """Turn a result in, for whoever owns the run; False: it is not its any more. None: its run has ended."""

    async def report_outcome(self, lease: str, number: int, name: bytes, message: Message) -> bool:
        """Send the outcome of a task to whoever owns its run; the lease lasts. False: it is not its any more.

        The commit that decides it gives the lease to the next task of the pipeline, or ends it (`TaskOffer.follows`).
        """

    async def release(self, lease: str) -> bool:
        """Offer the task again, as if nobody had had it; False: it was touched, or is not its any more."""

    async def end_leases(self, holder: str, now: Instant) -> None:
        """The leases that this access token got are over."""

    async def expire(self, now: Instant) -> int:
        """Tell the runs of leases that ended without a result, and what their rows say about that; forget answers."""

    async def put_value(self, run: RunId, digest: bytes, text: bytes) -> None:
        """Keep a large value of a run before the answer that refers to it comes."""

    async def note_workers(self, rows: Sequence[WorkerRow], forgotten: Instant) -> None:
        """Who was seen; rows that were not seen since `forgotten` are removed."""

    async def workers(self) -> list[WorkerRow]:
        """By pool and name."""

    async def backlogs(self, pools: Sequence[str] | None = None) -> list[PoolBacklog]:
        """What waits, by pool, provider and namespace; None: of all pools."""
