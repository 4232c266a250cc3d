"""What the events of a run tell of it: its steps, its trace, its tasks, the numbers and times of its history.

All of them are found out in one reading of the log, which goes on where it was when the run has grown. The indexes of
long runs that were looked at last are kept, so that a page with several views of a run reads its events once.
"""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

import msgspec

from perdure.engine.decision_threads import done_aside
from perdure.engine.runs import run_views
from perdure.engine.runs.run_documents import FormerDocument, compiled_former, moves_in, read_former
from perdure.kernel.codec import decode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.events import Event, RunEnded, RunMigrated, TaskEnded, TaskRedelivered, TaskScheduled
from perdure.kernel.execution import RunWasMoved
from perdure.kernel.graphs.run_trace import RunTracer, Trace
from perdure.kernel.graphs.step_overview import StepReader
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Failed, Succeeded
from perdure.stores.protocol import RunRow, Store

if TYPE_CHECKING:
    from perdure.kernel.execution import Execution
    from perdure.kernel.graphs.step_overview import StepOverview

ROWS_AT_ONCE = 2_000  # of a log
WORTH_KEEPING = 300  # events of a log; fewer are read again
MOST_KEPT = 16
MOST_EVENTS = 500_000  # of the histories of those that are kept, beside the latest

R = TypeVar("R")
Rows = Sequence[tuple[int, bytes]]


class IndexedTask(msgspec.Struct, gc=False):
    """A task of the run: numbers of events in its log, and what became of it."""

    task: int
    path: str
    scheduled: int
    ended: int = 0  # 0: it is open
    status: str = "open"
    delivery: int = 1


class RunIndex:
    """Up to some event of the log. It is read and asked in one thread at a time."""

    def __init__(
        self, run: tuple[RunId, Instant], dialect: Dialect, document: bytes, program: Any, later: Sequence[Any] = ()
    ) -> None:
        """`document` is the one that the run has; `later` are programs of a run that was moved, one for each move."""
        self.run = run
        self.document = document
        self.is_moved = bool(later)
        self._later = list(later)
        self.recorded = 0  # the number of the last event of the log that was read
        self.numbers = array("I")  # of the event of the log behind each event of the history
        self.times = array("q")  # of each event of the history
        self.started_at: Instant = 0
        self.at: Instant = 0  # when the last event was recorded
        self.end = 0  # the number of the event in the history with which the run has ended
        self.tasks: dict[int, IndexedTask] = {}
        self._dialect, self.program = dialect, program
        self._steps: StepReader | None = None
        self._tracer: RunTracer | None = None

    @property
    def last(self) -> int:
        """The number of the last event of the history."""
        return len(self.numbers)

    @property
    def trace(self) -> Trace:
        assert self._tracer is not None, "asked of languages that draw graphs"
        return self._tracer.trace

    def steps(self, execution: "Execution") -> "list[StepOverview]":
        return [] if self._steps is None else self._steps.steps(execution)

    def can_reach(self, at: int | None) -> bool:
        """Whether it has read nothing behind that event of the history."""
        return at is None or at > self.last or self.numbers[at - 1] == self.recorded

    def read(self, rows: Rows, until: int | None) -> None:
        """Go on, up to that event of the history."""
        if self._steps is None:
            self._steps = self._dialect.step_reader(self.run[0], self.program) or StepReader()
            self._tracer = self._dialect.tracer(self.program) if self._dialect.draws_graphs else None
        for last, row in rows:
            turns = decode_turns(self._dialect, row)
            number = last - sum(len(events) for _, events in turns)
            for at, events in turns:
                turn = number + 1
                for event in events:
                    number += 1
                    if until is not None and self.last >= until:
                        return
                    if number > self.recorded:
                        self._take(turn, at, event, number)

    def _take(self, turn: int, at: Instant, event: Event, number: int) -> None:
        assert self._steps is not None, "made before the first event"
        self.recorded, self.at = number, at
        self.started_at = self.started_at or at
        self._steps.take(turn, at, event)
        if self._tracer is not None:
            self._tracer.take(at, event)
        for _ in range(self._steps.seq - len(self.numbers)):
            self.numbers.append(number)
            self.times.append(at)
        match event:
            case RunEnded():
                self.end = self.last
            case RunMigrated():
                self._move(event)
            case TaskScheduled():
                self.tasks[event.task] = IndexedTask(event.task, event.path, number)
            case TaskRedelivered() if event.task in self.tasks:
                self.tasks[event.task].delivery = event.delivery
            case TaskEnded() if event.task in self.tasks:
                task = self.tasks[event.task]
                match event.outcome:
                    case Succeeded():
                        task.status = "done"
                    case Failed():
                        task.status = "failed"
                    case _:
                        task.status = "cancelled"
                task.ended = number
            case _:
                pass

    def _move(self, event: RunMigrated) -> None:
        if not self._later:
            raise RunWasMoved(f"run {self.run[0]} was moved to another document")
        self.program = self._later.pop(0)
        if self._steps is not None:
            self._steps.take_program(self.program)
        if self._tracer is not None:
            self._tracer.take_program(self.program, event.mapping)


