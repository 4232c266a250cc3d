"""The state of a drill: threads of steps, what each waits for, and the variables. Changed by events only."""

from collections import OrderedDict, deque
from typing import Any

import msgspec

from perdure.kernel import events as e
from perdure.kernel.json_values.values import NULL, Payload
from perdure.kernel.outcomes import Failed, Outcome, Status
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
        step: Step | None = steps[frame.index] if frame.index < len(steps) else None
        return step


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
    body = _decoder.decode(frozen)
    return Body(
        program,
        body.threads,
        OrderedDict.fromkeys(body.agenda),
        body.waits,
        body.variables,
        {name: deque(values) for name, values in body.signals.items()},
        {name: OrderedDict.fromkeys(threads) for name, threads in body.listeners.items()},
        body.spawned,
        body.ending,
        body.cleaning,
        body.begun,
        body.asked,
    )
