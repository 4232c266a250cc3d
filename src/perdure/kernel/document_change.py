"""Moving an open run to another document: what keeps it from that, and the event with which it goes on.

    Migrate ─▶ obstacles? ─┬▶ none: RunMigrated, and the body of the run fits the new program
                           └▶ some: refused, and nothing has changed

The run decides itself, at the place where it is then. A log folds against its programs in order: each event was decided
with the document that the run had, and `RunMigrated` holds the text of that one. A move is undone by a move back, under
the same rules: the run must not have done anything that the former document does not know.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.control_messages import name_sender
from perdure.kernel.dialect import Obstacle
from perdure.kernel.instants import format_instant
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import digest
from perdure.kernel.state import migration
from perdure.kernel.turn_budget import pay
from perdure.kernel.versions import read_pinned

if TYPE_CHECKING:
    from perdure.kernel.execution import Execution
    from perdure.kernel.turn import Turn

MIGRATES_SINCE = 10
"""The record version that has `RunMigrated`."""

WORK_OF_BYTE = 100  # to compile it, in units of `turn_budget`

FORGOTTEN = ""
"""Instead of a step of the new document: what is known of the old one is dropped."""


class DocumentChange(msgspec.Struct, frozen=True, gc=False):
    """A run is to go on with `program` in place of the one it has."""

    before: bytes  # text of the document that the run has
    document: bytes  # text of the new one
    program: Any
    mapping: Mapping[str, str]  # step it has: step of the new document, where those differ
    undoes: bool = False

    def name(self, step: str) -> str:
        """The step in the new document."""
        return self.mapping.get(step, step)


def is_done(execution: "Execution", input: i.Migrate) -> bool:
    """Whether the run has that document already: the same was asked for before."""
    return execution.state.program == digest(input.document)


def why_refused(execution: "Execution", input: i.Migrate) -> str | None:
    """None where the run would be moved, or was moved before."""
    return None if is_done(execution, input) else _plan_change(execution, input)[1]


def record(turn: "Turn", input: i.Migrate) -> None:
    """The run is moved, or its sender is told why not."""
    execution = turn.execution
    if turn.record_version < MIGRATES_SINCE:
        turn.refuse("a live server of an older version cannot read a move; upgrade every server first")
        return
    if is_done(execution, input):
        turn.changes_nothing = True
        return
    move, reason = _plan_change(execution, input)
    if move is None or reason is not None:
        turn.refuse(reason or "", conflict=True)
        return
    name_sender(turn, input)
    program = digest(input.document)
    kept = turn.keep(input.before_document)
    turn.emit(
        e.RunMigrated(
            program,
            input.before,
            input.before_language,
            kept,
            input.mapping,
            input.undoes,
            input.key,
            input.by,
            input.from_api,
        )
    )
    execution.take_program(move.program, input.mapping)
    turn.program, turn.body = execution.program, execution.body
    turn.brings_more, turn.programs = True, {**turn.programs, program: (input.language, input.document)}
    turn.input = i.Wake()  # the language has nothing to react to: it makes its moves


def _plan_change(execution: "Execution", input: i.Migrate) -> tuple[DocumentChange | None, str | None]:
    state = execution.state
    if state.status.is_final:
        ended = format_instant(state.ended_at or state.at)
        return None, f"the run has already {state.status.done} (at {ended})"
    used = state.keys.get(input.key) if input.key else None
    if used not in (None, migration(digest(input.document), input.mapping, input.undoes)):
        return None, f"the key {input.key!r} was used before for something else; use another one"
    if state.program != input.before or digest(input.before_document) != input.before:
        return None, f"it has another document now: {state.program.hex()[:12]}, not {input.before.hex()[:12]}"
    if input.undoes and (reason := _why_not_undone(execution, digest(input.document))):
        return None, reason
    pay(len(input.document) * WORK_OF_BYTE)
    program = read_pinned(execution.dialect, input.language, input.document)
    move = DocumentChange(input.before_document, input.document, program, input.mapping, input.undoes)
    return move, describe(obstacles(execution, move))


def _why_not_undone(execution: "Execution", program: bytes) -> str | None:
    moves = execution.state.documents_before
    if not moves:
        return "it was not moved to another document, or that was undone"
    if moves[-1].program != program:
        return f"its last move was from document {moves[-1].program.hex()[:12]}, not from {program.hex()[:12]}"
    forgotten = [step for step, name in moves[-1].mapping.items() if name == FORGOTTEN]
    return f"the move has forgotten {', '.join(map(repr, forgotten))}" if forgotten else None


def describe(obstacle_list: Iterable[Obstacle]) -> str | None:
    """As one phrase; None where there is nothing."""
    phrases = [
        f"{obstacle.place}: {obstacle.reason}" if obstacle.place else obstacle.reason for obstacle in obstacle_list
    ]
    return "; ".join(phrases) or None


def obstacles(execution: "Execution", move: DocumentChange) -> list[Obstacle]:
    """Of an open run, by the rules of all languages and by those of its own."""
    state, dialect = execution.state, execution.dialect
    if state.status.is_final:
        return [Obstacle("", f"the run has {state.status.done}")]
    if state.cancel_requested or state.disowned:
        return [Obstacle("", "it is being cancelled")]
    if dialect.namespace_of(move.program) not in ("", dialect.namespace_of(execution.program)):
        return [Obstacle("", "the new document belongs to another namespace")]
    obstacle_list = []
    if any(task.sealed for task in state.tasks.values()):
        obstacle_list.append(
            Obstacle("", "a task with secrets is under way, and reads the document it was started from")
        )
    if isinstance(state.input, bytes) and (reason := dialect.why_unfit(move.program, jsontext.decode(state.input))):
        obstacle_list.append(Obstacle("", f"its input does not fit the new document: {reason}"))
    return [*obstacle_list, *dialect.obstacles(execution, move)]
