"""What a store holds, as a stream of records that any store can give and any store can take.

In this order, in batches of one kind each: definitions, documents, then some runs with their large values and their
log, some more runs with theirs, and so on; last what is on its way between runs. Snapshots are a cache and are left
out, and so is where a run lives: that is the business of the store that takes it.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TypeVar

import msgspec

from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values.values import Instant, RunId


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all records."""


class EntryRecord(Record, frozen=True):
    """An entry of the catalog."""

    kind: str
    namespace: str
    name: str
    uid: str
    generation: int
    version: int
    body: bytes
    source: bytes
    labels: dict[str, str]
    status: bytes | None
    created_at: Instant
    updated_at: Instant
    from_api: bool = False
    managers: bytes | None = None


class EditionRecord(Record, frozen=True):
    """What an entry said in one of its generations."""

    uid: str
    generation: int
    body: bytes
    source: bytes
    created_at: Instant


class CatalogVersionRecord(Record, frozen=True):
    """The last version that was given to an entry; there is one."""

    last: int


class LimitRecord(Record, frozen=True):
    scope: str
    capacity: int


class MemoryRecord(Record, frozen=True):
    """What runs remember for each other."""

    key: str
    value: bytes
    created_at: Instant
    expires_at: Instant | None


class AccessTokenRecord(Record, frozen=True):
    """A token for a server: its digest, and what it allows; lists are JSON."""

    name: str
    digest: bytes
    role: str
    namespaces: str | None
    pools: str
    created_at: Instant
    created_by: str
    expires_at: Instant | None
    revoked_at: Instant | None


class SessionRecord(Record, frozen=True):
    """A session of a browser, or a code for one: its digest."""

    digest: bytes
    token: str
    created_at: Instant
    seen_at: Instant
    is_code: int


class AuditRecord(Record, frozen=True):
    """A change or a refusal, and the seal that it belongs to."""

    id: str
    at: Instant
    run: str | None
    body: bytes
    seal: int | None


class AuditSealRecord(Record, frozen=True):
    number: int
    server: str
    at: Instant
    rows: int
    previous: bytes
    hash: bytes


class RequestKeyRecord(Record, frozen=True):
    """What was asked under an idempotency key, and the answer."""

    who: str
    key: str
    digest: bytes
    at: Instant
    status: int | None
    answer: bytes | None


class HookRecord(Record, frozen=True):
    """An outgoing hook. Its position is one of the feed of the store that it comes from."""

    name: str
    address: str
    position: int
    is_paused: bool
    seen_at: Instant


class DeliveryRecord(Record, frozen=True):
    """An event on its way to the receiver of a hook."""

    hook: str
    position: int
    run: str
    namespace: str
    body: bytes
    created_at: Instant
    state: str
    attempts: int
    next_at: Instant
    answered_at: Instant | None
    status: int | None
    error: str


class ProgramRecord(Record, frozen=True):
    """A pinned document."""

    digest: bytes
    language: str
    text: bytes


class RunRecord(Record, frozen=True):
    id: RunId
    language: str
    name: str
    program: bytes
    parent: RunId | None
    labels: dict[str, str]
    key: bytes
    status: str
    has_work: bool
    due: Instant | None
    created_at: Instant
    ended_at: Instant | None
    stuck: str | None
    on_wall: Instant | None
    namespace: str = DEFAULT_NAMESPACE


class ValueRecord(Record, frozen=True):
    """A large value of one of the runs that came last."""

    run: RunId
    digest: bytes
    text: bytes


class LogRecord(Record, frozen=True):
    """A row of the log of one of the runs that came last, in order."""

    run: RunId
    seq: int
    body: bytes


class StreamRowRecord(Record, frozen=True):
    """What the streams of one of the runs that came last keep."""

    run: RunId
    key: bytes
    body: bytes


class TaskLogRecord(Record, frozen=True):
    """Lines that a task of one of the runs that came last has printed or logged, in order."""

    run: RunId
    task: int
    attempt: int
    delivery: int
    path: str
    first_line: int
    lines: int
    body: bytes


class NameRecord(Record, frozen=True):
    """What a run is called; with an heir, kept for a later one below it; without a namespace, it came second."""

    language: str
    namespace: str | None
    name: str
    run: RunId
    heir: RunId | None


class MessageRecord(Record, frozen=True):
    """An input on its way, in order of arrival."""

    to: RunId
    at: Instant
    body: bytes
    is_word: bool


class PermitRecord(Record, frozen=True):
    scope: str
    run: RunId
    permit: int
    priority: int
    capacity: int
    asked_at: Instant
    granted: bool
    ageing: Instant


