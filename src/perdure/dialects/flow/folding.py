"""How events change the state of a Flow. Total, dull, constant time; nothing is evaluated here."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.flow import events as f
from perdure.dialects.flow.body import (
    GAP,
    SINGLE,
    SLEEP,
    Body,
    Call,
    Entry,
    Fan,
    Frame,
    Kind,
    Landed,
    Position,
    Step,
    Window,
    find_call,
)
from perdure.dialects.flow.interruption import BOTTOM, put_in_flight
from perdure.dialects.flow.values import NOTHING, Cell, Result, Vars
from perdure.kernel import events as e
from perdure.kernel.values import Instant, Payload


def evolve(body: Body, event: e.Event) -> None:
    change = CHANGES.get(type(event))
    if change is not None:
        change(body, event)


# Variables.


def _cells(body: Body, frame: Frame, bound: f.Bindings) -> dict[str, Cell]:
    """All looked up before any is bound: a block reads the state from before itself (MWL-181)."""
    return {name: body.cell(frame, carried) for name, carried in bound.items()}


def _bind(frame: Frame, cells: dict[str, Cell]) -> None:
    for name, cell in cells.items():
        for scope in frame.stack:
            if isinstance(scope, Entry) and scope.restores:
                scope.undo.setdefault(name, frame.vars.cells.get(name))
        frame.vars.bind(name, cell)


def _restore(frame: Frame, entry: Entry) -> None:
    for name, cell in entry.undo.items():
        frame.vars.bind(name, cell)
    entry.undo = {}


# Frames.


def _run_started(body: Body, event: e.RunStarted) -> None:
    body.input = Cell(event.input)


def _frame_opened(body: Body, event: f.FrameOpened) -> None:
    depth, given = 0, body.input
    if event.owner >= 0:
        owner = body.frames[event.owner]
        call = find_call(owner, event.index)
        assert call.given is not None or call.received is not None
        given = call.given or call.received or NOTHING
        depth = owner.depth + len(owner.stack)
    cells = {name: Cell(payload) for name, payload in event.bound.items()}
    frame = Frame(event.flow, event.path, event.owner, event.index, depth, event.at, given, Vars(cells), given)
    if event.failure is not None:
        frame.rising = Result(False, Cell(event.failure))
    body.frames[event.frame] = frame
    body.opened = event.frame
    body.wake(event.frame)


def _frame_closed(body: Body, event: f.FrameClosed) -> None:
    frame = body.frames.pop(event.frame)
    body.rest(event.frame)
    assert frame.rising is not None
    if frame.owner < 0:
        body.result = frame.rising
        return
    owner = body.frames[frame.owner]
    call = find_call(owner, frame.index)
    call.window = Window(frame.input, frame.vars, frame.at, event.at)
    _settle(body, frame.owner, owner, call, frame.rising, event.at)


def _frame_interrupted(body: Body, event: f.FrameInterrupted) -> None:
    frame = body.frames[event.frame]
    imposed = Cell(event.imposed)
    if put_in_flight(frame, BOTTOM, imposed):
        body.wake(event.frame)
    frame.interrupted = imposed


# Steps.


def _enter(body: Body, frame: Frame, name: str, at: Instant, number: int) -> None:
    frame.stack.append(Step(name, number, frame.passes, at, frame.value))
    frame.passes += 1
    body.steps = number


def _step_entered(body: Body, event: f.StepEntered) -> None:
    _enter(body, body.frames[event.frame], event.name, event.at, event.number)


def _top_step(frame: Frame) -> Step:
    top = frame.stack[-1]
    assert isinstance(top, Step)
    return top


def _step_shaped(body: Body, event: f.StepShaped) -> None:
    frame = body.frames[event.frame]
    step = _top_step(frame)
    step.shaped = step.input if event.value is None else body.cell(frame, event.value)
    frame.value = step.shaped


def _move_on(body: Body, event: f.StepLeft | f.StepCaught) -> Frame:
    frame = body.frames[event.frame]
    output = _top_step(frame).input if event.output is None else body.cell(frame, event.output)
    cells = _cells(body, frame, event.bound)
    frame.stack.pop()
    _bind(frame, cells)
    frame.value = output
    frame.rising = None
    return frame


def _step_left(body: Body, event: f.StepLeft) -> None:
    frame = _move_on(body, event)
    frame.failure = None
    _enter(body, frame, event.next, event.at, event.number)


def _step_caught(body: Body, event: f.StepCaught) -> None:
    _enter(body, _move_on(body, event), event.next, event.at, event.number)


def _step_failed(body: Body, event: f.StepFailed) -> None:
    frame = body.frames[event.frame]
    step = _top_step(frame)
    step.failed = frame.failure = body.cell(frame, event.failure)
    step.exited = event.at
    frame.rising = None


def _step_ended(body: Body, event: f.StepEnded) -> None:
    frame = body.frames[event.frame]
    result = Result(event.ok, body.cell(frame, event.content))
    frame.stack.pop()
    frame.failure = None if event.ok else result.cell
    frame.rising = result


def _step_slept(body: Body, event: f.StepSlept) -> None:
    _top_step(body.frames[event.frame]).timer = event.timer
    body.waits[event.timer] = (event.frame, SLEEP)
    body.rest(event.frame)


def _step_dropped(body: Body, event: f.StepDropped) -> None:
    _leave_scope(body, event)


def _leave_scope(body: Body, event: f.StepDropped | f.CallDropped) -> None:
    frame = body.frames[event.frame]
    if event.content is not None:
        frame.rising = Result(False, body.cell(frame, event.content))
    frame.stack.pop()


# Middleware.


def _top_entry(frame: Frame) -> Entry:
    top = frame.stack[-1]
    assert isinstance(top, Entry)
    return top


def _entry_opened(body: Body, event: f.EntryOpened) -> None:
    frame = body.frames[event.frame]
    output = frame.value if event.output is None else body.cell(frame, event.output)
    entry = Entry(event.entry, event.at, frame.value, output)
    content = output if event.content is None else body.cell(frame, event.content)
    _bind(frame, _cells(body, frame, event.bound))
    entry.config = _optional(event.config)
    entry.memory = _optional(event.memory)
    entry.metadata = _optional(event.metadata) or NOTHING
    entry.explanation = _optional(event.explanation)
    entry.restores = body.program.entries[event.entry].provider.restores
    frame.stack.append(entry)
    frame.value = output
    if event.timer:
        entry.timer = event.timer
        body.bounds[event.timer] = (event.frame, len(frame.stack) - 1)
    if event.emits:
        entry.position = Position.LEAVING
        entry.pending = Result(event.ok, content)
        frame.rising = entry.pending


def _optional(payload: Payload | None) -> Cell | None:
    return None if payload is None else Cell(payload)


def _entry_refused(body: Body, event: f.EntryRefused) -> None:
    frame = body.frames[event.frame]
    frame.rising = Result(False, body.cell(frame, event.failure))


def _phase_ran(body: Body, event: f.PhaseRan) -> None:
    frame = body.frames[event.frame]
    entry = _top_entry(frame)
    entry.at = event.at
    if event.content is not None:
        frame.rising = Result(event.ok, body.cell(frame, event.content))
    entry.pending = frame.rising
    entry.position = Position.LEAVING
    _bind(frame, _cells(body, frame, event.bound))


def _remember(entry: Entry, event: f.GapBegan | f.RunAgain) -> None:
    entry.at = event.at
    if event.memory is not None:
        entry.memory = Cell(event.memory)
    if event.metadata is not None:
        entry.metadata = Cell(event.metadata)


def _gap_began(body: Body, event: f.GapBegan) -> None:
    frame = body.frames[event.frame]
    entry = _top_entry(frame)
    _remember(entry, event)
    entry.bound = _cells(body, frame, event.bound)
    entry.restore_next = event.restore
    entry.position = Position.WAITING
    frame.rising = None
    entry.timer = event.timer
    entry.woken = False
    body.waits[event.timer] = (event.frame, GAP)
    body.rest(event.frame)


def _run_again(body: Body, event: f.RunAgain) -> None:
    frame = body.frames[event.frame]
    entry = _top_entry(frame)
    _remember(entry, event)
    cells = _cells(body, frame, event.bound)
    if event.input is None:
        value = entry.output
    else:
        value = body.cell(frame, event.input)
        entry.rounds += 1
    _go_inside(frame, entry, value, cells, event.restore)


def _gap_ended(body: Body, event: f.GapEnded) -> None:
    frame = body.frames[event.frame]
    entry = _top_entry(frame)
    cells, entry.bound, entry.timer = entry.bound, {}, 0
    _go_inside(frame, entry, entry.output, cells, entry.restore_next)


def _go_inside(frame: Frame, entry: Entry, value: Cell, cells: dict[str, Cell], restore: bool) -> None:
    if restore:
        _restore(frame, entry)
    _bind(frame, cells)
    entry.position = Position.INSIDE
    frame.value = value
    frame.rising = None
    if frame.step is None:  # the graph runs from its entrypoint again (MWL-411)
        frame.failure = None
        frame.passes = 0


def _cleanup_began(body: Body, event: f.CleanupBegan) -> None:
    frame = body.frames[event.frame]
    entry = _top_entry(frame)
    entry.at = event.at
    entry.position = Position.CLEANING
    entry.pending = frame.rising
    frame.rising = None
    frame.value = entry.input


def _entry_left(body: Body, event: f.EntryLeft) -> None:
    frame = body.frames[event.frame]
    entry = _top_entry(frame)
    if event.failure is not None:
        entry.pending = Result(False, body.cell(frame, event.failure))
    elif entry.position is not Position.CLEANING:
        entry.pending = frame.rising
    cells = _cells(body, frame, event.bound)
    frame.stack.pop()
    _bind(frame, cells)
    frame.rising = entry.pending


def _bound_reached(body: Body, event: f.BoundReached) -> None:
    frame = body.frames[event.frame]
    owner = frame.stack[event.depth]
    assert isinstance(owner, Entry)
    imposed = Cell(event.imposed)
    if put_in_flight(frame, event.depth, imposed):
        body.wake(event.frame)
    owner.fired = imposed
    owner.timer = 0


def _bound_converted(body: Body, event: f.BoundConverted) -> None:
    frame = body.frames[event.frame]
    entry = _top_entry(frame)
    frame.rising = entry.pending = Result(False, body.cell(frame, event.content))
    entry.position = Position.LEAVING


# Calls.


def _fan_of(frame: Frame) -> Fan:
    fan = _top_step(frame).fan
    assert fan is not None
    return fan


def _add_call(frame: Frame, call: Call) -> None:
    if call.index == SINGLE:
        frame.stack.append(call)
    else:
        fan = _fan_of(frame)
        fan.calls[call.index] = call
        fan.running[call.index] = None
        fan.started += 1


def _received(frame: Frame, index: int) -> Cell | None:
    if index == SINGLE:
        return frame.value
    step = _top_step(frame)
    assert step.fan is not None
    return step.input if step.fan.elements is None else None


def _call_entered(body: Body, event: f.CallEntered) -> None:
    frame = body.frames[event.frame]
    given = None if event.given is None else body.cell(frame, event.given)
    received = _received(frame, event.index)
    call = Call(event.call, event.index, event.at, Kind(event.kind), event.target, received, given)
    call.metadata = _optional(event.metadata)
    _add_call(frame, call)
    if call.kind is Kind.MOCK:
        echoed = given or received
        content = echoed if event.content is None else body.cell(frame, event.content)
        assert content is not None
        call.prepared = Result(event.ok, content)
    if call.kind is Kind.MOCK and not event.target:
        assert call.prepared is not None
        _settle(body, event.frame, frame, call, call.prepared, event.at)
        return
    if call.kind is not Kind.FRAME:
        body.waits[event.target] = (event.frame, event.index)
    _rest_unless_busy(body, event.frame, frame)


def _rest_unless_busy(body: Body, number: int, frame: Frame) -> None:
    top = frame.stack[-1]
    if isinstance(top, Call) or (isinstance(top, Step) and top.fan is not None and not top.fan.can_move):
        body.rest(number)


def _call_faulted(body: Body, event: f.CallFaulted) -> None:
    frame = body.frames[event.frame]
    result = Result(False, body.cell(frame, event.failure))
    if event.index == SINGLE:
        frame.rising = result
        return
    received = _received(frame, event.index)
    call = Call(event.call, event.index, event.at, Kind.MOCK, 0, received, None, settled=False)
    _add_call(frame, call)
    _settle(body, event.frame, frame, call, result, event.at)


def _call_settled(body: Body, event: f.CallSettled) -> None:
    frame = body.frames[event.frame]
    call = find_call(frame, event.index)
    body.waits.pop(call.target, None)
    if event.content is None:
        result = call.prepared or Result(True, NOTHING)
    else:
        result = Result(event.ok, body.cell(frame, event.content))
    body.landed = None
    _settle(body, event.frame, frame, call, result, event.at)


def _settle(body: Body, number: int, frame: Frame, call: Call, result: Result, at: Instant) -> None:
    call.result = result
    call.accepted = max(at, call.at)
    call.prepared = None
    if call.index == SINGLE:
        body.wake(number)
        return
    fan = _fan_of(frame)
    fan.resolved += 1
    fan.successes += result.ok
    fan.running.pop(call.index, None)
    if fan.unwinding and call.imposed is not None and call.imposed.payload != result.cell.payload:
        others = (fan.cleanup_failed, call.index)
        fan.cleanup_failed = call.index if fan.cleanup_failed < 0 else min(others)
    if fan.can_move:
        body.wake(number)
    else:
        body.rest(number)


def _call_left(body: Body, event: f.CallLeft) -> None:
    frame = body.frames[event.frame]
    call = find_call(frame, event.index)
    assert call.result is not None
    result = call.result if event.content is None else Result(event.ok, body.cell(frame, event.content))
    cells = _cells(body, frame, event.bound)
    if event.index == SINGLE:
        frame.stack.pop()
        frame.rising = result
    else:
        call.result = result
        call.window = call.given = call.metadata = None
        _fan_of(frame).arm = event.index + 1
    _bind(frame, cells)


def _call_interrupted(body: Body, event: f.CallInterrupted) -> None:
    frame = body.frames[event.frame]
    call = find_call(frame, event.index)
    call.imposed = body.cell(frame, event.imposed)
    if event.index != SINGLE:
        _fan_of(frame).running.pop(event.index, None)
    _rest_unless_busy(body, event.frame, frame)


def _call_dropped(body: Body, event: f.CallDropped) -> None:
    _leave_scope(body, event)


# Gather.


def _gather_began(body: Body, event: f.GatherBegan) -> None:
    frame = body.frames[event.frame]
    elements = None if event.elements is None else body.cell(frame, event.elements)
    _top_step(frame).fan = Fan(event.total, event.need, event.wait, event.limit, elements)


def _gather_decided(body: Body, event: f.GatherDecided) -> None:
    frame = body.frames[event.frame]
    fan = _fan_of(frame)
    fan.decided = True
    _rest_unless_busy(body, event.frame, frame)


def _fan_interrupted(body: Body, event: f.FanInterrupted) -> None:
    frame = body.frames[event.frame]
    fan = _fan_of(frame)
    fan.decided = fan.unwinding = True
    _rest_unless_busy(body, event.frame, frame)


# What the kernel records.


def _timer_fired(body: Body, event: e.TimerFired) -> None:
    bound = body.bounds.pop(event.timer, None)
    if bound is not None:
        body.landed = Landed(*bound, is_bound=True)
        return
    number, index = body.waits.pop(event.timer)
    top = body.frames[number].stack[-1]
    if index in (SLEEP, GAP):
        assert isinstance(top, Step | Entry)
        top.woken = True
        top.timer = 0
        body.wake(number)
    else:
        body.landed = Landed(number, index)


def _timer_dropped(body: Body, event: e.TimerDropped) -> None:
    bound = body.bounds.pop(event.timer, None)
    if bound is None:
        body.waits.pop(event.timer, None)
    else:
        owner = body.frames[bound[0]].stack[bound[1]]
        assert isinstance(owner, Entry)
        owner.timer = 0


def _task_ended(body: Body, event: e.TaskEnded) -> None:
    body.landed = Landed(*body.waits.pop(event.task), event.outcome)


def _child_ended(body: Body, event: e.ChildEnded) -> None:
    body.landed = Landed(*body.waits.pop(event.child), event.outcome, event.status)


CHANGES: dict[type[e.Event], Callable[[Body, Any], None]] = {
    e.RunStarted: _run_started,
    e.TimerFired: _timer_fired,
    e.TimerDropped: _timer_dropped,
    e.TaskEnded: _task_ended,
    e.ChildEnded: _child_ended,
    f.FrameOpened: _frame_opened,
    f.FrameClosed: _frame_closed,
    f.FrameInterrupted: _frame_interrupted,
    f.StepEntered: _step_entered,
    f.StepShaped: _step_shaped,
    f.StepLeft: _step_left,
    f.StepFailed: _step_failed,
    f.StepCaught: _step_caught,
    f.StepEnded: _step_ended,
    f.StepSlept: _step_slept,
    f.StepDropped: _step_dropped,
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
    f.CallEntered: _call_entered,
    f.CallFaulted: _call_faulted,
    f.CallSettled: _call_settled,
    f.CallLeft: _call_left,
    f.CallInterrupted: _call_interrupted,
    f.CallDropped: _call_dropped,
    f.GatherBegan: _gather_began,
    f.GatherDecided: _gather_decided,
    f.FanInterrupted: _fan_interrupted,
}
