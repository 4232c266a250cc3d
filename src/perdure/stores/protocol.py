"""The contract between the engine and a store of any database. What one transaction writes is in `commit_types`."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from perdure.kernel.documents.lookups import CachedValue, PermitQueue, ResourceKey
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Status
from perdure.kernel.tasks.crash_attribution import LossKind
from perdure.stores.access import AccessStore, Act
from perdure.stores.commit_types import CommitAnswer, Committed, DeliveredMessage, Message, TaskLogRow, Transition
from perdure.stores.feed_changes import ChangeFeedStore
from perdure.stores.hook_deliveries import HookStore
from perdure.stores.pool_tasks import TaskLeaseStore
from perdure.stores.run_removal import RunRemovalStore

SizedKey = tuple[ResourceKey, int]
EntryPage = tuple[tuple[str, str], int]  # behind which namespace and name; how many
Labels = Mapping[str, str] | None


class RunRow(msgspec.Struct, gc=False):
    id: RunId
    partition: int
    language: str
    name: str
    program: bytes
    parent: RunId | None
    labels: dict[str, str]
    key: bytes
    status: Status
    has_work: bool
    due: Instant | None
    created_at: Instant
    ended_at: Instant | None
    stuck: str | None
    has_control_messages: bool = False  # some lie in its inbox, not decided yet
    on_wall: Instant | None = None
    namespace: str = DEFAULT_NAMESPACE


class StoredRun(msgspec.Struct, gc=False):
    """A run as it lies in the store: enough to fold it."""

    row: RunRow
    snapshot: tuple[int, bytes] | None
    rows: list[tuple[int, bytes]]  # last sequence number, turns; those behind the snapshot


class RunFilter(msgspec.Struct, gc=False, frozen=True):
    statuses: Sequence[Status] = ()
    name: str | None = None
    language: str | None = None
    labels: dict[str, str] = {}
    created_after: Instant | None = None
    created_before: Instant | None = None
    parent: RunId | None = None
    namespaces: Sequence[str] | None = None  # None: all
    text: str | None = None  # the beginning of an id or of a name, or a label's whole value
    roots_only: bool = False
    limit: int | None = None
    behind: tuple[Instant, RunId] | None = None  # in order of creation and id, latest first: only those behind this one


class ResourceRow(msgspec.Struct, gc=False, frozen=True):
    """An entry of the catalog. A change of what it says raises its generation; every write gives it a new version."""

    key: ResourceKey
    uid: str
    generation: int
    version: int  # given by the store, never twice
    body: bytes  # the document as JSON, without what the catalog adds and without status
    source: bytes  # the text it was written as, where the wording counts
    labels: dict[str, str]
    status: bytes | None  # JSON
    created_at: Instant
    updated_at: Instant
    from_api: bool = False  # it was written through the API of a server
    managers: bytes | None = None  # who has set which of its fields, as JSON


class ResourceWrite(msgspec.Struct, gc=False, frozen=True):
    """An entry as it is to be. It is written only over the version that the writer has seen; 0: over none."""

    key: ResourceKey
    uid: str
    generation: int
    body: bytes
    source: bytes
    labels: dict[str, str]
    status: bytes | None
    seen: int
    from_api: bool | None = None  # None: as it was; a new one was not
    managers: bytes | None = None  # None: as they were


class ResourceRemoval(msgspec.Struct, gc=False, frozen=True):
    key: ResourceKey
    seen: int


class Edition(msgspec.Struct, gc=False, frozen=True):
    """What an entry said in one of its generations."""

    generation: int
    body: bytes
    source: bytes
    created_at: Instant


class EditionRow(msgspec.Struct, gc=False, frozen=True):
    """One of the generations of an entry, without what it said."""

    key: ResourceKey
    uid: str
    generation: int
    size: int  # of its body
    created_at: Instant
    from_api: bool  # the entry


class CatalogConflict(msgspec.Struct, gc=False, frozen=True):
    """Somebody else has written these entries in the meantime; nothing was written."""

    keys: Sequence[ResourceKey]


class AdoptedRuns(msgspec.Struct, frozen=True):
    """What was moved out of a partition whose owner is gone."""

    partition: int
    runs: Sequence[RunId]  # those with open work in the owner's process


class Share(msgspec.Struct, frozen=True):
    """What a serving process got of what is shared, and what it has too much of."""

    taken: Sequence[int] = ()  # partitions that are ours from now on
    surplus: int = 0  # how many of ours we should give up, because others have too few
    ended: Sequence[str] = ()  # owners whose lease was over or who left runs behind, and who were taken over just now
    adopted: Sequence[AdoptedRuns] = ()  # what came into a partition of ours
    is_waiting: bool = False  # of a file that one server owns, and which is not ours: nothing is, until that one ends


class Server(msgspec.Struct, frozen=True):
    """A live process that owns partitions."""

    name: str
    serves: bool  # False: it drives only the runs it started or was told to resume
    partitions: int
    until: Instant  # its lease, if it does not renew it


class PollIntervals(msgspec.Struct, frozen=True):
    """How often a store wants to be looked at by whoever has heard nothing of it. Seconds."""

    messages: float  # at least so long between looks for messages of others; 0: nothing is heard
    share: float  # who came, who left
    sweep: float  # leases of workers that ended without a result


class Store(AccessStore, ChangeFeedStore, HookStore, RunRemovalStore, TaskLeaseStore, Protocol):
    poll_intervals: PollIntervals

    def acting(self, act: Act) -> "Store":
        """The same store for one act: a transaction that changes anything also writes the record of the act.

        `RequestKeyTaken`: its idempotency key was used meanwhile, and nothing is written.
        """

    # Ownership. A process either serves: `share`, again and again; or it keeps to itself: `claim`, once.

    async def claim(self) -> int:
        """Own a partition of our own, which has no open runs; its number."""

    async def share(self) -> Share:
        """Take a fair part of what is shared, of what has no live owner first; never more than that.

        Whose lease is over is taken over. Nothing is taken from a live owner: it gives up itself, see `give_up`.
        """

    def should_share(self) -> bool:
        """Whether somebody came, left or gave something up since the last `share`; cheap enough to ask often."""

    async def give_up(self, partitions: Collection[int]) -> None:
        """Own these no longer, and tell those who may want them. From here on a commit to them is fenced."""

    @property
    def is_late(self) -> bool:
        """Whether our lease is over by our own clock. Then every commit is fenced, unasked, until we `rejoin`."""

    @property
    def min_record_version(self) -> int:
        """The vocabulary (`kernel.versions.RECORDS`) that every live owner reads, as far as is known."""

    async def rejoin(self) -> list[int]:
        """Come back after a commit was fenced or a lease was over; the partitions that are still, or again, ours.

        What lies in memory of any other partition is worthless. Waits for a store that is away.
        """

    async def move(self, families: Sequence[RunId] | None, home: int) -> list[AdoptedRuns]:
        """Bring what has no live owner into a partition of ours: these runs and their descendants, or everything.

        One transaction for each partition that something is moved out of. Its owner, should it live, is fenced.
        """

    async def transfer(self, runs: Sequence[RunId]) -> list[RunId]:
        """Bring these runs of ours, and messages to them, to live servers that read newer records than we do; which.

        Their new owner is woken. None of them may be in memory here. Without such a server nothing is changed.
        """

    def loss_of(self, run: RunId) -> LossKind:
        """What is known of the end of the process that had this run before we took it up; told once.

        `ONLY`: it died, and no other run had work in it. `STOPPED`: the machine was restarted. `PROCESS`: nothing.
        """

    def loss_on(self, machine: str) -> LossKind:
        """What is known of the end of a process that had begun a task alone on this machine (`clocks.machine`).

        `PROCESS`: the machine goes on. `STOPPED`: it was restarted. `UNSEEN`: nobody has seen it since.
        """

    async def owned(self, partitions: Collection[int]) -> frozenset[int]:
        """Those of the partitions that a live process owns, this one included."""

    async def orphaned_partitions(self) -> list[int]:
        """Partitions with open runs or messages, and no live owner."""

    async def families(self, partitions: Sequence[int]) -> list[RunId]:
        """The roots of all open runs in these partitions, and of all to whom messages lie there."""

    async def disown_families(self, families: Sequence[RunId], home: int) -> None:
        """Bring these runs of ours and their descendants into a partition that nobody owns. None may be in memory."""

    async def servers(self) -> list[Server]:
        """Live owners, where the store keeps a list of them."""

    # Writing.

    async def commit(self, batch: Sequence[Transition]) -> CommitAnswer:
        """Write all of `batch` durably or none of it."""

    def commit_at_once(self, batch: Sequence[Transition]) -> CommitAnswer | Awaitable[CommitAnswer] | None:
        """The same on the event loop, where that is quick, else None; the answer may be something to wait for."""

    async def create_elsewhere(self, change: Transition) -> Committed | None:
        """Create a run where a live server owns it, not where `change` says. None: there is none, nothing is done."""

    async def send(self, message: Message) -> DeliveredMessage | None:
        """Put an input into a run's inbox, durably; None when there is no such run.

        The store may stamp it anew, by the clock that all who use the store have.
        """

    async def send_together(self, messages: Sequence[Message]) -> list[DeliveredMessage]:
        """Put inputs into the inboxes of several runs, all of them or none; what is for a run that is not there waits
        with the start of that run, and is left out where there is no such start.
        """

    async def discard(self, positions: Sequence[int]) -> None:
        """Remove inbox rows that concern no run (any more)."""

    async def set_limit(self, scope: str, limit: int | None) -> None:
        """Configure how many permits of a scope may be held at once, over all runs and processes."""

    # Reading.

    async def find(self, run: RunId) -> RunRow | None: ...

    async def run_named(self, language: str, namespace: str, name: str) -> RunId | None:
        """The run that has this name, or keeps it for a child to come."""

    async def find_by_prefix(self, prefix: str, namespaces: Sequence[str] | None = None) -> list[RunId]:
        """Up to three ids of these namespaces that begin so, for `BEGINNING…END` also end so; no children of them."""

    async def load(self, runs: Sequence[RunId]) -> list[StoredRun]:
        """Snapshot and tail of each run that exists."""

    async def history(self, run: RunId, after: int = 0, limit: int | None = None) -> list[tuple[int, bytes]]:
        """The first `limit` log rows (None: all) that end behind event number `after`, in order."""

    async def write_task_logs(self, rows: Sequence[TaskLogRow]) -> None:
        """Not synced: the last of them may be lost. Of an attempt and of a run the latest rows are kept, up to the
        limits above; rows of runs that are not there are dropped.
        """

    async def task_logs(self, run: RunId, after: int = 0) -> list[TaskLogRow]:
        """Rows behind position `after`, in order."""

    async def program(self, digest: bytes) -> tuple[str, bytes] | None:
        """Language and text of a pinned document."""

    async def values(self, run: RunId, digests: Sequence[bytes]) -> dict[bytes, bytes]: ...
    async def value_sizes(self, run: RunId, digests: Sequence[bytes]) -> dict[bytes, int]: ...  # without reading them

    async def stream_rows(self, run: RunId, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """What the streams of a run keep under keys that begin so, in order of the keys."""

    async def search(self, filter: RunFilter) -> list[RunRow]: ...

    async def count_runs(
        self, namespaces: Sequence[str] | None, begin: Instant, end: Instant, every: Instant, limit: int | None
    ) -> list[tuple[Instant, Status, int]]:
        """How many runs of these namespaces (None: of all) were created in each interval, by their status now.

        An interval is named by its beginning. The latest `limit` runs are counted; None: the counts of hours are read.
        """

    async def count_programs(self, language: str, name: str | None = None) -> list[tuple[bytes, str, int]]:
        """How many runs of a language there are of each program and name; `name` None: of all."""

    async def namespaces(self) -> list[str]:
        """Those that runs or entries are in, in order."""

    async def ended(self, languages: Sequence[str], after: tuple[Instant, RunId], limit: int) -> list[RunRow]:
        """Root runs in these languages that have ended, in order of end and id, behind `after`."""

    async def runs_with_work(self, partitions: Sequence[int]) -> list[RunId]:
        """Runs with open in-process work: what a restart takes up by itself."""

    async def due(self, partitions: Sequence[int], until: Instant, limit: int, ahead: Instant = 0) -> list[RunId]:
        """Parked runs whose due time has come, earliest first. The wall is so much ahead of the store's clock."""

    async def next_due(self, partitions: Sequence[int], after: Instant, ahead: Instant = 0) -> Instant | None:
        """The earliest due time of a parked run that is later than `after`, all by the store's clock."""

    async def waiting_permits(self, prefix: str, partitions: Sequence[int]) -> list[tuple[RunId, int, str]]:
        """Requests, not granted yet, for permits of scopes that begin so: run, permit and scope."""

    async def inbox(self, partitions: Sequence[int], limit: int) -> list[DeliveredMessage]:
        """What has arrived and is not decided yet, oldest first."""

    async def messages(self, run: RunId) -> list[DeliveredMessage]:
        """The same, of one run."""

    async def is_undecided(self, sent: DeliveredMessage) -> bool:
        """Whether this message still waits, also while its run is moved from one owner to another."""

    async def unstarted_children(self, run: RunId) -> list[RunId]:
        """Runs below this one that are not there yet: a message to them is, which may be their start."""

    def changed(self) -> bool:
        """Whether anything was committed by anyone since the last call; cheap enough to ask often."""

    def catalog_mark(self) -> int:
        """Another number than before once anyone has written to the catalog; cheap enough to ask often."""

    def listen(self, woken: Callable[[], None]) -> None:
        """Call this, on any thread, when `changed` or `should_share` may have something to tell; where it is heard."""

    # The catalog, and what runs remember for each other.

    async def write_catalog(self, changes: Sequence[ResourceWrite | ResourceRemoval]) -> CatalogConflict | None:
        """Write all of `changes` durably or none of it. Runs that wait for an entry are told when it is created."""

    async def resources(self, keys: Sequence[ResourceKey]) -> dict[ResourceKey, ResourceRow]:
        """Those of the entries that exist."""

    async def list_resources(
        self, kind: str, namespace: str | None = None, labels: Labels = None, page: EntryPage | None = None
    ) -> list[ResourceRow]:
        """Entries of a kind, in order of namespace and name; `namespace` None: of all."""

    async def list_keys(self, kind: str, namespace: str | None = None, labels: Labels = None) -> list[SizedKey]:
        """The same without what they say: their keys, and the bytes that each takes."""

    async def list_editions(self, kind: str, namespace: str, name: str | None = None) -> list[EditionRow]:
        """Every generation of an entry, or of all of them, the first one first."""

    async def edition(self, key: ResourceKey, generation: int) -> Edition | None: ...

    async def memories(self, keys: Sequence[str]) -> dict[str, CachedValue]:
        """What was remembered under these keys and has not expired."""

    async def line(self, scope: str, run: RunId) -> PermitQueue:
        """How many permits of the scope are held, and how high the foremost of other runs stands by now."""

    async def reopen(self) -> None:
        """Forget every connection and open anew, after an unknown commit."""

    def limit_timeout(self, timeout: float = 0.0) -> None:
        """We are about to close: from here on a store that is away is waited for so many seconds at most."""

    def abandon(self) -> None:
        """Close without leaving in order, as a process that dies does."""

    async def backup(self, target: str) -> None: ...

    async def close(self) -> None: ...
