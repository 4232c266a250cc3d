"""What happens to the tasks of this process, offered to their runs: ends, losses, begins of suspects."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.commands import lost
from perdure.engine.context import EngineContext
from perdure.engine.decision_threads import ShortTurns
from perdure.engine.slot import Mail, Slot
from perdure.engine.tasks.shown_secrets import recordable, recordable_line
from perdure.kernel import inputs as i
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values.large_values import HASHED_IN_THREAD, LargeValues, extract_from_outcome, takes_long
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Failed, Outcome, Succeeded
from perdure.kernel.tasks.assignments import Assignment, EffectClaimResult, RunPort, StreamRows
from perdure.kernel.tasks.crash_attribution import LossKind, StartPlace
from perdure.stores.clocks import machine
from perdure.stores.commit_types import Committed, CommitUnknown, Fenced, Message, Transition
from perdure.stores.errors import StoreError
from perdure.stores.protocol import Store

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler
    from perdure.engine.tasks.task_log_writer import TaskLogs

# The engine's side of the interface through which a task in flight speaks to its run.

_task_log = logging.getLogger("perdure.task")


class TaskPort(msgspec.Struct, eq=False, gc=False):
    """A struct, because every task gets one: it is filled by one call into C."""

    _assignment: Assignment
    _recorder: "TaskRecorder"
    _lines: int = 0

    __repr__ = object.__repr__  # a struct would show the task's arguments

    @property
    def stream_rows(self) -> StreamRows:
        return self._recorder.rows_of(self._assignment.run)

    async def _must(self, input: i.Input) -> i.InputAnswer:
        answer = await self._recorder.ask(self._assignment.run, input)
        if isinstance(answer, i.Refused):
            raise Conflict(f"{self._assignment.path}: {answer.reason}", run=self._assignment.run)
        return answer

    async def claim_effect(self, key: str) -> EffectClaimResult:
        assignment = self._assignment
        answer = await self._must(i.EffectClaim(assignment.task, assignment.delivery, key))
        assert isinstance(answer, i.EffectClaimAnswer)
        result = None if answer.result is None else await self._recorder.text(assignment.run, answer.result)
        return EffectClaimResult(answer.completed, answer.in_doubt, result, answer.unfit)

    async def complete_effect(self, key: str, result: bytes) -> None:
        await self._must(i.EffectDone(self._assignment.task, self._assignment.delivery, key, result))

    async def complete_effect_unfit(self, key: str, reason: str) -> None:
        await self._must(i.EffectUnfit(self._assignment.task, self._assignment.delivery, key, reason))

    async def release_effect(self, key: str) -> None:
        await self._must(i.EffectRelease(self._assignment.task, self._assignment.delivery, key))

    async def emit_signal(self, name: str, value: bytes) -> None:
        await self._must(i.Signal(name, value, by=f"task {self._assignment.path}"))

    async def report(self, body: bytes) -> bytes | None:
        answer = await self._must(i.TaskReport(self._assignment.task, self._assignment.delivery, body))
        return answer.body if isinstance(answer, i.Accepted) else None

    def heartbeat(self, detail: bytes | None) -> None:
        """In the engine's own process there is no lease to keep."""

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        assignment = self._assignment
        self._lines += 1
        message, fields = recordable_line(message, fields)
        self._recorder.add_line(assignment, self._lines, level, message, fields)
        number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
        extra = {"run": assignment.run, "path": assignment.path, "fields": fields, "trace": assignment.traceparent}
        # The fields stay together: among the record's own attributes a user's `name` would be refused.
        _task_log.log(number, "%s", message, extra=extra)


