"""One execution in memory: the kernel's state, the dialect's body, and the two functions over them.

    decide(turn)      takes an input, emits events until the run needs something outside (once per input)
    apply(event)      the only thing that changes state and body                          (live and in a fold)

Recovery folds what was recorded; it never decides.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.ids import DEFAULT_NAMESPACE, child_run, idempotency_key
from perdure.kernel.input_recording import record
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_values import MOST_KEPT, ValuesTooLarge
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.state import State
from perdure.kernel.state_changes import event_changes
from perdure.kernel.tasks.assignments import Assignment
from perdure.kernel.trace_context import traceparent_of_task
from perdure.kernel.turn import MissingValues, Stage, Turn
from perdure.kernel.turn_budget import current


class Limits(msgspec.Struct, frozen=True):
    slice: int = 1_000  # internal moves before others get their turn
    work: int = 10_000_000  # counted work (`turn_budget`) before others get their turn
    moves: int = 1_000_000  # internal moves without outside input before the run is ended
    moves_per_element: int = 20  # added to those for each element of a Gather, a loop, a map
    elements: int = 500_000  # only this many add moves, so that a run that enumerates for ever ends too
    caught: int = 10_000  # failures caught without outside input before the run is ended


# Every step asks for these: a global name is found ten times as fast as a member of an enumeration.
_FRESH, _RECORDED, _ACCEPTED = Stage.FRESH, Stage.RECORDED, Stage.ACCEPTED

COUNTED_SINCE = 3
"""The record version that has `WorkCounted`."""


class RunWasMoved(Exception):
    """The log has a move to another document: it is folded with the programs of its documents, in their order."""


class MoveNotRepeatable(RuntimeError):
    """A dialect emitted before it asked: its move cannot be made again."""


class Execution:
    __slots__ = (
        "body",
        "changes",
        "dialect",
        "document_namespace",
        "id",
        "later_programs",
        "program",
        "secret_names",
        "state",
        "stream_rows",
    )

    def __init__(self, id: RunId, dialect: Dialect, program: Any) -> None:
        self.id = id
        self.dialect = dialect
        self.program = program
        self.state = State()
        self.body: Any = dialect.begin(program)
        self.later_programs: list[Any] = []  # of a run that was moved: one for each move that is folded
        self.secret_names = dialect.secret_names(program)
        self.document_namespace = dialect.namespace_of(program)  # empty if the language does not say so
        self.changes = event_changes(dialect.evolve)
        self.stream_rows: list[tuple[bytes, bytes]] = []  # numbers of its streams, for whoever shows it

    @property
    def namespace(self) -> str:
        """Where the run belongs, for its whole life."""
        return self.state.namespace or self.namespace_before(self.state.options)

    def namespace_before(self, options: bytes) -> str:
        """Of a run that was started before this was recorded: its language knew, or it is the default one."""
        return jsontext.decode(options).get("namespace") or self.document_namespace or DEFAULT_NAMESPACE

    def apply(self, event: e.Event) -> None:
        state = self.state
        state.seq += 1
        changes = self.changes
        in_state, in_body = changes[type(event)]
        if in_state is not None:
            in_state(state, event)
        if changes.counts:
            self.body.seq += 1
        if in_body is not None:
            in_body(self.body, event)
        if type(event) is e.RunMigrated:
            if not self.later_programs:
                raise RunWasMoved(f"run {self.id} was moved to another document")
            self.take_program(self.later_programs.pop(0), event.mapping)

    def take_program(self, program: Any, mapping: Mapping[str, str]) -> None:
        """From here on the run goes on with this one."""
        self.body = self.dialect.moved(self.body, program, mapping)
        self.program = program
        self.secret_names = self.dialect.secret_names(program)
        self.document_namespace = self.dialect.namespace_of(program)

    def fold(self, turns: Iterable[tuple[Instant, list[e.Event]]]) -> None:
        for at, events in turns:
            self.state.at = at
            for event in events:
                self.apply(event)

    def child_id(self, child: int) -> RunId:
        return child_run(self.id, child)

    def idempotency_key(self, path: str) -> str:
        state = self.state
        if state.incarnation == 1 and not state.doubts:
            return f"{self.id}/{path}"  # as below: nearly always
        return idempotency_key(self.id, state.doubts.get(path, state.incarnation), path)

    def assignment(self, number: int, arguments: bytes, input: bytes) -> Assignment:
        """One delivery of an open task, for whoever does it."""
        state = self.state
        task = state.tasks[number]
        return Assignment(
            self.id,
            number,
            task.path,
            task.provider,
            arguments,
            input,
            task.attempt,
            task.delivery,
            self.idempotency_key(task.key or task.path),
            task.deadline,
            task.hold_effects_in_doubt,
            task.sealed,
            self.dialect.name,
            task.suspicion,
            task.losses,
            False,  # not apart: that is for the dispatcher to say
            self.secret_names,
            state.namespace or self.namespace,
            self.document_namespace,
            state.from_api,
            traceparent_of_task(self.id, state.labels, number) if state.labels else "",
        )


def decide(turn: Turn, limits: Limits, is_held: bool = False, owes_moves: bool = False) -> MissingValues | None:
    """Run the turn to its end, or until it needs a value; then call again with `turn.texts` filled.

    `is_held`: the input is accepted but no move is made yet, because control messages that wait with it come first.
    `owes_moves`: the input before it was held, so moves are made even if this one changes nothing.
    """
    dialect, state, events = turn.execution.dialect, turn.state, turn.events
    stage, moves, mark = turn.stage, turn.moves, len(events)
    try:
        if stage is _FRESH:
            record(turn)
            stage = _RECORDED
            mark = len(events)
        if turn.changes_nothing and not owes_moves:
            return None
        if stage is _RECORDED:
            if not turn.changes_nothing:
                dialect.accept(turn, turn.input)
            stage = _ACCEPTED
        if is_held or (state.pause is not None and state.pause.holds):
            return None
        advance = dialect.advance
        may_catch, most_work = limits.caught, limits.work
        if state.caught and isinstance(turn.input, i.Proceed):
            may_catch -= state.caught
        work = current.get()
        if work is not None and work.left < most_work:
            work = None  # what is left ends the turn before the slice does
        least = work.left - most_work if work is not None else 0
        most, is_cut = limits.slice, True  # other runs get their turn before it has made all its moves
        while moves < most and turn.caught < may_catch:
            mark = len(events)
            if state.outcome is not None or not advance(turn):
                is_cut = False
                break
            moves += 1
            if (work is not None and work.left <= least) or turn.kept_bytes > MOST_KEPT:
                break
    except MissingValues as needs:
        if len(events) != mark:
            raise MoveNotRepeatable(f"{dialect.name}: asked for a value after emitting in the same move") from needs
        turn.stage, turn.moves = stage, moves
        return needs
    except ValuesTooLarge as refusal:
        turn.stage, turn.moves = _ACCEPTED, moves
        _exhaust(turn, "bytes", refusal.size)
        return None
    turn.moves = moves
    if state.outcome is None and (is_cut or turn.caught or state.sliced):
        _account(turn, limits, is_cut)
    return None


def _account(turn: Turn, limits: Limits, is_cut: bool) -> None:
    """Count what was done without outside input, so that no document can keep the engine busy for ever."""
    state = turn.state
    moves, enumerated, caught = turn.moves, turn.enumerated, turn.caught
    if isinstance(turn.input, i.Proceed):
        moves, enumerated, caught = state.moves + moves, state.enumerated + enumerated, state.caught + caught
    most = limits.moves + limits.moves_per_element * min(enumerated, limits.elements)
    if caught >= limits.caught:
        _exhaust(turn, "failures", caught)
    elif not is_cut:
        if state.sliced:
            _slice(turn, moves, enumerated, caught, more=False)
    elif moves < most:
        _slice(turn, moves, enumerated, caught, more=True)
    else:
        _exhaust(turn, "moves", moves)


def _exhaust(turn: Turn, reason: str, count: int) -> None:
    turn.execution.dialect.exhausted(turn, reason, count)
    if not turn.state.status.is_final:
        _slice(turn, 0, 0, 0, more=True)


def _slice(turn: Turn, moves: int, enumerated: int, caught: int, *, more: bool) -> None:
    """The other counts are recorded once every live server reads them (invariant 24), and only if they changed."""
    state = turn.state
    if (enumerated, caught) != (state.enumerated, state.caught) and turn.record_version >= COUNTED_SINCE:
        turn.emit(e.WorkCounted(enumerated, caught))
    turn.emit(e.Sliced(moves, more))
