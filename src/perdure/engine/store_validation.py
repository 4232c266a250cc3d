"""Reading a whole store to see whether it holds together: every log folds, and all that is referred to is there.

One run after the other, in bounded memory, and from one moment of the store: engines may go on meanwhile.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

import perdure.stores.records as r
from perdure.engine.runs.run_documents import moves_in
from perdure.kernel import inputs
from perdure.kernel.codec import Turns, decode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import NewerRecord
from perdure.kernel.events import RunMigrated, RunStarted
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.values import Instant, Ref, RunId, digest
from perdure.kernel.outcomes import Status
from perdure.kernel.state import State
from perdure.kernel.versions import read_pinned
from perdure.stores.admin import OrphanRow, StoreSnapshot

PROGRAMS_KEPT = 64


class ReadCounts(msgspec.Struct):
    """How much was looked at."""

    runs: int = 0
    events: int = 0
    records: int = 0


class StoreValidator:
    def __init__(
        self,
        reading: StoreSnapshot,
        dialects: Mapping[str, Dialect],
        on_progress: Callable[[ReadCounts], None] = lambda read: None,
    ) -> None:
        self.read = ReadCounts()
        self._reading = reading
        self._dialects = dialects
        self._heard = on_progress
        self._program = lru_cache(PROGRAMS_KEPT)(self._loaded)
        self._runs: dict[RunId, r.RunRecord] = {}  # those whose values and logs come next
        self._values: dict[RunId, set[bytes]] = {}
        self._open: dict[RunId, tuple[frozenset[int], frozenset[int]]] = {}  # permits and leased tasks it knows of
        self._unmoved: set[RunId] = set()  # open runs that only a message could continue
        self._folding: _Fold | None = None

    def findings(self, most_strays: int = 1_000) -> Iterator[OrphanRow]:
        yield from self._reading.orphan_rows(most_strays)
        for batch in self._reading.dump():
            self.read.records += len(batch)
            for record in batch:
                check = _LOOKS.get(type(record))
                if check is not None:
                    yield from check(self, record)
            self._heard(self.read)
        yield from self._next_runs()
        for run in sorted(self._unmoved):
            yield OrphanRow(
                "runs",
                run,
                "it is open and can never continue: no message is on its way to it, and it waits for nothing",
            )

    def _loaded(self, name: bytes) -> Any:
        """The program, or why there is none."""
        pinned = self._reading.program(name)
        if pinned is None:
            return None
        dialect = self._dialects.get(pinned[0].partition("@")[0])
        return None if dialect is None else read_pinned(dialect, *pinned)

    def _document(self, record: r.ProgramRecord) -> Iterator[OrphanRow]:
        if digest(record.text) != record.digest:
            yield OrphanRow(
                "documents", None, f"document {record.digest.hex()[:12]} is not what it was when it was pinned"
            )

    def _run(self, record: r.RunRecord) -> Iterator[OrphanRow]:
        if self._folding is not None or len(self._runs) >= r.RUNS_AT_ONCE:
            yield from self._next_runs()
        self.read.runs += 1
        self._runs[record.id] = record

    def _next_runs(self) -> Iterator[OrphanRow]:
        """What belonged to the runs so far has come."""
        yield from self._folded()
        for run in self._runs:
            yield OrphanRow("runs", run, "it has no history at all")
        self._runs.clear()
        self._values.clear()

    def _value(self, record: r.ValueRecord) -> Iterator[OrphanRow]:
        self._values.setdefault(record.run, set()).add(record.digest)
        if digest(record.text) != record.digest:
            yield OrphanRow("large values", record.run, f"large value {record.digest.hex()[:12]} is not what it was")

    def _log(self, record: r.LogRecord) -> Iterator[OrphanRow]:
        if self._folding is None or self._folding.row.id != record.run:
            yield from self._folded()
            row = self._runs.pop(record.run)
            self._folding = _Fold(row, self._dialects.get(row.language), self._program)
        self._folding.take(record, self._values.get(record.run, set()))

    def _folded(self) -> Iterator[OrphanRow]:
        fold, self._folding = self._folding, None
        if fold is None:
            return
        self.read.events += fold.seq
        fold.finish()
        for message in fold.findings():
            yield OrphanRow("runs", fold.row.id, message)
        state = fold.state
        if state is not None and not state.status.is_final:
            permits = frozenset(state.permits)
            leased = frozenset(number for number, task in state.tasks.items() if task.pool)
            if permits or leased:
                self._open[fold.row.id] = (permits, leased)
            if not fold.waits_for_something:
                self._unmoved.add(fold.row.id)

    def _message(self, record: r.MessageRecord) -> Iterator[OrphanRow]:
        yield from self._next_runs()
        self._unmoved.discard(record.to)
        try:
            message = inputs.decode(record.body)
        except (msgspec.DecodeError, NewerRecord) as error:
            yield OrphanRow("letters", record.to, f"a message to it cannot be read: {error}")
            return
        if isinstance(message, inputs.Start) and self._reading.program(message.program) is None:
            yield OrphanRow("documents", record.to, "it is about to start, and its document is not there")

    def _permit(self, record: r.PermitRecord) -> Iterator[OrphanRow]:
        yield from self._next_runs()
        permits, _ = self._open.get(record.run, _NONE)
        if record.permit not in permits:
            yield OrphanRow(
                "permits", record.run, f"permit {record.permit} of {record.scope!r}, which it does not ask for"
            )

    def _task(self, record: r.TaskRecord) -> Iterator[OrphanRow]:
        yield from self._next_runs()
        _, tasks = self._open.get(record.run, _NONE)
        if record.task not in tasks and record.state != "answered":
            yield OrphanRow("tasks", record.run, f"task {record.task} in pool {record.pool!r}, which is not open")


_NONE: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())

_LOOKS: dict[type[r.Record], Callable[[StoreValidator, Any], Iterator[OrphanRow]]] = {
    r.ProgramRecord: StoreValidator._document,
    r.RunRecord: StoreValidator._run,
    r.ValueRecord: StoreValidator._value,
    r.LogRecord: StoreValidator._log,
    r.MessageRecord: StoreValidator._message,
    r.PermitRecord: StoreValidator._permit,
    r.TaskRecord: StoreValidator._task,
}


class _Fold:
    """One run, folded row by row as they come."""

    def __init__(self, row: r.RunRecord, dialect: Dialect | None, program: Callable[[bytes], Any]) -> None:
        self.row = row
        self.seq = 0
        self._dialect = dialect
        self._problems: list[str] = []
        self._execution: Execution | None = None
        self._program = program
        self._loaded: Any = None
        self._kept: Turns = []  # of a run whose first document is not the one it has
        if dialect is None:
            self._problems.append(f"it is written in {row.language!r}, which is not loaded here")
            return
        try:
            self._loaded = program(row.program)
            if self._loaded is not None:  # one that is not there is told of by the store
                self._execution = Execution(row.id, dialect, self._loaded)
        except Exception as error:
            self._problems.append(f"its document cannot be read any more: {type(error).__name__}: {error}")

    def take(self, record: r.LogRecord, values: set[bytes]) -> None:
        before, self.seq = self.seq, record.seq
        if self._dialect is None:
            return
        try:
            turns = decode_turns(self._dialect, record.body)
        except Exception as error:
            self._problems.append(f"events {before + 1} to {record.seq} cannot be read: {error}")
            self._execution = None
            return
        count = sum(len(events) for _, events in turns)
        if before + count != record.seq:
            self._problems.append(
                f"a gap: the row that ends with event {record.seq} has {count}, behind event {before}"
            )
            self._execution = None
        for name in _references(turns):
            if name not in values:
                self._problems.append(f"large value {name.hex()[:12]}, named up to event {record.seq}, is not there")
        if self._kept or moves_in(turns) or (before == 0 and _begins_otherwise(turns, self.row.program)):
            self._kept += turns
        elif self._execution is not None:
            try:
                self._execution.fold(turns)
            except Exception as error:
                self._problems.append(f"its log does not fold at event {record.seq}: {type(error).__name__}: {error}")
                self._execution = None

    def finish(self) -> None:
        """All of its rows have come: what was kept of a run that was moved is folded with its documents, in order."""
        turns, self._kept = self._kept, []
        if not turns or self._execution is None:
            return
        programs = [*map(self._program_before, moves_in(turns)), self._loaded]
        if None in programs:
            self._execution = None  # a large document of that time is beside the log: this reader does not keep it
            return
        if not self._execution.state.seq:
            self._execution = Execution(self.row.id, self._execution.dialect, programs[0])
        self._execution.later_programs = programs[1:]
        try:
            self._execution.fold(turns)
        except Exception as error:
            self._problems.append(f"its log does not fold: {type(error).__name__}: {error}")
            self._execution = None

    def _program_before(self, move: RunMigrated) -> Any:
        if isinstance(move.document, Ref) or self._dialect is None:
            return self._program(move.before)
        return read_pinned(self._dialect, move.language, move.document)

    @property
    def state(self) -> State | None:
        return None if self._execution is None else self._execution.state

    @property
    def waits_for_something(self) -> bool:
        """Whether anything but a message would continue the run; one that is stuck is tried again."""
        execution = self._execution
        if execution is None or self.row.stuck:
            return True
        state = execution.state
        has_open = state.pause or state.sliced or state.tasks or state.timers or state.children or state.permits
        return bool(has_open or execution.dialect.awaits(execution))

    def findings(self) -> Iterator[str]:
        yield from self._problems
        if self.state is not None:
            yield from _disagreements(self.row, self.state)


def _disagreements(row: r.RunRecord, state: State) -> Iterator[str]:
    """Where the row would mislead whoever does not read the log."""
    is_over = state.status.is_final
    if is_over != (row.ended_at is not None) or (is_over and Status(row.status) is not state.status):
        yield f"its row says {row.status}, its history {state.status.value}"
    elif not is_over:
        ends = (
            inputs.CONTROL_WAIT_RANK if state.pause is not None else None
        )  # a wait for a control message does not run out
        ranked = [timer for timer in state.timers.values() if timer.rank != inputs.CALENDAR_RANK]
        first = min((timer.due for timer in ranked if ends is None or timer.rank < ends), default=None)
        if state.has_local_work and not row.has_work:
            yield "it has open work, and no restart would continue it"
        elif not row.has_work and first is not None and (row.due is None or row.due > first):
            yield "it waits for a timer, and nothing would wake it in time"
        elif not row.has_work and row.on_wall != _on_wall(state):
            yield "it waits for an instant of the wall clock, and nothing would wake it in time"


def _on_wall(state: State) -> Instant | None:
    waits = [timer.due for timer in state.timers.values() if timer.rank == inputs.CALENDAR_RANK]
    return min(waits, default=None)


def _references(container: Any) -> Iterator[bytes]:
    """Digests of all large values that are named in there."""
    match container:
        case Ref(name, _):
            yield name
        case msgspec.Struct():
            for field in container.__struct_fields__:
                value = getattr(container, field)
                if isinstance(value, Ref | msgspec.Struct | list | tuple | dict):
                    yield from _references(value)
        case list() | tuple():
            for item in container:
                if not isinstance(item, int | str | bytes):
                    yield from _references(item)
        case dict():
            for item in container.values():
                yield from _references(item)
        case _:
            pass


def _begins_otherwise(turns: Turns, program: bytes) -> bool:
    """Whether a run was started with another document than the one it has."""
    first = turns[0][1][0] if turns and turns[0][1] else None
    return isinstance(first, RunStarted) and first.program != program