class RunRows:
    """The rows of a run's streams. What is written twice is the same: after an unknown commit it is written again."""

    def __init__(self, run: RunId, store: Store, slots: Mapping[RunId, Slot]) -> None:
        self._run = run
        self._store = store
        self._slots = slots

    async def read(self) -> list[tuple[bytes, bytes]]:
        return await self._store.stream_rows(self._run)

    async def write(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        if not rows:
            return
        for attempt in range(WRITES_TRIED):
            slot = self._slots.get(self._run)
            if slot is None or slot.is_gone:
                break
            batch = [Transition(self._run, slot.partition, 0, stream_rows=rows)]
            answer = self._store.commit_at_once(batch) or await self._store.commit(batch)
            if not isinstance(answer, Committed | Fenced | CommitUnknown):
                answer = await answer
            if isinstance(answer, Committed):
                return
            if isinstance(answer, Fenced):
                break
            _log.warning("the outcome of a commit of stream rows is unknown, writing again: %s", answer.error)
            await asyncio.sleep(0.05 * 2**attempt)
        raise Conflict("the run belongs to another process, or its store takes nothing", run=self._run)


_log = logging.getLogger("perdure.engine")

WRITES_TRIED = 5
MOST_LET_GO = 10_000  # runs of which it is remembered; what is forgotten makes suspects, and charges nobody
SPEAK_EVERY = 1.0  # seconds between tries to speak for a task, while the store is away


class TaskRecorder:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._store = context.store
        self._clock = context.clock
        self._tasks = context.tasks
        self._slots = context.slots
        self._scheduler = scheduler
        self._logs: TaskLogs | None = None  # until a task logs anything
        self.given_up: dict[RunId, set[tuple[int, int]]] = {}
        """Tasks, with their deliveries, that this process had to give up although it lives."""
        self._is_closed = False
        self._hashed = 0  # bytes of results that came in this round of the event loop
        self._hashed_together: list[tuple[Outcome, Callable[[Outcome, LargeValues], None]]] = []
        self.ask = scheduler.ask
        self.text = scheduler.text

    def port_for(self, assignment: Assignment) -> RunPort:
        return TaskPort(assignment, self)

    def rows_of(self, run: RunId) -> StreamRows:
        return RunRows(run, self._store, self._slots)

    def add_line(self, assignment: Assignment, number: int, level: str, text: str, fields: dict[str, Any]) -> None:
        if self._logs is None:
            from perdure.engine.tasks.task_log_writer import TaskLogs

            self._logs = TaskLogs(self._store, self._clock, self._tasks)
        self._logs.add(assignment, number, level, text, fields)

    async def write_logs(self) -> None:
        if self._logs is not None:
            await self._logs.write()

    def extract_in_thread(self, outcome: Outcome, then: Callable[[Outcome, LargeValues], None]) -> bool:
        """Take out large values in a thread, if that takes long: one is large, or many came together."""
        if not isinstance(outcome, Succeeded) or not isinstance(outcome.value, bytes):
            return False
        if not self._hashed:
            asyncio.get_running_loop().call_soon(self._begin_round)
        self._hashed += len(outcome.value)
        if takes_long(outcome):
            self._tasks.spawn(self._extract([(outcome, then)]))
        elif self._hashed > HASHED_IN_THREAD:
            self._hashed_together.append((outcome, then))
            if len(self._hashed_together) == 1:
                self._tasks.spawn(self._extract(self._hashed_together))
        else:
            return False
        return True

    def _begin_round(self) -> None:
        self._hashed = 0

    async def _extract(self, waiting: list[tuple[Outcome, Callable[[Outcome, LargeValues], None]]]) -> None:
        await asyncio.sleep(0)  # until all that came together are there
        if waiting is self._hashed_together:
            self._hashed_together = []
        extracted = await asyncio.to_thread(lambda: [extract_from_outcome(outcome) for outcome, _ in waiting])
        turns = ShortTurns()
        for (_, then), (outcome, values) in zip(waiting, extracted, strict=True):
            then(outcome, values)
            await turns.pause()

    def task_done(
        self,
        assignment: Assignment,
        outcome: Outcome,
        recorded: Callable[[], None] | None = None,
        values: LargeValues = (),
    ) -> None:
        outcome, more = extract_from_outcome(recordable(assignment, outcome))
        values += more
        if values:
            self._scheduler.dispatcher.has_large_result(assignment.run)
        result = i.TaskResult(assignment.task, assignment.attempt, assignment.delivery, outcome)
        reply = None if recorded is None else lambda answer: recorded()
        self._scheduler.offer(assignment.run, Mail(self._clock.now(), 0, result, None, 0, reply, values))

    def offer_result(self, assignment: Assignment, outcome: Outcome) -> None:
        if type(outcome) is Failed:
            outcome = recordable(assignment, outcome)
        result = i.TaskResult(assignment.task, assignment.attempt, assignment.delivery, outcome)
        self._scheduler.offer(assignment.run, Mail(self._clock.now(), 0, result))

    def unrecorded_bytes(self, run: RunId) -> int:
        slot = self._slots.get(run)
        if slot is None:
            return 0
        waiting = sum([len(text) for mail in slot.mailbox for _, text in mail.values])
        return waiting + sum([len(text) for text in slot.unsynced.values()])

    def task_lost(self, assignment: Assignment, loss: LossKind, reason: str | None = None) -> None:
        slot = self._slots.get(assignment.run)
        task = None if slot is None or slot.execution is None else slot.execution.state.tasks.get(assignment.task)
        if task is not None and task.laid_down:
            self._scheduler.offer(assignment.run, Mail(self._clock.now(), 0, i.TakeUp([assignment.task])))
        else:
            self._scheduler.offer(assignment.run, lost(assignment, self._clock.now(), loss, reason))

    def task_begins(self, assignment: Assignment, place: StartPlace, recorded: Callable[[bool], None]) -> None:
        begin = i.Begin(assignment.task, assignment.delivery, place, machine() if place is StartPlace.ALONE else "")
        self._scheduler.offer(
            assignment.run,
            Mail(self._clock.now(), 0, begin, reply=lambda answer: recorded(isinstance(answer, i.Accepted))),
        )

    def task_outlived(self, assignment: Assignment, recorded: Callable[[], None]) -> None:
        cleared = i.Clear(assignment.task, assignment.delivery, outlived=True)
        self._scheduler.offer(assignment.run, Mail(self._clock.now(), 0, cleared, reply=lambda answer: recorded()))

    def lose(self, run: RunId, at_work: list[Assignment], alone: Assignment | None) -> None:
        """The run is not ours any more, and its tasks are stopped: that is not their doing.

        The next owner may be another process, which cannot know that we live. If it is, and has charged the task that
        was alone here, that is taken back.
        """
        if at_work:
            if len(self.given_up) >= MOST_LET_GO:
                self.given_up.clear()
            self.given_up[run] = {(assignment.task, assignment.delivery) for assignment in at_work}
        if alone is not None:
            self._tasks.spawn(self._clear(alone))

    def close(self) -> None:
        """Nothing more is said."""
        self._is_closed = True

    async def _clear(self, assignment: Assignment) -> None:
        body = i.encode(i.Clear(assignment.task, assignment.delivery, outlived=False))
        while not self._is_closed:
            try:
                await self._store.send(Message(assignment.run, self._clock.now(), body))
                return
            except StoreError as error:
                _log.info(
                    "task %s of run %s cannot be cleared yet: %s",
                    assignment.task,
                    assignment.run,
                    error,
                    extra={"run": assignment.run},
                )
                await asyncio.sleep(SPEAK_EVERY)
