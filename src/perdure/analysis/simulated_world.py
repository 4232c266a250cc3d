"""One run of a document, and the runs that it starts, on the kernel alone: no engine, no store, no time.

The world makes the turns of runs in the order of their inputs, on a clock that jumps to what is due next. Each turn is
one commit. A crash drops what is in memory: runs are folded from their logs, tasks at work are lost and redelivered,
and what waits in the store (starts, ends of children, permits, messages, timers) is still there.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from perdure.analysis.fault_schedules import FaultSchedule, SimulatedFault, length_of
from perdure.analysis.mocks import MockedCall, Mocks
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns, encode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import (
    CachedValue,
    CacheLookup,
    Lookup,
    PermitQueue,
    PermitQueueLookup,
    QueuedTaskLookup,
    ResourceKey,
    ResourcesInNamespace,
    StrandedRunLookup,
)
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_values import INLINE_BYTES
from perdure.kernel.json_values.values import SECOND, Instant, Payload, Ref, RunId, digest
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.tasks.crash_attribution import LossKind
from perdure.kernel.tasks.permits import UNLIMITED, PermitRequest, grant
from perdure.kernel.turn import Turn

START: Instant = 1_800_000_000_000_000
ROOT = RunId("run")
LONGEST: Instant = 366 * 86_400 * SECOND
MOST_TURNS = 20_000
LIMITS = Limits(moves=20_000, elements=20_000, caught=2_000)
SIMULATED_FAILURE = "Simulated.Failure"

_OF_TASKS = (i.TaskResult, i.TaskReport, i.TaskLost)


class Subject(msgspec.Struct, frozen=True):
    """What is simulated: a document as a run is pinned to it, and how its run starts."""

    language: str
    text: bytes
    input: Any = None
    options: dict[str, Any] = {}
    name: str = "simulated"
    namespace: str = "default"
    messages: tuple[tuple[Instant, i.Input], ...] = ()  # control messages, by how long after the start they come


class FoldDiffers(AssertionError):
    """A run that was folded from its log is not what it was before."""


class SimulatedRun:
    """One run as it is in memory, with its log."""

    __slots__ = ("counts", "dialect", "events", "execution", "id", "program", "rows")

    def __init__(self, run: RunId, dialect: Dialect, program: Any) -> None:
        self.id = run
        self.dialect = dialect
        self.program = program
        self.rows: list[bytes] = []
        self.events: list[e.Event] = []
        self.counts: dict[str, int] = {}  # tasks by path
        self.execution = Execution(run, dialect, program)

    @property
    def is_over(self) -> bool:
        return self.execution.state.status.is_final

    def fold(self) -> Execution:
        execution = Execution(self.id, self.dialect, self.program)
        for row in self.rows:
            execution.fold(decode_turns(self.dialect, row))
        return execution


class SimulatedTask(msgspec.Struct):
    """A task that was handed out, as whoever performs it remembers it."""

    call: MockedCall
    due: Instant
    tie: int
    faults: Mapping[str, SimulatedFault]


class SimulatedWorld:
    """`load` compiles a pinned document; it is the same for the same text."""

    def __init__(
        self,
        subject: Subject,
        dialects: Mapping[str, Dialect],
        mocks: Mocks,
        schedule: FaultSchedule,
        load: Callable[[str, bytes], Any],
    ) -> None:
        self._dialects = dialects
        self._mocks = mocks
        self._schedule = schedule
        self._load = load
        self.now = START
        self.values: dict[bytes, bytes] = {}
        self._memories: dict[str, CachedValue] = {}
        self._programs: dict[bytes, tuple[str, bytes]] = {}
        self.runs: dict[RunId, SimulatedRun] = {}
        self._queue: list[tuple[Instant, int, int, int, RunId, i.Input]] = []
        self._count = 0
        self._tasks: dict[tuple[RunId, int], SimulatedTask] = {}
        self.permits: dict[tuple[RunId, int], tuple[e.PermitRequested, Instant]] = {}
        self._granted: set[tuple[RunId, int]] = set()
        self.keys: dict[str, str] = {}  # idempotency keys under which something was called, and what
        self.commits = self.turns = self.crashes = 0
        self._begin(subject)

    def _begin(self, subject: Subject) -> None:
        text = subject.text
        dialect = self._dialects[subject.language]
        self.root = SimulatedRun(ROOT, dialect, self._load(subject.language, text))
        self.runs[ROOT] = self.root
        self._programs[digest(text)] = (subject.language, text)
        start = i.Start(
            subject.language,
            digest(text),
            subject.name,
            self._kept(jsontext.encode(subject.input)),
            jsontext.encode(subject.options),
            self._schedule.seed & 0x7FFF_FFFF,
            labels=dialect.labels(self.root.program, ROOT, None),
            namespace=subject.namespace,
        )
        self._offer(self.now, -1, ROOT, start)
        for after, message in subject.messages:
            self._offer(self.now + after, 0, ROOT, message)

    # Time passes.

    def play(self) -> None:
        """To the end of all runs, or until nothing but the outside can move anything."""
        last = START + LONGEST + max((entry[0] - START for entry in self._queue), default=0)
        while self._queue and self._queue[0][0] <= last and self.turns < MOST_TURNS:
            at, rank, tie, _, run, message = self._first()
            life = self.runs.get(run)
            if life is None or (life.is_over and not isinstance(message, i.Start | i.Reopen)):
                continue
            if isinstance(message, i.TimerDue) and message.timer not in life.execution.state.timers:
                continue  # dropped meanwhile: no time passes for it
            self.now = max(self.now, at)
            self._take(life, message, (at, rank, tie))

    def _first(self) -> tuple[Instant, int, int, int, RunId, i.Input]:
        """A wait for a message expires when nothing else is there for its run."""
        first = heappop(self._queue)
        if first[1] >= i.CONTROL_WAIT_RANK:
            now = max(self.now, first[0])
            other = min((entry for entry in self._queue if entry[0] <= now and entry[4] == first[4]), default=None)
            if other is not None and other[1] < i.CONTROL_WAIT_RANK:
                self._queue.remove(other)
                heapify(self._queue)
                heappush(self._queue, first)
                return other
        return first

    def _offer(self, at: Instant, rank: int, run: RunId, message: i.Input, tie: int | None = None) -> None:
        self._count += 1
        heappush(self._queue, (at, rank, self._count if tie is None else tie, self._count, run, message))

    def _take(self, life: SimulatedRun, message: i.Input, place: tuple[Instant, int, int]) -> None:
        self.turns += 1
        turn = Turn(life.execution, message, place[0], self.now)
        while (needs := decide(turn, LIMITS)) is not None:
            missing = {name for name in needs.digests if name not in self.values}
            turn.absent |= missing
            turn.texts |= {name: self.values[name] for name in needs.digests if name not in missing}
            turn.answers |= {lookup: self._answer(lookup) for lookup in needs.lookups}
        if not turn.events:
            if life.execution.state.sliced:
                self._offer(self.now, -1, life.id, i.Proceed())
            return
        self.commits += 1
        fault = self._schedule.at_commit(self.commits)
        if fault is not None and not fault.after:
            self._crash()
            if not isinstance(message, _OF_TASKS):
                self._offer(*place[:2], life.id, message, place[2])  # it is in the store until it is decided
            return
        self.values |= turn.values
        self._memories |= turn.cache_writes
        self._programs |= turn.programs
        life.events += turn.events
        life.rows.append(encode_turns([(turn.now, turn.events)]))
        for event in turn.events:
            self._obey(life, event)
        if life.execution.state.sliced:
            self._offer(self.now, -1, life.id, i.Proceed())
        if fault is not None:
            live = life.dialect.freeze(life.execution.body)
            self._crash()
            if life.dialect.freeze(life.execution.body) != live:
                raise FoldDiffers(f"run {life.id} is not the same when it is folded after commit {self.commits}")

    def _crash(self) -> None:
        """What is in memory is gone, and with it what tasks have said and nobody has recorded."""
        self.crashes += 1
        self._queue = [entry for entry in self._queue if not isinstance(entry[5], (*_OF_TASKS, i.Proceed))]
        heapify(self._queue)
        for life in self.runs.values():
            life.execution = life.fold()
            state = life.execution.state
            for number, task in state.tasks.items():
                reason = "its process is gone"
                self._offer(self.now, -1, life.id, i.TaskLost(number, task.delivery, reason, LossKind.PROCESS))
            if state.sliced:
                self._offer(self.now, -1, life.id, i.Proceed())

    # What events ask for.

    def _obey(self, life: SimulatedRun, event: e.Event) -> None:
        match event:
            case e.TimerSet(timer, due, rank):
                self._offer(due, 1 + rank, life.id, i.TimerDue(timer))
            case e.ChildBounded(_, timer, due):
                self._offer(due, 2, life.id, i.TimerDue(timer))
            case e.TaskScheduled():
                self._perform(life, event)
            case e.TaskRedelivered(number, delivery):
                self._deliver(life, number, delivery)
            case e.TaskCancelRequested(number):
                task = life.execution.state.tasks.get(number)
                if task is not None:
                    stopped = i.TaskResult(number, task.attempt, task.delivery, Cancelled("asked to stop"))
                    self._offer(self.now, 0, life.id, stopped)
            case e.ChildStarted():
                self._start_child(life, event)
            case e.ChildCancelRequested(child, reason):
                self._offer(self.now, 0, life.execution.child_id(child), i.Cancel(reason))
            case e.RunEnded(status, outcome):
                for key in [key for key in self.permits if key[0] == life.id]:
                    self._release(*key)
                parent = life.execution.state.parent
                if parent is not None and parent[1] and life.execution.state.incarnation == 1:
                    self._offer(self.now, 0, parent[0], i.ChildResult(parent[1], status, outcome))
            case e.PermitRequested(permit):
                self.permits[(life.id, permit)] = (event, self.now)
                self._allocate(event.scope)
            case e.PermitReleased(permit):
                self._release(life.id, permit)
            case _:
                pass

    def _start_child(self, life: SimulatedRun, event: e.ChildStarted) -> None:
        run = life.execution.child_id(event.child)
        language, text = self._programs[event.program]
        self.runs[run] = SimulatedRun(run, self._dialects[language], self._load(language, text))
        parent = (life.id, event.child if event.awaited else 0)
        namespace = life.execution.namespace
        start = i.Start(
            language,
            event.program,
            event.name,
            event.input,
            event.options,
            8,
            parent,
            event.labels,
            namespace=namespace,
        )
        self._offer(self.now, -1, run, start)

    # Tasks.

    def _perform(self, life: SimulatedRun, event: e.TaskScheduled) -> None:
        number = life.counts[event.path] = life.counts.get(event.path, 0) + 1
        label = f"{life.id}:{event.path}#{number}"
        faults = self._schedule.of_task(label)
        arguments = None if event.sealed else jsontext.decode(self._text(event.arguments))
        call = MockedCall(life.id, event.task, event.attempt, event.provider, event.path, arguments)
        self.keys[f"{event.key or life.execution.idempotency_key(event.path)}#{event.attempt}"] = event.provider
        due = self.now + length_of(faults, self._mocks.answer(call).after)
        self._tasks[(life.id, event.task)] = SimulatedTask(call, due, self._count, faults)
        self._deliver(life, event.task, 1)

    def _outcome(self, task: SimulatedTask) -> Outcome:
        """Whoever performs it is asked each time; the answer is the same, unless it depends on how often that was."""
        if "fail" in task.faults:
            return Failed(SIMULATED_FAILURE, "the simulation lets it fail", True)
        outcome = self._mocks.answer(task.call).outcome
        if isinstance(outcome, Succeeded) and isinstance(outcome.value, bytes):
            return Succeeded(self._kept(outcome.value))
        return outcome

    def _deliver(self, life: SimulatedRun, number: int, delivery: int) -> None:
        """The same attempt ends the same way, at the same instant, whoever performs it."""
        task = self._tasks[(life.id, number)]
        result = i.TaskResult(number, task.call.attempt, delivery, self._outcome(task))
        due = max(self.now, task.due)
        if "late" in task.faults and delivery == 1:
            lost = i.TaskLost(number, delivery, "its worker is silent", LossKind.BESIDE_OTHERS)
            self._offer((self.now + due) // 2, 0, life.id, lost)
            self._offer(due + SECOND, 0, life.id, result)
            return
        self._offer(due, 0, life.id, result, task.tie)
        if "duplicate" in task.faults:
            self._offer(due, 0, life.id, result, task.tie)

    # Permits, lookups, values.

    def _release(self, run: RunId, permit: int) -> None:
        request = self.permits.pop((run, permit), None)
        self._granted.discard((run, permit))
        if request is not None:
            self._allocate(request[0].scope)

    def _allocate(self, scope: str) -> None:
        requests = {key: entry for key, entry in self.permits.items() if entry[0].scope == scope}
        if not requests:
            return
        limit = min(UNLIMITED if event.limit is None else event.limit for event, _ in requests.values())
        waiting = [
            PermitRequest(run, permit, event.priority, at, event.ageing)
            for (run, permit), (event, at) in requests.items()
            if (run, permit) not in self._granted
        ]
        for request in grant(limit, sum(key in self._granted for key in requests), waiting, self.now):
            self._granted.add((request.run, request.permit))
            self._offer(self.now, 0, request.run, i.PermitGrant(request.permit))

    def _line(self, scope: str, run: RunId) -> PermitQueue:
        requests = {key: entry for key, entry in self.permits.items() if entry[0].scope == scope}
        highest = [
            event.priority + ((self.now - at) // event.ageing if event.ageing and key not in self._granted else 0)
            for key, (event, at) in requests.items()
            if key[0] != run
        ]
        return PermitQueue(sum(key in self._granted for key in requests), max(highest, default=None))

    def _answer(self, lookup: Lookup) -> Any:
        match lookup:
            case ResourceKey(kind, namespace, name):
                resources = (dialect.provided(kind, namespace, name) for dialect in self._dialects.values())
                return next((resource for resource in resources if resource is not None), None)
            case CacheLookup(key):
                return self._memories.get(key)
            case PermitQueueLookup(scope, run):
                return self._line(scope, run)
            case ResourcesInNamespace():
                return []
            case StrandedRunLookup():
                return False
            case QueuedTaskLookup():
                return True
            case _:
                return None

    def _kept(self, text: bytes) -> Payload:
        if len(text) <= INLINE_BYTES:
            return text
        name = digest(text)
        self.values[name] = text
        return Ref(name, len(text))

    def _text(self, payload: Payload) -> bytes:
        return payload if isinstance(payload, bytes) else self.values[payload.digest]

    # What there is to see.

    def result(self) -> tuple[str, bytes]:
        """Status and outcome of the run, as text that can be compared."""
        state = self.root.execution.state
        match state.outcome:
            case Succeeded(value):
                return state.status.value, self._text(value)
            case Failed(code, message):
                return state.status.value, f"{code}: {message}".encode()
            case Cancelled(reason):
                return state.status.value, reason.encode()
        return state.activity.value, b""
