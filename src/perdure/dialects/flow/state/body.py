"""The state of a Flow's run: frames, each with the stack of its open scopes. Changed by events only.

    Frame.stack, innermost last:   MiddlewareScope…  Step  MiddlewareScope…  Call  (of the Flow, the Step, of the Step)

A frame is strictly serial: a value descends (`value`) or a Result rises (`rising`), one move at a time. The
concurrent dispatches of a Gather are in the `FanOut` of its Step.
"""

from enum import IntEnum
from typing import Any

import msgspec

from perdure.dialects.flow.plan.program import Program
from perdure.dialects.flow.state.failure_chains import FailureChain
from perdure.dialects.flow.state.values import NOTHING, Carried, Cell, GrowingValue, Place, Result, Vars
from perdure.kernel.json_values.growth import Buffer
from perdure.kernel.json_values.values import Instant, Payload, Ref
from perdure.kernel.outcomes import Outcome, Status

# The form of values in a snapshot.


def encode_hook(item: Any) -> Any:
    match item:
        case GrowingValue():
            return {"pieces": item.buffer.frozen(item.count)}
        case FailureChain():
            return {"links": [link.payload for link in item.links], "is_cut": item.is_cut}
        case Cell():
            return item.payload
        case Vars():
            return item.cells
    raise TypeError(f"{type(item).__name__} cannot be part of a snapshot")


def decode_hook(kind: type, item: Any) -> Any:
    if kind is Cell:
        return _cell(item)
    if kind is Vars:
        return Vars({name: _cell(cell) for name, cell in item.items()})
    raise TypeError(f"{kind.__name__} cannot be part of a snapshot")


def _cell(item: Any) -> Cell:
    match item:
        case {"pieces": pieces}:
            return GrowingValue(Buffer([_payload(piece) for piece in pieces]), len(pieces))
        case {"links": links, "is_cut": is_cut}:
            return FailureChain(tuple(Cell(_payload(link)) for link in links), is_cut)
    return Cell(_payload(item))


def _payload(item: Any) -> Payload:
    return item if isinstance(item, bytes) else Ref(*item)


SINGLE = -1  # the index of a call that is not a dispatch of a Gather
SLEEP, GAP = -2, -3  # what else a frame can wait for


class Kind(IntEnum):
    """What a call's target is."""

    MOCK = 0
    TASK = 1
    FRAME = 2
    CHILD = 3


class ScopePosition(IntEnum):
    """The state of an established entry."""

    INSIDE = 0  # its inner scope runs
    WAITING = 1  # between two runs
    LEAVING = 2  # its Result is known, `onAlways` has not run yet
    CLEANING = 3  # `onAlways` has begun and runs to its end (MWL-558)


class Window(msgspec.Struct, gc=False, array_like=True):
    """A completed frame, as the arms of its call may read it (MWL-157)."""

    input: Cell
    vars: Vars
    at: Instant
    exited: Instant


class Call(msgspec.Struct, gc=False, array_like=True, tag=1):
    site: str
    index: int
    at: Instant
    kind: Kind
    target: int
    received: Cell | None  # None: an element of the Gather's collection
    given: Cell | None  # None: as received
    result: Result | None = None
    accepted: Instant | None = None
    prepared: Result | None = None  # by a mock, for the end of its delay
    metadata: Cell | None = None
    window: Window | None = None
    imposed: Cell | None = None  # it was interrupted, with this cancellation
    settled: bool = True  # False when the target never ran: then there is no arm (MWL-267)
    answer: Result | None = None  # a success that came after the interruption, for a redrive
    fallen: "Frame | None" = None  # the target as it was before it began to fail, for a redrive


