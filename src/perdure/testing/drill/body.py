"""The state of a drill: threads of steps, what each waits for, and the variables. Changed by events only."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.kernel import events as e
from perdure.kernel.outcomes import Failed, Outcome, Status, Succeeded
from perdure.kernel.values import NULL, Payload
from perdure.testing.drill.program import Program, Step

MAIN, CLEANUP = 0, -1

Queue = OrderedDict[int, None]
"""Threads in the order they came. A plain dict that is emptied from its front is searched through its holes."""


# The drill's own events.


class Spawned(e.Event, frozen=True, tag=100):
    """A thread begins: the main one, a branch, one element of a fan-out, the cleanup."""

    thread: int
    parent: int | None
    block: str
    index: int = 0
    item: bytes = NULL


class Fanned(e.Event, frozen=True, tag=101):
    thread: int
    total: int
    limit: int
    items: list[bytes]  # JSON texts; none for a plain count


class Entered(e.Event, frozen=True, tag=102):
    thread: int
    block: str
    times: int
    permit: int = 0


class Advanced(e.Event, frozen=True, tag=103):
    """The step is done, with a value to be saved or without."""

    thread: int
    value: bytes | None = None


class Left(e.Event, frozen=True, tag=104):
    """The end of a block: around again, out of it, or the thread is over."""

    thread: int


class Waited(e.Event, frozen=True, tag=105):
    """The thread waits for a timer, a child or a permit of this number."""

    thread: int
    number: int
    is_timer: bool = False


class Listened(e.Event, frozen=True, tag=106):
    thread: int
    signal: str


class Heard(e.Event, frozen=True, tag=107):
    thread: int
    signal: str


class Bound(e.Event, frozen=True, tag=108):
    name: str
    value: bytes


class Caught(e.Event, frozen=True, tag=109):
    """A failure is handled by the step's own block."""

    thread: int


class Spun(e.Event, frozen=True, tag=110):
    thread: int


class Ending(e.Event, frozen=True, tag=111):
    """Nothing new begins; what is open is wound up, then the run ends like this."""

    status: Status
    outcome: Outcome


class CleanupBegan(e.Event, frozen=True, tag=112):
    pass


class AllAsked(e.Event, frozen=True, tag=113):
    """Everything that was open when the end began has been asked to stop, and is waited for."""


OWN_EVENTS: tuple[type[e.Event], ...] = (
    Spawned,
    Fanned,
    Entered,
    Advanced,
    Left,
    Waited,
    Listened,
    Heard,
    Bound,
    Caught,
    Spun,
    Ending,
    CleanupBegan,
    AllAsked,
)


class Frame(msgspec.Struct, gc=False, array_like=True):
    block: str
    index: int = 0
    times: int = 1
    permit: int = 0


class Fan(msgspec.Struct, gc=False, array_like=True):
    total: int
    limit: int
    items: list[bytes]
    started: int = 0
    active: int = 0
    results: dict[int, Payload] = msgspec.field(default_factory=dict)


class Thread(msgspec.Struct, gc=False, array_like=True):
    parent: int | None
    index: int
    item: bytes
    frames: list[Frame]
    attempt: int = 1
    task: int = 0  # the open task, or 0
    timer: int = 0  # a timeout, a pause between attempts, a sleep
    failed: Failed | None = None
    timed_out: bool = False
    spun: int = 0
    fan: Fan | None = None
    last: Payload = NULL


class Body(msgspec.Struct, gc=False):
    program: Any
    threads: dict[int, Thread] = msgspec.field(default_factory=dict)
    agenda: Queue = msgspec.field(default_factory=OrderedDict)  # threads that can move, in order
    waits: dict[int, int] = msgspec.field(default_factory=dict)  # number of a task, timer, child, permit -> thread
    variables: dict[str, Payload] = msgspec.field(default_factory=dict)
    signals: dict[str, deque[Payload]] = msgspec.field(default_factory=dict)
    listeners: dict[str, Queue] = msgspec.field(default_factory=dict)
    spawned: int = 0
    ending: tuple[Status, Outcome] | None = None
    cleaning: bool = False
    begun: bool = False
    asked: bool = False  # all that is open knows that it should stop

    def step(self, thread: Thread) -> Step | None:
        frame = thread.frames[-1]
        steps = self.program.blocks[frame.block]
        found: Step | None = steps[frame.index] if frame.index < len(steps) else None
        return found


class Frozen(msgspec.Struct, gc=False, array_like=True):
    """A snapshot: the body without its program."""

    threads: dict[int, Thread]
    agenda: list[int]
    waits: dict[int, int]
    variables: dict[str, Payload]
    signals: dict[str, list[Payload]]
    listeners: dict[str, list[int]]
    spawned: int
    ending: tuple[Status, Outcome] | None
    cleaning: bool
    begun: bool
    asked: bool


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Frozen)


def freeze(body: Body) -> bytes:
    return _encode(
        Frozen(
            body.threads,
            list(body.agenda),
            body.waits,
            body.variables,
            {name: list(values) for name, values in body.signals.items()},
            {name: list(threads) for name, threads in body.listeners.items()},
            body.spawned,
            body.ending,
            body.cleaning,
            body.begun,
            body.asked,
        )
    )


def thaw(program: Program, frozen: bytes) -> Body:
    found = _decoder.decode(frozen)
    return Body(
        program,
        found.threads,
        OrderedDict.fromkeys(found.agenda),
        found.waits,
        found.variables,
        {name: deque(values) for name, values in found.signals.items()},
        {name: OrderedDict.fromkeys(threads) for name, threads in found.listeners.items()},
        found.spawned,
        found.ending,
        found.cleaning,
        found.begun,
        found.asked,
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
    given = body.variables["input"]
    fresh = Body(body.program)
    for field in body.__struct_fields__:
        setattr(body, field, getattr(fresh, field))
    body.variables["input"] = given


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
