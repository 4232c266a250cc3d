"""One turn: an input is taken, and everything that follows from it is decided.

The turn is the dialect's only interface to the outside: it emits events (which change the state at once), asks for
large values, and offers the kernel's commands. Nothing of it is a fact before it is committed.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from perdure.kernel import events as e
from perdure.kernel.documents.lookups import (
    CachedValue,
    CacheLookup,
    Callee,
    CalleeLookup,
    Lookup,
    LookupAnswers,
    PermitQueue,
    PermitQueueLookup,
    QueuedTaskLookup,
    ResourceKey,
    ResourcesInNamespace,
    StrandedRunLookup,
)
from perdure.kernel.documents.validation import Resource
from perdure.kernel.ids import RunName
from perdure.kernel.inputs import ACCEPTED, Input, InputAnswer, Refused
from perdure.kernel.json_values.large_values import INLINE_BYTES, check_joined, check_read, digest_to_keep
from perdure.kernel.json_values.values import NULL, Instant, Payload, Ref, RunId, digest
from perdure.kernel.outcomes import Outcome, Status, Succeeded
from perdure.kernel.randomness import draw
from perdure.kernel.state import State
from perdure.kernel.state_changes import EventChanges
from perdure.kernel.tasks.assignments import OfferedPipeline, short_name
from perdure.kernel.tasks.permits import resource_scope
from perdure.kernel.versions import RECORDS

if TYPE_CHECKING:
    from perdure.kernel.execution import Execution

CHILDREN_ARE_BOUNDED = 3  # the record version that has `ChildBounded`

K = TypeVar("K")
V = TypeVar("V")


class MissingValues(Exception):
    """A decision cannot continue without these values and answers; it is made again once they are available.

    Where values `may_be_absent` it is made again in any case, and told which of them do not exist.
    """

    def __init__(
        self, digests: tuple[bytes, ...] = (), lookups: tuple[Lookup, ...] = (), *, may_be_absent: bool = False
    ) -> None:
        super().__init__(f"{len(digests)} values and {len(lookups)} lookups are missing")
        self.digests = digests  # of large values of the run
        self.lookups = lookups
        self.may_be_absent = may_be_absent


class Stage(IntEnum):
    """How far a turn has come; a turn that needed a value continues from here."""

    FRESH = 0
    RECORDED = 1
    ACCEPTED = 2


_NONE: Mapping[Any, Any] = MappingProxyType({})


def _with(mapping: Mapping[K, V], name: K, value: V) -> Mapping[K, V]:
    """One more entry; the first one is put into a new dict."""
    if not isinstance(mapping, dict):
        return {**mapping, name: value}
    mapping[name] = value
    return mapping


_LATER: Any = None  # filled in by `__post_init__`


class Turn(msgspec.Struct, eq=False, gc=False):
    """Many turns wait for one commit together: what most of them never need is created on demand.

    A struct, because every step creates one: its two dozen fields are filled by one call into C.
    """

    execution: "Execution"
    input: Input
    arrived: Instant
    now: Instant
    record_version: int = RECORDS  # that every live server can read; newer events wait until then
    ahead: Instant = 0  # offset of the wall clock from the store's clock, for calendars
    is_acknowledged: bool = False  # its sender was told that it is recorded, before it was decided
    routes: Mapping[str, str] = _NONE  # provider → its pool, as an operator says; the document's own comes first
    name_holders: Mapping[tuple[RunName, RunId], RunId] = _NONE  # of names that an earlier attempt could not claim
    state: State = _LATER
    program: Any = _LATER
    body: Any = _LATER
    changes: EventChanges = _LATER
    events: list[e.Event] = []
    answer: InputAnswer = ACCEPTED
    changes_nothing: bool = False
    moves: int = 0
    enumerated: int = 0  # elements of Gathers, loops, maps: each allows the run further moves
    caught: int = 0  # failures from which the program continues
    brings_more: bool = False  # than events: values, programs, names, what is kept for other runs
    stage: Stage = Stage.FRESH
    values: Mapping[bytes, bytes] = _NONE
    kept_bytes: int = 0  # of the values, those that were kept several times too
    programs: Mapping[bytes, tuple[str, bytes]] = _NONE
    cache_writes: Mapping[str, CachedValue] = _NONE
    claims: Mapping[RunName, RunId] = _NONE  # names of children that start with this turn
    pipelines: Mapping[int, OfferedPipeline] = _NONE  # by task of a pool: what its worker may go on with
    _absent: set[bytes] | None = None
    _answers: LookupAnswers | None = None
    _texts: dict[bytes, bytes] | None = None

    __repr__ = object.__repr__  # a struct would print the run's data

    def __post_init__(self) -> None:
        execution = self.execution
        self.state = state = execution.state
        self.program = execution.program
        self.body = execution.body
        self.changes = execution.changes
        if state.at > self.now:
            self.now = state.at

    @property
    def texts(self) -> dict[bytes, bytes]:
        """Large values that are in memory."""
        if self._texts is None:
            self._texts = {}
        return self._texts

    @texts.setter
    def texts(self, texts: dict[bytes, bytes]) -> None:
        self._texts = texts

    @property
    def absent(self) -> set[bytes]:
        """Large values that were looked for and do not exist."""
        if self._absent is None:
            self._absent = set()
        return self._absent

    @absent.setter
    def absent(self, names: set[bytes]) -> None:
        self._absent = names

    @property
    def answers(self) -> LookupAnswers:
        if self._answers is None:
            self._answers = {}
        return self._answers

    @answers.setter
    def answers(self, answers: LookupAnswers) -> None:
        self._answers = answers

    def emit(self, event: e.Event) -> None:
        state, events = self.state, self.events
        if not events:
            state.at = self.now
        events.append(event)
        # Inlined from `Execution.apply`: nearly all that a step decides comes through here.
        state.seq += 1
        changes = self.changes
        in_state, in_body = changes[type(event)]
        if in_state is not None:
            in_state(state, event)
        if changes.counts:
            self.body.seq += 1
        if in_body is not None:
            in_body(self.body, event)

    def refuse(self, reason: str, conflict: bool = False) -> None:
        """It was too late, or is not possible: only its sender is told."""
        self.answer = Refused(reason, conflict)
        self.changes_nothing = True

    def text(self, payload: Payload) -> bytes:
        """The JSON text of a value, wherever it is kept."""
        if isinstance(payload, bytes):
            return payload
        return self.texts.get(payload.digest) or self._request((payload,))

    def all_texts(self, payloads: Iterable[Payload]) -> list[bytes]:
        """Like `text`, for many that are joined: all that are not in memory are requested at once."""
        all_payloads = list(payloads)
        check_joined(all_payloads)
        if missing := [ref for ref in all_payloads if isinstance(ref, Ref) and ref.digest not in self.texts]:
            self._request(missing)
        return [self.text(payload) for payload in all_payloads]

    def find(self, payload: Payload) -> bytes | None:
        """Like `text`, for a value that may not exist."""
        if isinstance(payload, bytes):
            return payload
        text = self.texts.get(payload.digest)
        if text is None and payload.digest not in self.absent:
            self._request((payload,), may_be_absent=True)
        return text

    def _request(self, refs: Sequence[Ref], *, may_be_absent: bool = False) -> NoReturn:
        check_read(refs, self.texts)
        raise MissingValues(tuple(dict.fromkeys(ref.digest for ref in refs)), may_be_absent=may_be_absent)

    def keep(self, payload: Payload, most: int = INLINE_BYTES) -> Payload:
        """A value in the form for an event: text that is too large for the log is put beside it."""
        if isinstance(payload, Ref) or len(payload) <= most:
            return payload
        name = digest_to_keep(payload)
        self.texts[name], self.brings_more = payload, True
        self.kept_bytes += len(payload)
        self.values = _with(self.values, name, payload)
        return Ref(name, len(payload))

    # Lookups. An answer stays the same for this turn; what was used belongs in the event.

    def resource(self, kind: str, namespace: str, name: str) -> Resource | None:
        """An entry of the catalog as it is now, or None."""
        resource: Resource | None = self._look_up(ResourceKey(kind, namespace, name))
        return resource

    def resources(self, kind: str, namespace: str) -> list[Resource]:
        """All entries of a kind in a namespace, in order of name."""
        resources: list[Resource] = self._look_up(ResourcesInNamespace(kind, namespace))
        return resources

    def callee(self, lookup: CalleeLookup) -> Callee | None:
        """A document of the catalog that can be run, or None."""
        callee: Callee | None = self._look_up(lookup)
        return callee

    def is_task_queued(self, task: int) -> bool:
        """Whether a task of a pool is still waiting for a worker."""
        return bool(self._look_up(QueuedTaskLookup(self.execution.id, task)))

    def permit_queue(self, scope: str) -> PermitQueue:
        """The state of the scope before this turn is written."""
        queue: PermitQueue = self._look_up(PermitQueueLookup(scope, self.execution.id))
        return queue

    def cached(self, key: str) -> CachedValue | None:
        """What any run has stored under this key, unless it has expired."""
        cached: CachedValue | None = self.cache_writes.get(key) or self._look_up(CacheLookup(key))
        return None if cached is None or (cached.expires_at or self.now + 1) <= self.now else cached

    def _look_up(self, lookup: Lookup) -> Any:
        if lookup not in self.answers:
            raise MissingValues(lookups=(lookup,))
        return self.answers[lookup]

    def remember(self, key: str, value: Payload, ttl: Instant | None = None) -> None:
        """Store a value for other runs; it is written with this turn. A large one must be in memory: ask first."""
        memory = CachedValue(self.text(value), self.now, None if ttl is None else self.now + ttl)
        self.brings_more, self.cache_writes = True, _with(self.cache_writes, key, memory)

    def draw(self, path: str, counter: int) -> float:
        return draw(self.state.seed, path, counter)

    # Commands. Each returns the number under which the answer will arrive.

    @property
    def next_number(self) -> int:
        """The number that the next command will return."""
        return self.state.issued + 1

    def schedule_task(
        self,
        provider: str,
        path: str,
        arguments: Payload = NULL,
        input: Payload = NULL,
        *,
        attempt: int = 1,
        pool: str = "",
        deadline: Instant | None = None,
        max_deliveries: int = 5,
        grace: Instant = 10_000_000,
        hold_effects_in_doubt: bool = False,
        sealed: bool = False,
        key: str = "",
    ) -> int:
        if not pool and self.routes:
            pool = self.routes.get(short_name(provider, self.execution.dialect.name), "")
        number = self.state.issued + 1
        if isinstance(arguments, Ref) or len(arguments) > INLINE_BYTES:
            arguments = self.keep(arguments)
        input = input if input is NULL else self.keep(input)
        self.emit(
            e.TaskScheduled(
                number, provider, path, arguments, input, attempt, pool, deadline, max_deliveries, grace,
                hold_effects_in_doubt, sealed, key,
            )
        )  # fmt: skip
        return number

    def offer_pipeline(self, task: int, pipeline: OfferedPipeline) -> None:
        self.brings_more, self.pipelines = True, _with(self.pipelines, task, pipeline)

    def cancel_task(self, task: int, reason: str = "") -> None:
        if not self.state.tasks[task].cancelling:
            self.emit(e.TaskCancelRequested(task, reason))

    def set_timer(self, due: Instant, rank: int = 0, *, task: int = 0) -> int:
        """`task`: the open task that it bounds; the timer is removed when that ends."""
        number = self.state.issued + 1
        self.emit(e.TimerSet(number, due, rank, task))
        return number

    def drop_timer(self, timer: int) -> None:
        if timer in self.state.timers:
            self.emit(e.TimerDropped(timer))

    def start_child(
        self,
        language: str,
        document: bytes,
        name: str,
        input: Payload = NULL,
        options: bytes = b"{}",
        labels: dict[str, str] | None = None,
        awaited: bool = True,
        from_api: bool = False,
    ) -> int:
        number, pinned = self.state.issued + 1, digest(document)
        self.brings_more = True
        self.programs = _with(self.programs, pinned, (language, document))
        kept = self.keep(input)
        self.emit(e.ChildStarted(number, language, pinned, name, kept, options, labels or {}, awaited, from_api))
        return number

    def claim_name(self, name: RunName) -> RunId | None:
        """Reserve a name for the child that is started next: this turn is written with it, or not at all.

        If another run has the name, the turn is decided again, and this returns that run. A fork has no name, and gives
        none.
        """
        child = self.execution.child_id(self.next_number)
        rival = self.name_holders.get((name, child)) or self.claims.get(name, child)
        if rival != child:
            return rival
        if not self.state.forked_from:
            self.brings_more = True
            self.claims = _with(self.claims, name, child)
        return None

    def cancel_child(self, child: int, reason: str = "", *, grace: Instant = 0) -> None:
        """`grace`: its end is awaited.

        The child's own grace bounds that; a child that is stuck or without an owner after this one is given up, and
        ends as cancelled here.
        """
        if not self.state.children[child].cancelling:
            self.emit(e.ChildCancelRequested(child, reason))
            if grace and self.record_version >= CHILDREN_ARE_BOUNDED:
                self.bound_child(child, grace)

    def bound_child(self, child: int, grace: Instant) -> None:
        self.emit(e.ChildBounded(child, self.state.issued + 1, self.now + grace, grace))

    def is_stranded(self, child: int) -> bool:
        """Whether a child cannot end by itself: it is stuck, has no owner, or is gone."""
        return bool(self._look_up(StrandedRunLookup(self.execution.id, self.execution.child_id(child))))

    def disown_children(self, children: Iterable[int]) -> None:
        """They are removed, whether they were awaited or not; those that are open stop first."""
        if numbers := list(children):
            self.emit(e.ChildrenDisowned(numbers))

    def request_permit(self, scope: str, priority: int = 0, limit: int | None = None, ageing: Instant = 0) -> int:
        number = self.state.issued + 1
        self.emit(e.PermitRequested(number, scope, priority, limit, ageing))
        return number

    def await_resource(self, kind: str, namespace: str, name: str) -> int:
        """Ask to be told when the catalog has an entry; the grant only says that it is worth looking again."""
        return self.request_permit(resource_scope(kind, namespace, name), limit=0)

    def release_permit(self, permit: int) -> None:
        if permit in self.state.permits:
            self.emit(e.PermitReleased(permit))

    def end(self, status: Status, outcome: Outcome) -> None:
        """End the run. What is still open is abandoned: its results will be stale."""
        if isinstance(outcome, Succeeded):
            outcome = Succeeded(self.keep(outcome.value))
        self.emit(e.RunEnded(status, outcome))
