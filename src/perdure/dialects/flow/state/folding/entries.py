"""Middleware entries: established, run again, left; and the bounds they set."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.flow.run.interruption import set_rising_cancellation
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import GAP, Body, Frame, MiddlewareScope, ScopePosition
from perdure.dialects.flow.state.folding.checkpoints import keep
from perdure.dialects.flow.state.folding.variables import bind, cells_of, optional_cell, restore_variables
from perdure.dialects.flow.state.values import NOTHING, Cell, Result
from perdure.kernel import events as e


def top_entry(frame: Frame) -> MiddlewareScope:
    top = frame.stack[-1]
    assert isinstance(top, MiddlewareScope)
    return top


def _entry_opened(body: Body, event: f.EntryOpened) -> None:
    frame = body.frames[event.frame]
    output = frame.value if event.output is None else body.cell(frame, event.output)
    entry = MiddlewareScope(event.entry, event.at, frame.value, output)
    content = output if event.content is None else body.cell(frame, event.content)
    if event.emits and not event.ok:
        keep(frame)
    bind(frame, cells_of(body, frame, event.bound))
    entry.config = optional_cell(event.config)
    entry.memory = optional_cell(event.memory)
    entry.metadata = optional_cell(event.metadata) or NOTHING
    entry.explanation = optional_cell(event.explanation)
    program = body.program.entries.get(event.entry)  # none in a fork whose document no longer has it
    entry.restores = program is not None and program.provider.restores
    frame.stack.append(entry)
    frame.value = output
    if event.timer:
        entry.timer = event.timer
        body.bounds[event.timer] = (event.frame, len(frame.stack) - 1)
    if event.emits:
        entry.position = ScopePosition.LEAVING
        entry.pending = Result(event.ok, content)
        frame.rising = entry.pending


def _entry_refused(body: Body, event: f.EntryRefused) -> None:
    frame = body.frames[event.frame]
    keep(frame)
    frame.rising = Result(False, body.cell(frame, event.failure))


def _phase_ran(body: Body, event: f.PhaseRan) -> None:
    frame = body.frames[event.frame]
    entry = top_entry(frame)
    if not event.ok:
        keep(frame)
    entry.at = event.at
    if event.content is not None:
        frame.rising = Result(event.ok, body.cell(frame, event.content))
        if event.ok:
            frame.checkpoint = None
    entry.pending = frame.rising
    entry.position = ScopePosition.LEAVING
    bind(frame, cells_of(body, frame, event.bound))


def _remember(frame: Frame, entry: MiddlewareScope, event: f.GapBegan | f.RunAgain) -> None:
    frame.checkpoint = None
    entry.at = event.at
    if event.memory is not None:
        entry.memory = Cell(event.memory)
    if event.metadata is not None:
        entry.metadata = Cell(event.metadata)


def _gap_began(body: Body, event: f.GapBegan) -> None:
    frame = body.frames[event.frame]
    entry = top_entry(frame)
    _remember(frame, entry, event)
    entry.bound = cells_of(body, frame, event.bound)
    entry.restore_next = event.restore
    entry.position = ScopePosition.WAITING
    frame.rising = None
    entry.timer = event.timer
    entry.woken = False
    body.waits[event.timer] = (event.frame, GAP)
    body.dequeue(event.frame)


def _run_again(body: Body, event: f.RunAgain) -> None:
    frame = body.frames[event.frame]
    entry = top_entry(frame)
    _remember(frame, entry, event)
    cells = cells_of(body, frame, event.bound)
    if event.input is None:
        value = entry.output
    else:
        value = body.cell(frame, event.input)
        entry.rounds += 1
    _go_inside(frame, entry, value, cells, event.restore)


def _gap_ended(body: Body, event: f.GapEnded) -> None:
    frame = body.frames[event.frame]
    entry = top_entry(frame)
    cells, entry.bound, entry.timer = entry.bound, {}, 0
    _go_inside(frame, entry, entry.output, cells, entry.restore_next)


def _go_inside(frame: Frame, entry: MiddlewareScope, value: Cell, cells: dict[str, Cell], restore: bool) -> None:
    if restore:
        restore_variables(frame, entry)
    bind(frame, cells)
    entry.position = ScopePosition.INSIDE
    frame.value = value
    frame.rising = None
    if frame.step is None:  # the graph runs from its entrypoint again (MWL-411)
        frame.failure = None
        frame.passes = 0


def _cleanup_began(body: Body, event: f.CleanupBegan) -> None:
    frame = body.frames[event.frame]
    entry = top_entry(frame)
    entry.at = event.at
    entry.position = ScopePosition.CLEANING
    entry.pending = frame.rising
    frame.rising = None
    frame.value = entry.input


def _entry_left(body: Body, event: f.EntryLeft) -> None:
    frame = body.frames[event.frame]
    entry = top_entry(frame)
    if event.failure is not None:
        keep(frame)
        entry.pending = Result(False, body.cell(frame, event.failure))
    elif entry.position is not ScopePosition.CLEANING:
        entry.pending = frame.rising
    cells = cells_of(body, frame, event.bound)
    frame.stack.pop()
    bind(frame, cells)
    frame.rising = entry.pending


def _bound_reached(body: Body, event: f.BoundReached) -> None:
    frame = body.frames[event.frame]
    owner = frame.stack[event.depth]
    assert isinstance(owner, MiddlewareScope)
    keep(frame)
    imposed = Cell(event.imposed)
    if set_rising_cancellation(frame, event.depth, imposed):
        body.enqueue(event.frame)
    owner.fired = imposed
    owner.timer = 0


def _bound_converted(body: Body, event: f.BoundConverted) -> None:
    frame = body.frames[event.frame]
    entry = top_entry(frame)
    frame.rising = entry.pending = Result(False, body.cell(frame, event.content))
    entry.position = ScopePosition.LEAVING


CHANGES: dict[type[e.Event], Callable[[Body, Any], None]] = {
    f.EntryOpened: _entry_opened,
    f.EntryRefused: _entry_refused,
    f.PhaseRan: _phase_ran,
    f.GapBegan: _gap_began,
    f.RunAgain: _run_again,
    f.GapEnded: _gap_ended,
    f.CleanupBegan: _cleanup_began,
    f.EntryLeft: _entry_left,
    f.BoundReached: _bound_reached,
    f.BoundConverted: _bound_converted,
}
