"""A scripted universe: drives runs purely, without an engine, on a clock that jumps to the next due thing.

Tasks are answered by plain functions. The order in which results arrive is the test's to choose: in order, reversed, or
shuffled by a seed. After every commit a run can be folded anew from its log and go on from the fold: a crash.
Children are runs of their own on the same clock; permits are granted by the kernel's allocator.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random
from types import MappingProxyType
from typing import Any

from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns, encode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import (
    CachedValue,
    CacheLookup,
    CalleeLookup,
    Lookup,
    PermitQueue,
    PermitQueueLookup,
    QueuedTaskLookup,
    ResourceKey,
    StrandedRunLookup,
)
from perdure.kernel.documents.validation import Resource
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_values import INLINE_BYTES
from perdure.kernel.json_values.values import SECOND, Instant, Payload, Ref, RunId, digest
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.secrets.secret_masking import Mask
from perdure.kernel.tasks.assignments import Assignment, OfferedPipeline
from perdure.kernel.tasks.permits import PermitRequest, grant, resource_scope
from perdure.kernel.turn import Turn
from perdure.providers.failure import ProviderFailure
from perdure.services.playbook.keychain import HostKeychain, HostSecrets
from perdure.workers.unsealer import Unsealer

START: Instant = 1_800_000_000_000_000
ENOUGH = 1_000_000


@dataclass
class Answer:
    """What a task will say, and how long it takes. `says` it reports on the way, `does` are effects it completes."""

    value: Any = None
    failure: Outcome | None = None
    after: Instant = 0
    says: list[dict[str, Any]] = field(default_factory=list)
    does: dict[str, Any] = field(default_factory=dict)
    stubborn: bool = False  # goes on when it is asked to stop, until its grace has passed

    def outcome(self) -> Outcome:
        return self.failure or Succeeded(jsontext.encode(self.value))


Work = Callable[[dict[str, Any]], Any]


class Life:
    """One run as it is in memory, with its log."""

    def __init__(self, universe: "Universe", run: RunId, dialect: Dialect, text: bytes) -> None:
        self.universe = universe
        self.id = run
        self.dialect = dialect
        self.text = text
        self.rows: list[bytes] = []
        self.events: list[e.Event] = []
        self.moves = 0
        self.execution = self._fresh()
        self.attempts: dict[int, int] = {}
        self.deliveries: dict[int, int] = {}
        self.stubborn: set[int] = set()
        self.cancelled: list[int] = []
        self.pipelines: dict[int, OfferedPipeline] = {}

    def _fresh(self) -> Execution:
        return Execution(self.id, self.dialect, self.dialect.load(self.text))

    @property
    def is_over(self) -> bool:
        return self.execution.state.status.is_final

    def show(self) -> Any:
        return self.dialect.show(self.execution, self.universe.values)

    def take(self, message: i.Input, arrived: Instant) -> Turn:
        universe = self.universe
        turn = Turn(self.execution, message, arrived, universe.now, routes=universe.routes)
        while (needs := decide(turn, universe.limits)) is not None:
            missing = {name for name in needs.digests if name not in universe.values}
            assert needs.may_be_absent or not missing
            turn.absent |= missing
            turn.texts |= {name: universe.values[name] for name in needs.digests if name not in missing}
            turn.answers |= {question: universe.answer(question) for question in needs.lookups}
        universe.values |= turn.values
        universe.memories |= turn.cache_writes
        universe.programs |= turn.programs
        self.moves += turn.moves
        self.events += turn.events
        self.pipelines |= turn.pipelines
        if turn.events:
            self.rows.append(encode_turns([(turn.now, turn.events)]))
            if universe.crash:
                self._fold_and_compare()
        for event in turn.events:
            universe.obey(self, event)
        if self.execution.state.sliced:
            universe.offer(universe.now, -1, self.id, i.Proceed())
        return turn

    def _fold_and_compare(self) -> None:
        """A crash: what is in memory is gone, and what the log says is the same."""
        folded = self._fresh()
        for row in self.rows:
            folded.fold(decode_turns(self.dialect, row))
        freeze = self.dialect.freeze
        assert freeze(folded.body) == freeze(self.execution.body), "the fold differs from what was live"
        thawed = self.dialect.thaw(folded.program, freeze(folded.body))
        assert freeze(thawed) == freeze(folded.body)
        folded.body = thawed
        self.execution = folded


class Universe:
    """`work` answers tasks by provider name: a value, an `Outcome`, an `Answer`, or an exception.

    `slots` bounds how many tasks work at once, as a worker would; the others wait their turn in order.
    `variables` are those of the host, where secrets come from.
    """

    routes: Mapping[str, str] = MappingProxyType({})  # provider → its pool

    def __init__(
        self,
        dialects: dict[str, Dialect],
        *,
        work: dict[str, Work] | None = None,
        crash: bool = False,
        seed: int | None = None,
        slots: int = ENOUGH,
        limits: Limits | None = None,
        variables: dict[str, str] | None = None,
    ) -> None:
        self.dialects = dialects
        self.variables = variables or {}
        self.mask = Mask()
        self.work = work or {}
        self.crash = crash
        self.random = None if seed is None else Random(seed)
        self.slots = slots
        self.limits = limits or Limits()
        self.now = START
        self.values: dict[bytes, bytes] = {}
        self.memories: dict[str, CachedValue] = {}
        self.programs: dict[bytes, tuple[str, bytes]] = {}
        self.catalog: dict[tuple[str, str, str], Resource] = {}
        self.lives: dict[RunId, Life] = {}
        self.queue: list[tuple[Instant, int, float, int, RunId, i.Input]] = []
        self.count = 0
        self.busy: set[tuple[RunId, int]] = set()
        self.queued: list[tuple[Life, e.TaskScheduled]] = []
        self.performed: list[tuple[str, dict[str, Any]]] = []
        self.keys: list[str] = []
        self.permits: dict[tuple[RunId, int], tuple[e.PermitRequested, Instant]] = {}
        self.granted: set[tuple[RunId, int]] = set()
        self.stranded: set[RunId] = set()  # runs that take nothing any more: stuck, or without an owner

    # Runs.

    def start(
        self,
        language: str,
        text: bytes,
        input: Any = None,
        options: dict[str, Any] | None = None,
        *,
        run: str = "run",
        labels: dict[str, str] | None = None,
    ) -> Life:
        life = self.lives[RunId(run)] = Life(self, RunId(run), self.dialects[language], text)
        input_reference = self.kept(jsontext.encode(input))
        encoded_options = jsontext.encode(options or {})
        self.offer(
            self.now,
            0,
            life.id,
            i.Start(language, digest(text), "test", input_reference, encoded_options, 7, labels=labels or {}),
        )
        return life

    def offer(self, at: Instant, rank: int, run: RunId, message: i.Input) -> None:
        self.count += 1
        tie = self.random.random() if self.random is not None and rank == 0 else 0.0
        heappush(self.queue, (at, rank, tie, self.count, run, message))

    # Time passes.

    def settle(self, until: Instant | None = None) -> None:
        """Until nothing but the outside can move anything, or until this instant."""
        while self.queue and (until is None or self.queue[0][0] <= until):
            self._next()
        if until is not None:
            self.now = max(self.now, until)

    def pass_time(self, seconds: float) -> None:
        self.settle(self.now + int(seconds * SECOND))

    def _next(self) -> None:
        at, _, _, _, run, message = self._first()
        life = self.lives.get(run)
        if life is None or (life.is_over and not isinstance(message, i.Start | i.Reopen)):
            if isinstance(message, i.TaskResult):
                self.busy.discard((run, message.task))
            return
        if run in self.stranded:
            return
        if isinstance(message, i.TimerDue) and message.timer not in life.execution.state.timers:
            return  # dropped meanwhile: no time passes for it
        self.now = max(self.now, at)
        self.take(life, message, at)

    def _first(self) -> tuple[Instant, int, float, int, RunId, i.Input]:
        """A wait for a word runs out when nothing else is there for its run, whichever side of its due time it came."""
        first = heappop(self.queue)
        if first[1] >= i.CONTROL_WAIT_RANK:
            now = max(self.now, first[0])
            other = next((entry for entry in sorted(self.queue) if entry[0] <= now and entry[4] == first[4]), None)
            if other is not None and other[1] < i.CONTROL_WAIT_RANK:
                self.queue.remove(other)
                heapify(self.queue)
                heappush(self.queue, first)
                return other
        return first

    def take(self, life: Life, message: i.Input, arrived: Instant) -> Turn:
        if isinstance(message, i.TaskResult):
            self.busy.discard((life.id, message.task))
        turn = life.take(message, arrived)
        while self.queued and len(self.busy) < self.slots and self.queued[0][1].provider in self.work:
            self._perform(*self.queued.pop(0))
        return turn

    def ask(self, life: Life, message: i.Input) -> i.InputAnswer:
        return self.take(life, message, self.now).answer

    # The outside obeys.

    def obey(self, life: Life, event: e.Event) -> None:
        match event:
            case e.TimerSet(timer, due, rank):
                self.offer(due, 1 + rank, life.id, i.TimerDue(timer))
            case e.ChildBounded(_, timer, due):
                self.offer(due, 2, life.id, i.TimerDue(timer))
            case e.TaskScheduled():
                life.attempts[event.task], life.deliveries[event.task] = event.attempt, 1
                self.queued.append((life, event))
            case e.TaskRedelivered(task, delivery):
                life.deliveries[task] = delivery
                scheduled = next(
                    event for event in life.events if isinstance(event, e.TaskScheduled) and event.task == task
                )
                self.queued.append((life, scheduled))
            case e.TaskCancelRequested(task):
                life.cancelled.append(task)
                self.queued = [entry for entry in self.queued if not (entry[0] is life and entry[1].task == task)]
                wait = life.execution.state.tasks[task].grace if task in life.stubborn else 0
                stopped = Cancelled("asked to")
                self.offer(
                    self.now + wait,
                    0,
                    life.id,
                    i.TaskResult(task, life.attempts[task], life.deliveries[task], stopped),
                )
            case e.ChildStarted():
                self.start_child(life, event)
            case e.ChildCancelRequested(child, reason):
                self.offer(self.now, 0, life.execution.child_id(child), i.Cancel(reason))
            case e.RunEnded(status, outcome):
                self._forget(life)
                parent = life.execution.state.parent
                if parent is not None and parent[1] and life.execution.state.incarnation == 1:
                    self.offer(self.now, 0, parent[0], i.ChildResult(parent[1], status, outcome))
            case e.PermitRequested(permit):
                self.permits[(life.id, permit)] = (event, self.now)
                self.allocate(event.scope)
            case e.PermitReleased(permit):
                self._release(life.id, permit)
            case _:
                pass

    def start_child(self, life: Life, event: e.ChildStarted) -> None:
        run = life.execution.child_id(event.child)
        language, text = self.programs[event.program]
        self.lives[run] = Life(self, run, self.dialects[language], text)
        parent = (life.id, event.child if event.awaited else 0)
        start = i.Start(language, event.program, event.name, event.input, event.options, 8, parent, event.labels)
        self.offer(self.now, -1, run, start)  # letters of one sender keep their order: nothing overtakes a start

    def _forget(self, life: Life) -> None:
        self.queued = [entry for entry in self.queued if entry[0] is not life]
        self.busy = {key for key in self.busy if key[0] != life.id}
        for run, permit in [key for key in self.permits if key[0] == life.id]:
            self._release(run, permit)

    # Permits, resources, memories.

    def _release(self, run: RunId, permit: int) -> None:
        claim = self.permits.pop((run, permit), None)
        self.granted.discard((run, permit))
        if claim is not None:
            self.allocate(claim[0].scope)

    def allocate(self, scope: str) -> None:
        asked = {key: claim for key, claim in self.permits.items() if claim[0].scope == scope}
        if not asked:
            return
        limit = min((claim[0].limit if claim[0].limit is not None else ENOUGH) for claim in asked.values())
        if scope in {resource_scope(*key) for key in self.catalog}:
            limit = ENOUGH
        held = sum(key in self.granted for key in asked)
        waiting = [
            PermitRequest(run, permit, claim.priority, at, claim.ageing)
            for (run, permit), (claim, at) in asked.items()
            if (run, permit) not in self.granted
        ]
        for request in grant(limit, held, waiting, self.now):
            self.granted.add((request.run, request.permit))
            self.offer(self.now, 0, request.run, i.PermitGrant(request.permit))

    def _line(self, scope: str, run: RunId) -> PermitQueue:
        asked = {key: claim for key, claim in self.permits.items() if claim[0].scope == scope}
        highest = None
        for key, (claim, at) in asked.items():
            if key[0] != run:
                aged = (self.now - at) // claim.ageing if claim.ageing and key not in self.granted else 0
                highest = max(claim.priority + aged, highest or 0)
        return PermitQueue(sum(key in self.granted for key in asked), highest)

    def apply(self, resource: Resource) -> None:
        metadata = resource["metadata"]
        namespace = "" if resource["kind"].endswith("Template") else metadata.get("namespace", "default")
        self.catalog[(resource["kind"], namespace, metadata["name"])] = resource
        self.allocate(resource_scope(resource["kind"], namespace, metadata["name"]))

    def answer(self, question: Lookup) -> Any:
        match question:
            case ResourceKey(kind, namespace, name):
                return self.catalog.get((kind, namespace, name))
            case CacheLookup(key):
                return self.memories.get(key)
            case CalleeLookup():
                return None
            case PermitQueueLookup(scope, run):
                return self._line(scope, run)
            case StrandedRunLookup(_, run):
                return run in self.stranded
            case QueuedTaskLookup():
                return True  # nobody works for pools here
            case _:
                return []

    # Work.

    def _perform(self, life: Life, event: e.TaskScheduled) -> None:
        self.busy.add((life.id, event.task))
        arguments = self.data(event.arguments)
        self.performed.append((event.provider, arguments))
        self.keys.append(event.key or event.path)
        try:
            if event.sealed:
                arguments = asyncio.run(self._opened(life, event))
            answer = self.work[event.provider](arguments)
        except ProviderFailure as failure:
            answer = Failed(failure.code, failure.message, failure.retryable, jsontext.encode(failure.details))
        except Exception as error:
            answer = Failed(f"Provider.Call.X.Errors.{type(error).__name__}", str(error))
        if isinstance(answer, Failed | Cancelled):
            answer = Answer(failure=answer)
        if not isinstance(answer, Answer):
            answer = Answer(answer)
        delivery = life.deliveries[event.task]
        if answer.stubborn:
            life.stubborn.add(event.task)
        for report in answer.says:
            self.offer(self.now, -1, life.id, i.TaskReport(event.task, delivery, jsontext.encode(report)))
        for key, result in answer.does.items():
            self.offer(self.now, -1, life.id, i.EffectClaim(event.task, delivery, key))
            self.offer(self.now, -1, life.id, i.EffectDone(event.task, delivery, key, jsontext.encode(result)))
        outcome = self.mask.outcome(answer.outcome())
        if isinstance(outcome, Succeeded) and isinstance(outcome.value, bytes):
            outcome = Succeeded(self.kept(outcome.value))
        result = self.result_of(life, i.TaskResult(event.task, event.attempt, delivery, outcome), answer.after)
        self.offer(self.now + answer.after, 0, life.id, result)

    def result_of(self, life: Life, result: i.TaskResult, after: Instant) -> i.TaskResult:
        """As its worker tells it."""
        return result

    async def _opened(self, life: Life, event: e.TaskScheduled) -> dict[str, Any]:
        """As a worker does it that has just come into being: nothing is in its memory."""
        documents = {digest(life.text): ("", life.text) for life in self.lives.values()}

        async def document(name: bytes) -> tuple[str, bytes] | None:
            return documents.get(name)

        openers = {name: dialect for name, dialect in self.dialects.items() if dialect.opens_envelopes}
        unsealer = Unsealer(
            openers,
            document,
            lambda: self.now,
            HostKeychain(HostSecrets(lambda name: None, {"PERDURE_KEYCHAIN_ENV": "*", **self.variables})),
        )
        text = jsontext.encode(self.data(event.arguments))
        try:
            return await unsealer.open(Assignment(life.id, event.task, event.path, "", text, b"", 1, 1, ""), self.mask)
        finally:
            await unsealer.close()

    def kept(self, text: bytes) -> Payload:
        """As the engine does it: what is large is put beside the log before the run hears of it."""
        if len(text) <= INLINE_BYTES:
            return text
        name = digest(text)
        self.values[name] = text
        return Ref(name, len(text))

    def data(self, payload: Any) -> Any:
        return jsontext.decode(payload if isinstance(payload, bytes) else self.values[payload.digest])