class FanOut(msgspec.Struct, gc=False, array_like=True):
    """The dispatches of a Gather. Counters instead of scans, so that a Result costs the same at any width."""

    total: int
    need: int
    wait: bool
    limit: int
    elements: Cell | None
    started: int = 0
    resolved: int = 0  # of those started
    successes: int = 0
    decided: bool = False  # no dispatch starts any more
    unwinding: bool = False
    cleanup_failed: int = -1  # the lowest dispatch whose cleanup failed during the unwind (O-25)
    arm: int = 0  # the next one whose arm is to run
    running: dict[int, None] = msgspec.field(default_factory=dict)  # in flight and not interrupted
    calls: dict[int, Call] = msgspec.field(default_factory=dict)
    again: dict[int, None] = msgspec.field(default_factory=dict)  # dispatches that a redrive starts once more

    @property
    def active(self) -> int:
        return self.started - len(self.again) - self.resolved

    @property
    def next(self) -> int:
        """The dispatch that starts next."""
        return next(iter(self.again), self.started)

    @property
    def is_determined(self) -> bool:
        """Whether the policy's outcome is certain (MWL-311)."""
        return self.successes >= self.need or self.successes + self.total - self.resolved < self.need

    @property
    def is_over(self) -> bool:
        return self.active == 0 and (self.decided or (self.started == self.total and not self.again))

    @property
    def can_start(self) -> bool:
        return not self.decided and (self.started < self.total or bool(self.again)) and self.active < self.limit

    @property
    def can_move(self) -> bool:
        if self.is_over or self.can_start:
            return True
        if self.decided:
            return bool(self.running)
        return not self.wait and self.is_determined


class Step(msgspec.Struct, gc=False, array_like=True, tag=2):
    name: str
    number: int
    place: int  # how many Steps the graph had entered before, in this run of it
    at: Instant
    input: Cell
    shaped: Cell | None = None
    exited: Instant | None = None
    failed: Cell | None = None
    timer: int = 0
    woken: bool = False
    fan: FanOut | None = None


class MiddlewareScope(msgspec.Struct, gc=False, array_like=True, tag=3):
    site: str
    at: Instant  # of the current phase
    input: Cell
    output: Cell  # what every attempt receives
    position: ScopePosition = ScopePosition.INSIDE
    config: Cell | None = None
    memory: Cell | None = None
    metadata: Cell = NOTHING
    pending: Result | None = None  # what it will emit
    timer: int = 0
    woken: bool = False
    explanation: Cell | None = None  # of a bound
    fired: Cell | None = None  # the bound was reached: the cancellation it imposed
    rounds: int = 0  # completed runs that were followed by another one; not retries
    restores: bool = False
    restore_next: bool = False
    undo: dict[str, Cell | None] = msgspec.field(default_factory=dict)
    bound: dict[str, Cell] = msgspec.field(default_factory=dict)  # to be applied when the gap ends


Scope = Step | MiddlewareScope | Call


class Frame(msgspec.Struct, gc=False, array_like=True):
    flow: str
    path: str
    owner: int
    index: int
    depth: int  # of its stack's bottom, counted from the root; orders bounds that fall on one instant
    at: Instant
    input: Cell
    vars: Vars
    value: Cell
    rising: Result | None = None
    failure: Cell | None = None
    interrupted: Cell | None = None
    passes: int = 0
    stack: list[Scope] = msgspec.field(default_factory=list)
    checkpoint: "Checkpoint | None" = None  # while a failure or an interruption is on its way out

    @property
    def step(self) -> Step | None:
        """The Step that the frame is in; None in a phase of the Flow level."""
        for scope in reversed(self.stack):
            if isinstance(scope, Step):
                return scope
        return None

    @property
    def entered(self) -> Step:
        step = self.step
        assert step is not None
        return step


class Checkpoint(msgspec.Struct, gc=False, array_like=True):
    """A frame as it was before the failure or the interruption that it ends with; see `folding.checkpoints`."""

    stack: list[Scope]
    vars: Vars
    value: Cell
    rising: Result | None
    failure: Cell | None
    passes: int


class Arrival(msgspec.Struct, gc=False):
    """What a frame waited for has ended: the call `index`, or the time of the bound at that depth."""

    frame: int
    index: int
    outcome: Outcome | None = None
    status: Status | None = None
    is_bound: bool = False
    cell: Cell | None = None  # its value, if it succeeded