class RunIndexes:
    """Those of a store's runs."""

    def __init__(self, store: Store) -> None:
        self._store = ref(store)  # they are kept as long as the store is
        self._kept: OrderedDict[int, RunIndex] = OrderedDict()  # by number, the one that was used last at the end
        self._number = 0
        self._locks: WeakValueDictionary[RunId, asyncio.Lock] = WeakValueDictionary()
        self.events_read = 0  # of logs, for whoever counts work

    async def read(
        self, dialect: Dialect, program: Any, row: RunRow, at: int | None, work: Callable[[RunIndex], R]
    ) -> R:
        """What the work gives for the run as it is, or was after event `at` of its history. One at a time for a run:
        those who ask meanwhile have nothing to read.
        """
        store = self._store()
        assert store is not None, "whoever reads has it"
        lock = self._locks.setdefault(row.id, asyncio.Lock())
        async with lock:
            former = await _former_documents(store, dialect, program, row) if at is not None else []
            try:
                index = await self._read(store, dialect, program, row, at, former)
            except Exception:  # events of a former document may not fit the one that the run has
                former = former or await read_former(
                    store, row.id, moves_in(await run_views.turns(store, dialect, row.id))
                )
                if not former:
                    raise
                index = await self._read(store, dialect, program, row, at, former)
            try:
                if at is not None and not 0 < at <= index.last:
                    run_views.no_event(at, index.last)
                return await run_views.told_aside(index.last, partial(work, index))
            finally:
                self._keep(index)

    async def _read(
        self,
        store: Store,
        dialect: Dialect,
        program: Any,
        row: RunRow,
        at: int | None,
        former: Sequence[FormerDocument],
    ) -> RunIndex:
        index = self._take(dialect, program, row, at, former)
        before = index.recorded
        while at is None or index.last < at:
            rows = await store.history(row.id, index.recorded, ROWS_AT_ONCE)
            if rows:
                await done_aside(run_views.bytes_of(rows), partial(index.read, rows, at))
            if len(rows) < ROWS_AT_ONCE:
                break
        self.events_read += index.recorded - before
        return index

    def _take(
        self, dialect: Dialect, program: Any, row: RunRow, at: int | None, former: Sequence[FormerDocument]
    ) -> RunIndex:
        run = (row.id, row.created_at)
        fitting = [
            (kept.recorded, number)
            for number, kept in self._kept.items()
            if kept.run == run and kept.document == row.program and kept.is_moved >= bool(former) and kept.can_reach(at)
        ]
        if fitting:
            return self._kept.pop(max(fitting)[1])
        first, *later = [*(compiled_former(dialect, document) for document in former), program]
        return RunIndex(run, dialect, row.program, first, later)

    def _keep(self, index: RunIndex) -> None:
        if index.recorded < WORTH_KEEPING:
            return
        self._number += 1
        self._kept[self._number] = index
        while len(self._kept) > 1 and (
            len(self._kept) > MOST_KEPT or sum(kept.last for kept in self._kept.values()) > MOST_EVENTS
        ):
            self._kept.popitem(last=False)


async def _former_documents(store: Store, dialect: Dialect, program: Any, row: RunRow) -> list[FormerDocument]:
    """Of a run that was moved, for whoever looks at its past."""
    stored = await run_views.stored_run(store, row.id)
    execution = await run_views.fold_stored(store, stored, dialect, program)
    if not execution.state.moves_made:
        return []
    return await read_former(store, row.id, moves_in(await run_views.turns(store, dialect, row.id)))


_indexes: WeakKeyDictionary[Store, RunIndexes] = WeakKeyDictionary()


def indexes_of(store: Store) -> RunIndexes:
    """Those that all clients of the store share."""
    if store not in _indexes:
        _indexes[store] = RunIndexes(store)
    return _indexes[store]


async def read_index(
    store: Store, dialects: Mapping[str, Dialect], row: RunRow, work: Callable[[RunIndex], R], at: int | None = None
) -> R:
    with run_views.naming(row.id):
        dialect = run_views.dialect_of(dialects, row.language)
        program = await run_views.program_of(store, dialect, row)
        return await indexes_of(store).read(dialect, program, row, at, work)
