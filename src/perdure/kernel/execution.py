"""One execution in memory: the kernel's state, the dialect's body, and the two functions over them.

    decide(turn)      takes an input up, emits events until the run needs the world      (once per input)
    apply(event)      the only thing that changes state and body                          (live and in a fold)

Recovery folds what was recorded; it never decides.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.ids import child_run, idempotency_key
from perdure.kernel.recording import record
from perdure.kernel.state import CHANGES, State
from perdure.kernel.turn import Needs, Stage, Turn
from perdure.kernel.values import Instant, RunId


class Limits(msgspec.Struct, frozen=True):
    slice: int = 1_000  # internal moves before others get their turn
    moves: int = 1_000_000  # internal moves without outside input before the run is ended


class BrokenPromise(RuntimeError):
    """A dialect emitted before it asked: its move cannot be made again."""


class Execution:
    __slots__ = ("_evolve", "body", "dialect", "id", "program", "state")

    def __init__(self, id: RunId, dialect: Dialect, program: Any) -> None:
        self.id = id
        self.dialect = dialect
        self.program = program
        self.state = State()
        self.body: Any = dialect.begin(program)
        self._evolve = dialect.evolve

    def apply(self, event: e.Event) -> None:
        state = self.state
        state.seq += 1
        change = CHANGES.get(type(event))
        if change is not None:
            change(state, event)
        self._evolve(self.body, event)

    def fold(self, turns: Iterable[tuple[Instant, list[e.Event]]]) -> None:
        for at, events in turns:
            self.state.at = at
            for event in events:
                self.apply(event)

    def child_id(self, child: int) -> RunId:
        return child_run(self.id, child)

    def idempotency_key(self, path: str) -> str:
        return idempotency_key(self.id, self.state.incarnation, path)


def decide(turn: Turn, limits: Limits) -> Needs | None:
    """Run the turn to its end, or until it needs a value; then call again with `turn.texts` filled."""
    dialect = turn.execution.dialect
    state = turn.state
    mark = len(turn.events)
    try:
        if turn.stage < Stage.RECORDED:
            record(turn)
            if turn.changes_nothing:
                return None
            turn.stage = Stage.RECORDED
            mark = len(turn.events)
        if turn.stage < Stage.ACCEPTED:
            dialect.accept(turn, turn.given)
            turn.stage = Stage.ACCEPTED
        if turn.stage < Stage.DONE:
            budget = limits.slice
            while turn.moves < budget:
                mark = len(turn.events)
                if state.outcome is not None or not dialect.advance(turn):
                    break
                turn.moves += 1
            turn.stage = Stage.DONE
    except Needs as needs:
        if len(turn.events) != mark:
            raise BrokenPromise(f"{dialect.name}: asked for a value after emitting in the same move") from needs
        return needs
    _account(turn, limits)
    return None


def _account(turn: Turn, limits: Limits) -> None:
    """Keep count of moves made without the world, so that no document can spin the engine."""
    state = turn.state
    if state.outcome is not None:
        return
    before = state.moves if isinstance(turn.given, i.Proceed) else 0
    total = before + turn.moves
    if turn.moves < limits.slice:
        if state.sliced:
            turn.emit(e.Sliced(total, False))
    elif total < limits.moves:
        turn.emit(e.Sliced(total, True))
    else:
        turn.execution.dialect.exhausted(turn)
        if not state.status.is_final:
            turn.emit(e.Sliced(0, True))
