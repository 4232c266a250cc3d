"""What workers elsewhere ask for, for whichever process owns the run.

    lease ─▶ heartbeat … claim, signal, report, log … ─▶ end | release | report its outcome, and go on
                                                     └─▶ the lease ends: next delivery (`Runtime.expire_leases`)

If this process owns the run, an answer is committed with what follows from it. Otherwise it is a message in the same
transaction as the end of its lease; where the answer of the owner is the point, it is waited for.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from perdure.engine.decision_threads import done_aside
from perdure.engine.runs import run_views
from perdure.engine.runs.effects import recorded_answer
from perdure.engine.slot import ELSEWHERE
from perdure.engine.tasks.lease_errors import LeaseAnswered, LeaseGone, OwnerSilent
from perdure.engine.tasks.shown_secrets import recordable, recordable_line
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.errors import Conflict, RunNotFound
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_values import extract_large_values
from perdure.kernel.json_values.values import SECOND, Instant, Payload, RunId
from perdure.kernel.outcomes import Outcome, Succeeded
from perdure.kernel.tasks.assignments import AssignmentMessage, EffectClaimResult, decode_assignment, decode_pipeline
from perdure.kernel.tasks.crash_attribution import LossKind, StartPlace
from perdure.stores.commit_types import Message, TaskAnswer
from perdure.stores.pool_tasks import ANSWERS_KEPT, LeaseRenewal, LeaseRequest, TaskLease, report_name

if TYPE_CHECKING:
    from perdure.engine.client import Client

LEASE: Instant = 60 * SECOND
WORKER = i.Sender("worker")
OWNER_TIMEOUT = 5.0  # seconds that an owner elsewhere gets to decide
LOOK_EVERY = 0.01, 0.1  # seconds between looks at its run: at first, and at most
OFFERS_LOOKED_FOR = 0.1  # seconds between looks for what other processes have offered, while somebody waits
LOOKING = 50  # of those who wait, at that pace: if there are more, each looks less often
FOUND_AT_ONCE = 500  # leases
LOOKS_AT_ONCE = 8  # of so many who wait, before other work has its turn


LineLogger = Callable[[str, str, dict[str, Any], int | None], None]


async def answer_digest(outcome: Outcome, judged: bytes | None = None) -> bytes:
    """By which the same answer is recognized."""
    size = len(outcome.value) if isinstance(outcome, Succeeded) and isinstance(outcome.value, bytes) else 0
    return await done_aside(size, lambda: sha256(msgspec.msgpack.encode(outcome) + (judged or b"")).digest())


class LeasedTasks:
    def __init__(self, client: "Client", lease: Instant = LEASE) -> None:
        self._client = client
        self._store = client.store
        self._clock = client.clock
        self.lease_for = lease
        self._waiting: set[asyncio.Event] = set()  # each is set when something may have been offered
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._unwatch: Callable[[], None] = lambda: None
        self._is_stopping = False
        self._lines: dict[str, int] = {}  # by lease: lines logged so far

    # Getting work.

    async def lease(
        self, request: LeaseRequest, wait: float = 0.0, is_gone: Callable[[], Awaitable[bool]] | None = None
    ) -> list[TaskLease]:
        """What is ready, oldest first, runs in turns; waits so many seconds for something to be.

        Whoever `is_gone` meanwhile gets nothing.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        offered = asyncio.Event()
        try:
            while True:
                offered.clear()
                if is_gone is not None and await is_gone():
                    return []
                granted = await self._grant(request)
                left = end - loop.time()
                if granted or left <= 0 or self._is_stopping:
                    return granted
                if offered not in self._waiting:
                    self._watch_for(offered)
                    continue  # it may have come in between
                pause = OFFERS_LOOKED_FOR * max(1.0, len(self._waiting) / LOOKING)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, pause)):
                        await offered.wait()
        finally:
            self._waiting.discard(offered)
            if not self._waiting:
                self._unwatch()
                self._unwatch = lambda: None

    async def _grant(self, request: LeaseRequest) -> list[TaskLease]:
        if len(self._waiting) <= LOOKING:
            return await self._store.lease(replace(request, until=self._clock.now() + self.lease_for))
        async with self._looks:
            await asyncio.sleep(0)
            return await self._store.lease(replace(request, until=self._clock.now() + self.lease_for))

    def _watch_for(self, offered: asyncio.Event) -> None:
        if not self._waiting and self._client.runtime is not None:
            self._unwatch = self._client.runtime.watch(self._look_at_commit)
        self._waiting.add(offered)

    def stop_waiting(self) -> None:
        """Whoever waits is answered now, with nothing."""
        self._is_stopping = True
        self._wake()

    def _wake(self) -> None:
        for offered in self._waiting:
            offered.set()

    def _look_at_commit(self, run: RunId, turns: list[tuple[Instant, list[e.Event]]]) -> None:
        for _, events in turns:
            for event in events:
                if isinstance(event, e.TaskRedelivered | e.TasksTakenUp) or (
                    isinstance(event, e.TaskScheduled) and event.pool
                ):
                    self._wake()
                    return

    async def find_many(self, leases: Sequence[str]) -> dict[str, TaskLease]:
        """Those that last; one that was recalled lasts until the end of its grace, whoever looks after it."""
        leased: dict[str, TaskLease] = {}
        for begin in range(0, len(leases), FOUND_AT_ONCE):
            leased |= await self._store.find_leases(leases[begin : begin + FOUND_AT_ONCE])
            await asyncio.sleep(0)
        now = self._clock.now()
        return {lease: row for lease, row in leased.items() if not (row.is_let_go and row.until <= now)}

    async def find(self, lease: str) -> TaskLease:
        row = (await self.find_many([lease])).get(lease)
        if row is None:
            raise LeaseGone("this lease is unknown, or no longer yours")
        return row

    async def find_open(self, lease: str) -> TaskLease:
        """One that was not answered."""
        row = await self.find(lease)
        if row.answer is not None:
            raise LeaseGone("the task of this lease was answered")
        return row

    async def renew(self, leases: Sequence[str]) -> tuple[Instant, LeaseRenewal]:
        """Until when they last now."""
        until = self._clock.now() + self.lease_for
        empty: frozenset[str] = frozenset()
        return until, await self._store.renew(leases, until) if leases else LeaseRenewal(empty, empty)

    async def text(self, run: RunId, payload: Payload) -> bytes:
        if isinstance(payload, bytes):
            return payload
        return (await self._store.values(run, [payload.digest]))[payload.digest]

    # Ending it.

    async def end(
        self, lease: TaskLease, outcome: Outcome, *, was_alone: bool = False, answer: bytes | None = None
    ) -> None:
        """The first answer counts: the same `answer`, by its digest, is the same again; another one is refused."""
        answer = await answer_digest(outcome) if answer is None else answer
        if lease.answer is not None:
            self._check_same(lease, answer)
            return
        task, delivery, now = lease.task, lease.delivery, self._clock.now()
        assignment = parcel_of(lease).assignment
        outcome = recordable(assignment, outcome)
        result: i.Input = i.TaskResult(task, assignment.attempt, delivery, outcome)
        if was_alone:  # the process that it had to itself is gone
            result = i.TaskLost(task, delivery, getattr(outcome, "message", ""), LossKind.ALONE)
        until = now + ANSWERS_KEPT
        if await self._is_ours(lease.run):
            assert self._client.runtime is not None
            decided = await self._client.runtime.ask(lease.run, result, TaskAnswer(task, lease.lease, answer, until))
            if decided is not ELSEWHERE:
                if isinstance(decided, i.Refused):
                    await self._check_refused(lease.lease, answer, until)
                return
        result, values = extract_large_values(result, "outcome")
        for name, text in values:
            await self._store.put_value(lease.run, name, text)
        if not await self._store.report(lease.lease, Message(lease.run, now, i.encode(result)), answer, until):
            self._check_same(await self.find(lease.lease), answer)

    # Pipelines: the outcome of one task, and the next one under the same lease.

    async def report_outcome(
        self, lease: TaskLease, number: int, outcome: Outcome, judged: bytes | None, answer: bytes | None = None
    ) -> TaskLease | None:
        """The next task of the pipeline, once the outcome is recorded; None: it does not go on under this lease.

        The same outcome again is answered the same; another one under its number, or under a later one, is refused.
        """
        pipeline = decode_pipeline(lease.pipeline)
        if pipeline is None:
            raise Conflict("the task of this lease does not belong to a pipeline", hint="Complete it, or fail it.")
        content = await answer_digest(outcome, judged) if answer is None else answer
        name = report_name(number, content)
        if lease.answer is not None or number + 1 == lease.number:
            return _next(lease, name)
        if number != lease.number:
            raise Conflict(f"outcome {lease.number} of this lease is next, not {number}")
        if lease.reported[:4] == name[:4]:  # it is on its way to the owner of the run
            if lease.reported != name:
                raise LeaseAnswered(f"outcome {number} of this lease was already reported with a different content")
            return await self._decided(lease, name)
        about = (lease.task, parcel_of(lease).assignment.attempt, lease.delivery, outcome)
        result = i.PipelineResult(*about, pipeline.number, lease.lease, number, content, judged)
        if await self._is_ours(lease.run):
            assert self._client.runtime is not None
            if await self._client.runtime.ask(lease.run, result) is not ELSEWHERE:
                return _next(await self.find(lease.lease), name)
        result, values = extract_large_values(result, "outcome")
        for digest, text in values:
            await self._store.put_value(lease.run, digest, text)
        message = Message(lease.run, self._clock.now(), i.encode(result))
        if not await self._store.report_outcome(lease.lease, number, name, message):
            raise LeaseGone("this lease is no longer yours", run=lease.run)
        return await self._decided(lease, name)

    async def _decided(self, lease: TaskLease, name: bytes) -> TaskLease | None:
        """What the owner of the run has made of it, which is told by the row of the lease."""
        async for _ in _looks(lease.run):
            current = await self.find(lease.lease)
            if current.answer is not None or current.number != lease.number:
                return _next(current, name)
        raise AssertionError("the update ended with an error")

    async def _check_refused(self, lease: str, answer: bytes, until: Instant) -> None:
        """The run does not need the answer. That is no error of a worker that was asked to stop, and does."""
        row = await self.find(lease)
        if not row.is_let_go or not await self._store.report(lease, None, answer, until):
            self._check_same(row, answer)

    def _check_same(self, lease: TaskLease, answer: bytes) -> None:
        if lease.answer is None:
            raise LeaseGone("the run no longer needs the task of this lease")
        if lease.answer != answer:
            raise LeaseAnswered("the task of this lease already has a different answer")

    async def release(self, lease: TaskLease, *, has_begun: bool = False) -> None:
        """Un-begun it costs no delivery; one that has begun is for the next delivery, and charged to nobody."""
        if has_begun:
            lost = i.TaskLost(lease.task, lease.delivery, f"worker {lease.worker} was stopped", LossKind.STOPPED)
            if not await self._store.report(lease.lease, Message(lease.run, self._clock.now(), i.encode(lost))):
                raise LeaseGone("this lease is no longer yours")
        elif not await self._store.release(lease.lease):
            await self.find_open(lease.lease)
            raise Conflict("the task has claimed, reported or signalled something", hint="Finish it, or fail it.")
        self._wake()

    async def begin(self, lease: TaskLease, place: StartPlace, *, is_cleared: bool = False) -> None:
        """Record where a suspect begins; `is_cleared`: it has outlived its time alone."""
        message = None
        if is_cleared:
            clear = i.Clear(lease.task, lease.delivery, outlived=True)
            message = Message(lease.run, self._clock.now(), i.encode(clear))
        if not await self._store.begin(lease.lease, place, message):
            raise LeaseGone("this lease is no longer yours")

    async def clear_lost(self, lease: str) -> None:
        """The worker of a lost lease lives, and was only late: that is not charged to the task."""
        await self._store.clear_lost(lease, self._clock.now())

    # Speaking to its run.

    async def claim_effect(self, lease: TaskLease, key: str) -> EffectClaimResult:
        answer = await self._ask(lease, i.EffectClaim(lease.task, lease.delivery, key))
        assert isinstance(answer, i.EffectClaimAnswer)
        result = None if answer.result is None else await self.text(lease.run, answer.result)
        return EffectClaimResult(answer.completed, answer.in_doubt, result, answer.unfit)

    async def complete_effect(self, lease: TaskLease, key: str, result: bytes) -> None:
        await self._ask(lease, i.EffectDone(lease.task, lease.delivery, key, result))

    async def complete_effect_unfit(self, lease: TaskLease, key: str, reason: str) -> None:
        await self._ask(lease, i.EffectUnfit(lease.task, lease.delivery, key, reason))

    async def release_effect(self, lease: TaskLease, key: str) -> None:
        await self._ask(lease, i.EffectRelease(lease.task, lease.delivery, key))

    async def signal(self, lease: TaskLease, name: str, value: bytes, key: str = "") -> None:
        path = parcel_of(lease).assignment.path
        await self._ask(lease, i.Signal(name, value, key, f"task {path}", WORKER))

    async def report(self, lease: TaskLease, body: bytes) -> bytes | None:
        answer = await self._ask(lease, i.TaskReport(lease.task, lease.delivery, body))
        return answer.body if isinstance(answer, i.Accepted) else None

    def log_of(self, lease: TaskLease) -> LineLogger:
        """What takes lines of the task: level, text, fields, and the number of the line if its worker counts them."""
        runtime = self._client.runtime
        if runtime is None:
            return lambda *_: None
        recorder = runtime.scheduler.recorder
        assignment = replace(parcel_of(lease).assignment, delivery=lease.delivery)
        if len(self._lines) > 10_000:
            self._lines.clear()

        def log(level: str, text: str, fields: dict[str, Any], number: int | None) -> None:
            self._lines[lease.lease] = number or self._lines.get(lease.lease, 0) + 1
            recorder.add_line(assignment, self._lines[lease.lease], level, *recordable_line(text, fields))

        return log

    async def _ask(self, lease: TaskLease, input: i.Input) -> i.InputAnswer:
        if not lease.is_touched and not await self._store.touch(lease.lease):
            raise LeaseGone("this lease is no longer yours")
        answer: i.InputAnswer = ELSEWHERE
        if await self._is_ours(lease.run):
            assert self._client.runtime is not None
            answer = await self._client.runtime.ask(lease.run, input)
        if answer is ELSEWHERE:
            answer = await self._ask_owner(lease, input)
        if isinstance(answer, i.Refused):
            if answer.conflict:
                raise Conflict(answer.reason, run=lease.run)
            raise LeaseGone(answer.reason, run=lease.run)
        return answer

    async def _ask_owner(self, lease: TaskLease, input: i.Input) -> i.InputAnswer:
        """Through the store; its answer is in what is recorded then."""
        stored = input
        for field in ("result", "value", "body"):
            payload = getattr(input, field, None)
            if isinstance(payload, bytes) and len(payload) > jsontext.PIECE:
                raise Conflict("the owner of the run is another server, to which this is too large", run=lease.run)
        sent = await self._store.send(Message(lease.run, self._clock.now(), i.encode(stored)))
        if sent is None:
            raise LeaseGone("its run is gone", run=lease.run)
        async for _ in _looks(lease.run):
            if not await self._store.is_undecided(sent):
                break
        try:
            row = await self._client.find(lease.run)
        except RunNotFound:
            raise LeaseGone("its run is gone", run=lease.run) from None
        execution = await run_views.load(self._store, self._client.languages, row)
        answer = recorded_answer(execution, input)
        if answer is None:
            raise OwnerSilent("the process that owns the run has not recorded this", run=lease.run)
        return answer

    async def _is_ours(self, run: RunId) -> bool:
        runtime = self._client.runtime
        if runtime is None:
            return False
        if runtime.is_open_here(run):
            return True
        row = await self._store.find(run)
        return row is not None and row.partition in runtime.partitions


async def _looks(run: RunId) -> AsyncIterator[None]:
    """When to look for what the owner of a run, another process, has decided. Raises `OwnerSilent` in the end."""
    pause, longest = LOOK_EVERY
    end = asyncio.get_running_loop().time() + OWNER_TIMEOUT
    while True:
        yield
        if asyncio.get_running_loop().time() > end:
            raise OwnerSilent("the process that owns the run has not decided yet", run=run)
        await asyncio.sleep(pause)
        pause = min(2 * pause, longest)


def _next(lease: TaskLease, name: bytes) -> TaskLease | None:
    """After the outcome of this name: the lease with its next task; None if that outcome was its last."""
    if lease.is_let_go:
        return None
    if name not in (lease.answer, lease.reported):
        raise LeaseAnswered("this outcome was already reported with a different content")
    return None if lease.answer is not None else lease


def parcel_of(lease: TaskLease) -> AssignmentMessage:
    return decode_assignment(lease.body)
