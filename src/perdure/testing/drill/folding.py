"""How events change the state of a drill: one function per event, live and in a fold."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from perdure.kernel import events as e
from perdure.kernel.json_values.values import Payload
from perdure.kernel.outcomes import Failed, Succeeded
from perdure.testing.drill.body import (
    Advanced,
    AllAsked,
    Body,
    Bound,
    Caught,
    CleanupBegan,
    Ending,
    Entered,
    Fan,
    Fanned,
    Frame,
    Heard,
    Left,
    Listened,
    Spawned,
    Spun,
    Thread,
    Waited,
)


def _done(body: Body, number: int, thread: Thread, value: Payload | None) -> None:
    """The step under the thread is over; on to the next."""
    step = body.step(thread)
    assert step is not None
    if value is not None:
        thread.last = value
        if "save" in step.fields:
            body.variables[step.fields["save"]] = value
    thread.frames[-1].index += 1
    thread.attempt = 1
    thread.failed = None
    thread.timed_out = False
    thread.spun = 0
    thread.fan = None
    body.agenda[number] = None


def _spawned(body: Body, event: Spawned) -> None:
    body.begun = True
    body.spawned = max(body.spawned, event.thread)
    body.threads[event.thread] = Thread(event.parent, event.index, event.item, [Frame(event.block)])
    body.agenda[event.thread] = None
    if event.parent is not None:
        fan = body.threads[event.parent].fan
        assert fan is not None
        fan.started += 1
        fan.active += 1
        if fan.active >= fan.limit or fan.started >= fan.total:
            body.agenda.pop(event.parent, None)


def _fanned(body: Body, event: Fanned) -> None:
    body.threads[event.thread].fan = Fan(event.total, event.limit, event.items)


def _entered(body: Body, event: Entered) -> None:
    body.threads[event.thread].frames.append(Frame(event.block, 0, event.times, event.permit))


def _advanced(body: Body, event: Advanced) -> None:
    _done(body, event.thread, body.threads[event.thread], event.value)


def _left(body: Body, event: Left) -> None:
    thread = body.threads[event.thread]
    frame = thread.frames[-1]
    if frame.times > 1:
        frame.times -= 1
        frame.index = 0
        return
    thread.frames.pop()
    if thread.frames:
        thread.frames[-1].index += 1
        thread.attempt = 1
        return
    del body.threads[event.thread]
    del body.agenda[event.thread]
    if thread.parent is not None:
        parent = body.threads[thread.parent]
        fan = parent.fan
        assert fan is not None
        fan.active -= 1
        fan.results[thread.index] = thread.last
        if fan.active == 0 or fan.started < fan.total:
            body.agenda[thread.parent] = None


def _waited(body: Body, event: Waited) -> None:
    body.waits[event.number] = event.thread
    if event.is_timer:
        body.threads[event.thread].timer = event.number
    body.agenda.pop(event.thread, None)


def _listened(body: Body, event: Listened) -> None:
    body.listeners.setdefault(event.signal, OrderedDict())[event.thread] = None
    body.agenda.pop(event.thread, None)


def _heard(body: Body, event: Heard) -> None:
    waiting = body.signals[event.signal]
    value = waiting.popleft()
    if not waiting:
        del body.signals[event.signal]
    _done(body, event.thread, body.threads[event.thread], value)


def _bound(body: Body, event: Bound) -> None:
    body.variables[event.name] = event.value


def _caught(body: Body, event: Caught) -> None:
    thread = body.threads[event.thread]
    step = body.step(thread)
    assert step is not None
    thread.failed = None
    thread.timed_out = False
    thread.frames.append(Frame(f"{step.block}/catch"))


def _spun(body: Body, event: Spun) -> None:
    body.threads[event.thread].spun += 1


def _ending(body: Body, event: Ending) -> None:
    body.ending = (event.status, event.outcome)
    body.threads.clear()
    body.agenda.clear()
    body.waits.clear()
    body.listeners.clear()


def _cleanup_began(body: Body, event: CleanupBegan) -> None:
    body.cleaning = True


def _all_asked(body: Body, event: AllAsked) -> None:
    body.asked = True


# The kernel's events, as far as they concern a drill.


def _task_scheduled(body: Body, event: e.TaskScheduled) -> None:
    number = int(event.path.partition(":")[0])
    thread = body.threads[number]
    thread.task = event.task
    thread.attempt = event.attempt
    body.waits[event.task] = number
    del body.agenda[number]


def _task_ended(body: Body, event: e.TaskEnded) -> None:
    number = body.waits.pop(event.task, None)
    if number is None:
        return
    thread = body.threads[number]
    thread.task = 0
    if isinstance(event.outcome, Succeeded) and not thread.timed_out:
        _done(body, number, thread, event.outcome.value)
        return
    thread.failed = (
        event.outcome
        if isinstance(event.outcome, Failed)
        else Failed("Timeout" if thread.timed_out else "Cancelled", "the task did not end in time", retryable=True)
    )
    body.agenda[number] = None


def _task_reported(body: Body, event: e.TaskReported) -> None:
    body.variables["report"] = event.body


def _timer_fired(body: Body, event: e.TimerFired) -> None:
    number = body.waits.pop(event.timer, None)
    if number is None:
        return
    thread = body.threads[number]
    thread.timer = 0
    if number in body.agenda:
        return  # what it bounded has ended, and the thread has not moved since
    step = body.step(thread)
    assert step is not None
    if thread.task:  # a timeout: the task is asked to stop, and the thread goes on when it has
        thread.timed_out = True
        body.agenda[number] = None
    elif step.kind == "sleep":
        _done(body, number, thread, None)
    elif step.kind == "signal":
        body.listeners[step.about].pop(number, None)
        thread.failed = Failed("Timeout", f"no signal {step.about!r} in time")
        body.agenda[number] = None
    else:  # the pause between two attempts
        thread.failed = None
        thread.timed_out = False
        thread.attempt += 1
        body.agenda[number] = None


def _timer_dropped(body: Body, event: e.TimerDropped) -> None:
    number = body.waits.pop(event.timer, None)
    if number is not None and number in body.threads:
        body.threads[number].timer = 0


def _child_ended(body: Body, event: e.ChildEnded) -> None:
    number = body.waits.pop(event.child, None)
    if number is None:
        return
    thread = body.threads[number]
    match event.outcome:
        case Succeeded(value):
            _done(body, number, thread, value)
        case Failed():
            thread.failed = event.outcome
            body.agenda[number] = None
        case _:
            thread.failed = Failed("Cancelled", "the child was cancelled")
            body.agenda[number] = None


def _permit_granted(body: Body, event: e.PermitGranted) -> None:
    number = body.waits.pop(event.permit, None)
    if number is None:
        return
    thread = body.threads[number]
    step = body.step(thread)
    assert step is not None
    if step.kind == "permit":
        thread.frames.append(Frame(f"{step.block}/do", permit=event.permit))
    body.agenda[number] = None


def _signal_received(body: Body, event: e.SignalReceived) -> None:
    body.signals.setdefault(event.name, deque()).append(event.value)
    listeners = body.listeners.get(event.name)
    if listeners:
        number, _ = listeners.popitem(last=False)
        body.agenda[number] = None


def _run_started(body: Body, event: e.RunStarted) -> None:
    body.variables["input"] = event.input


def _run_reopened(body: Body, event: e.RunReopened) -> None:
    input = body.variables["input"]
    fresh = Body(body.program)
    for field in body.__struct_fields__:
        setattr(body, field, getattr(fresh, field))
    body.variables["input"] = input


CHANGES: dict[type[e.Event], Callable[[Body, Any], None]] = {
    Spawned: _spawned,
    Fanned: _fanned,
    Entered: _entered,
    Advanced: _advanced,
    Left: _left,
    Waited: _waited,
    Listened: _listened,
    Heard: _heard,
    Bound: _bound,
    Caught: _caught,
    Spun: _spun,
    Ending: _ending,
    CleanupBegan: _cleanup_began,
    AllAsked: _all_asked,
    e.TaskScheduled: _task_scheduled,
    e.TaskEnded: _task_ended,
    e.TaskReported: _task_reported,
    e.TimerFired: _timer_fired,
    e.TimerDropped: _timer_dropped,
    e.ChildEnded: _child_ended,
    e.PermitGranted: _permit_granted,
    e.SignalReceived: _signal_received,
    e.RunStarted: _run_started,
    e.RunReopened: _run_reopened,
}


def evolve(body: Body, event: e.Event) -> None:
    change = CHANGES.get(type(event))
    if change is not None:
        change(body, event)