class TaskRecord(Record, frozen=True):
    """Work for other processes."""

    run: RunId
    task: int
    delivery: int
    pool: str
    provider: str
    state: str
    recalled: bool
    worker: str | None
    until: Instant | None
    body: bytes
    place: int = 0
    machine: str = ""
    namespace: str = DEFAULT_NAMESPACE
    opener: str = ""
    turn: int = 0
    offered_at: Instant = 0
    lease: str | None = None
    request: str | None = None
    holder: str = ""
    touched: bool = False
    releases: int = 0
    answer: bytes | None = None
    lost_lease: str | None = None
    lost_delivery: int = 0
    pipeline: bytes = b""
    number: int = 1
    reported: bytes = b""


class WorkerRecord(Record, frozen=True):
    """A worker elsewhere as it was last seen."""

    pool: str
    name: str
    holder: str
    providers: str
    opens: str
    slots: int
    seen_at: Instant
    left_at: Instant | None


KINDS: dict[type[Record], str] = {
    EntryRecord: "resources",
    EditionRecord: "editions",
    CatalogVersionRecord: "catalog version",
    LimitRecord: "limits",
    MemoryRecord: "memories",
    AccessTokenRecord: "tokens",
    SessionRecord: "sessions",
    AuditRecord: "audit rows",
    AuditSealRecord: "audit seals",
    RequestKeyRecord: "request keys",
    HookRecord: "hooks",
    DeliveryRecord: "hook deliveries",
    ProgramRecord: "documents",
    RunRecord: "runs",
    ValueRecord: "large values",
    LogRecord: "log rows",
    StreamRowRecord: "stream rows",
    TaskLogRecord: "task logs",
    NameRecord: "names",
    MessageRecord: "letters",
    PermitRecord: "permits",
    TaskRecord: "tasks",
    WorkerRecord: "workers",
}
"""In the order in which they come, and what people call them."""

ORDERED = (MessageRecord,)  # of these the order counts too

RUNS_AT_ONCE = 500
MOST_RECORDS = 1_000
MOST_BYTES = 4 << 20

R = TypeVar("R", bound=Record)


def batches(records: Iterable[R]) -> Iterator[Sequence[R]]:
    """Of a bounded number and, apart from single records that are larger, a bounded size."""
    batch: list[R] = []
    size = 0
    for record in records:
        batch.append(record)
        size += weight(record)
        if len(batch) >= MOST_RECORDS or size >= MOST_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def weight(record: Record) -> int:
    """About how many bytes a record has."""
    match record:
        case ProgramRecord(text=body) | ValueRecord(text=body) | MemoryRecord(value=body) | TaskLogRecord(body=body):
            return 100 + len(body)
        case LogRecord(body=body) | MessageRecord(body=body) | TaskRecord(body=body) | StreamRowRecord(body=body):
            return 100 + len(body)
        case EntryRecord(body=body, source=source) | EditionRecord(body=body, source=source):
            return 200 + len(body) + len(source)
        case _:
            return 200


_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class RecordDigest:
    """How many records of each kind, how many bytes, and a digest of them: equal for stores with the same in them.

    The digest of a kind is the sum of its records' digests: stores give records in different orders.
    """

    def __init__(self) -> None:
        self.counts = dict.fromkeys(KINDS.values(), 0)
        self.bytes = 0
        self._sums = dict.fromkeys(KINDS.values(), 0)

    def update(self, batch: Sequence[Record]) -> None:
        kind = type(batch[0])
        name = KINDS[kind]
        total = self._sums[name]
        for place, record in enumerate(batch, start=self.counts[name]):
            encoded = _encode(record)
            self.bytes += len(encoded)
            if kind in ORDERED:
                encoded += place.to_bytes(8)
            total += int.from_bytes(sha256(encoded).digest())
        self._sums[name] = total % (1 << 256)
        self.counts[name] += len(batch)

    @property
    def digests(self) -> dict[str, str]:
        """By kind."""
        return {name: f"{total:064x}" for name, total in self._sums.items()}

    @property
    def digest(self) -> str:
        """Of everything."""
        return sha256("".join(self.digests.values()).encode()).hexdigest()

    def differences(self, other: "RecordDigest") -> list[str]:
        """The kinds that are not the same in both."""
        own_digests, other_digests = self.digests, other.digests
        return [
            name
            for name in own_digests
            if self.counts[name] != other.counts[name] or own_digests[name] != other_digests[name]
        ]