class Body(msgspec.Struct, gc=False):
    program: Program
    frames: dict[int, Frame] = msgspec.field(default_factory=dict)
    agenda: dict[int, None] = msgspec.field(default_factory=dict)  # frames that can move; the last one does
    waits: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)  # task, timer, child → frame, index
    bounds: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)  # timer → frame, depth
    opened: int = 0
    steps: int = 0
    input: Cell = NOTHING
    result: Result | None = None
    arrival: "Arrival | None" = None  # what has just ended, until the same turn has reacted to it
    fallen: Frame | None = None  # the root frame as it was before it began to fail, for a redrive
    reopened: dict[int, None] = msgspec.field(default_factory=dict)  # frames that were put back, and not renewed yet
    entered: dict[str, None] | None = None  # of a run that was moved to another document: sites of steps since then

    def enqueue(self, frame: int) -> None:
        self.agenda.pop(frame, None)
        self.agenda[frame] = None

    def dequeue(self, frame: int) -> None:
        self.agenda.pop(frame, None)

    def cell(self, frame: Frame, carried: Carried) -> Cell:
        """The value that an event carries; a place means the value that the frame holds there."""
        if not isinstance(carried, dict):
            return Cell(carried)
        place = carried.get("place")
        if place == "landed":
            assert self.arrival is not None and self.arrival.cell is not None
            return self.arrival.cell
        if place is not None:
            return cell_at(frame, place)
        if "links" in carried:
            return _extend_chain(frame, carried)
        return cell_at(frame, carried["grows"]).grow(carried["added"], carried.get("sealed"))


def _extend_chain(frame: Frame, carried: Place) -> FailureChain:
    links = tuple(map(Cell, carried["links"]))
    if "follows" not in carried:
        return FailureChain(links)
    before = cell_at(frame, carried["follows"])
    return before.extend(links) if isinstance(before, FailureChain) else FailureChain((before, *links))


def cell_at(frame: Frame, place: str) -> Cell:
    """The value at a place of the frame."""
    match place:
        case "rising":
            assert frame.rising is not None
            return frame.rising.cell
        case "failure":
            assert frame.failure is not None
            return frame.failure
        case "step.shaped":
            step = frame.entered
            return step.shaped or step.input
        case "step.input":
            return frame.entered.input
        case "frame.input":
            return frame.input
        case variable:
            return frame.vars.cells[variable.removeprefix("vars.")]


def find_call(frame: Frame, index: int) -> Call:
    top = frame.stack[-1]
    if isinstance(top, Call):
        return top
    assert isinstance(top, Step) and top.fan is not None
    return top.fan.calls[index]


class _Frozen(msgspec.Struct, gc=False, array_like=True):
    """A snapshot: the body without its program."""

    frames: dict[int, Frame]
    agenda: list[int]
    waits: dict[int, tuple[int, int]]
    bounds: dict[int, tuple[int, int]]
    opened: int
    steps: int
    input: Cell
    result: Result | None
    fallen: Frame | None = None
    reopened: list[int] = []
    entered: list[str] | None = None


_encode = msgspec.msgpack.Encoder(enc_hook=encode_hook).encode
_decoder = msgspec.msgpack.Decoder(_Frozen, dec_hook=decode_hook)


def freeze(body: Body) -> bytes:
    return _encode(
        _Frozen(
            body.frames,
            list(body.agenda),
            body.waits,
            body.bounds,
            body.opened,
            body.steps,
            body.input,
            body.result,
            body.fallen,
            list(body.reopened),
            None if body.entered is None else list(body.entered),
        )
    )


def thaw(program: Any, frozen: bytes) -> Body:
    snapshot = _decoder.decode(frozen)
    return Body(
        program,
        snapshot.frames,
        dict.fromkeys(snapshot.agenda),
        snapshot.waits,
        snapshot.bounds,
        snapshot.opened,
        snapshot.steps,
        snapshot.input,
        snapshot.result,
        fallen=snapshot.fallen,
        reopened=dict.fromkeys(snapshot.reopened),
        entered=None if snapshot.entered is None else dict.fromkeys(snapshot.entered),
    )
