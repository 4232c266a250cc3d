"""The events of a Flow. Every instant and every evaluated value is inside; folding evaluates nothing (MWL-700).

`frame` is the number of the frame it happens in. Values are `Carried`: text, a reference, or a place of the frame that
already holds the value. A Result is a pair: `ok`, and the value or the failure envelope.
"""

from msgspec import Struct, field

from perdure.dialects.flow.state.values import Carried
from perdure.kernel.events import Event
from perdure.kernel.json_values.values import Instant, Payload

Bindings = dict[str, Carried]


# Frames.


class FrameOpened(Event, frozen=True, tag=100):
    """A Flow is entered. Its input is the run's, or the `given` of the call that opened it."""

    frame: int
    flow: str
    at: Instant
    path: str
    owner: int = -1  # the calling frame; -1 for the root
    index: int = -1  # the dispatch of a Gather; -1 for a single call
    bound: dict[str, Payload] = field(default_factory=dict)
    failure: Payload | None = None  # the arguments were invalid: nothing of the Flow runs


class FrameClosed(Event, frozen=True, tag=101):
    """The Result that rose to the bottom is the frame's, and is passed to the call that opened it."""

    frame: int
    at: Instant


class FrameInterrupted(Event, frozen=True, tag=102):
    """The whole frame is to unwind with this cancellation in flight."""

    frame: int
    imposed: Payload


# Steps.


class StepEntered(Event, frozen=True, tag=110):
    frame: int
    name: str
    at: Instant
    number: int


class StepShaped(Event, frozen=True, tag=111):
    """The Step's `input` was evaluated; None leaves what it received."""

    frame: int
    value: Carried | None


class StepLeft(Event, frozen=True, tag=112):
    """The Step succeeded and passes on `output` (None: what it received); a failure context ends here."""

    frame: int
    next: str
    at: Instant
    number: int
    output: Carried | None = None
    bound: Bindings = field(default_factory=dict)


class StepFailed(Event, frozen=True, tag=113):
    """The Step resolved to a failure, linked to the one it was recovering from; `catch` is consulted next."""

    frame: int
    failure: Carried
    at: Instant


class StepCaught(Event, frozen=True, tag=114):
    frame: int
    clause: int
    next: str
    at: Instant
    number: int
    output: Carried | None = None
    bound: Bindings = field(default_factory=dict)


class StepEnded(Event, frozen=True, tag=115):
    """The graph ends with this Step: a Return, a Raise, a failure that no clause caught."""

    frame: int
    ok: bool
    content: Carried


class StepSlept(Event, frozen=True, tag=116):
    frame: int
    timer: int


class StepDropped(Event, frozen=True, tag=117):
    """An unwinding frame leaves the Step; `content` is a cleanup failure that rises instead."""

    frame: int
    content: Carried | None = None


class StepAnswered(Event, frozen=True, tag=118):
    """A call without middleware and arm has succeeded: its Result was accepted, and the call and the Step are left."""

    frame: int
    accepted: Instant
    next: str
    at: Instant
    number: int
    output: Carried | None = None
    bound: Bindings = field(default_factory=dict)


# Middleware.


class EntryOpened(Event, frozen=True, tag=120):
    """`onEntry` has completed: the entry is established, and its `onAlways` will run."""

    frame: int
    entry: str
    at: Instant
    output: Carried | None = None  # None: what it received
    bound: Bindings = field(default_factory=dict)
    config: Payload | None = None
    memory: Payload | None = None
    metadata: Payload | None = None
    timer: int = 0  # of a bound
    explanation: Payload | None = None  # of a bound
    emits: bool = False  # nothing inside runs: `ok` and `content` (None: the output) rise from here
    ok: bool = True
    content: Carried | None = None


class EntryRefused(Event, frozen=True, tag=121):
    """`onEntry` failed: the entry is not established, the failure rises from its position."""

    frame: int
    entry: str
    failure: Carried


class PhaseRan(Event, frozen=True, tag=122):
    """`onSuccess` or `onFailure` has completed, and the entry will emit this (None: what rose)."""

    frame: int
    at: Instant
    ok: bool = True
    content: Carried | None = None
    bound: Bindings = field(default_factory=dict)


class GapBegan(Event, frozen=True, tag=123):
    """The inner scope runs again when the timer fires; the bindings are applied then, onto restored variables."""

    frame: int
    at: Instant
    timer: int
    bound: Bindings
    restore: bool
    memory: Payload | None
    metadata: Payload | None


class RunAgain(Event, frozen=True, tag=124):
    """The inner scope runs again now; None as input means the one of the first run."""

    frame: int
    at: Instant
    input: Carried | None
    bound: Bindings
    restore: bool
    memory: Payload | None
    metadata: Payload | None


class GapEnded(Event, frozen=True, tag=125):
    frame: int
    at: Instant


class CleanupBegan(Event, frozen=True, tag=126):
    """`onAlways` dispatches its call. From here on the phase runs to its end, whatever interrupts."""

    frame: int
    at: Instant


class EntryLeft(Event, frozen=True, tag=127):
    """`onAlways` has ended. A failure of it supersedes what was in flight."""

    frame: int
    failure: Carried | None = None
    bound: Bindings = field(default_factory=dict)


class BoundReached(Event, frozen=True, tag=128):
    """The deadline of the entry at this depth of the stack was reached: its inner scope is to unwind."""

    frame: int
    depth: int
    imposed: Payload


class BoundConverted(Event, frozen=True, tag=129):
    """The unwind has reached its owner, which emits this."""

    frame: int
    content: Carried


# Calls.


class CallEntered(Event, frozen=True, tag=140):
    """A call's fields are evaluated and its target is started. `target` is a frame, task, timer or child, or 0."""

    frame: int
    index: int
    call: str
    at: Instant
    given: Carried | None  # None: what the call received
    kind: int
    target: int = 0
    ok: bool = True  # the Result that a mock will return
    content: Carried | None = None
    metadata: Payload | None = None


class CallFaulted(Event, frozen=True, tag=141):
    """A field or the arguments of a call failed: the target never ran, no arm runs."""

    frame: int
    index: int
    call: str
    at: Instant
    failure: Carried


class CallSettled(Event, frozen=True, tag=142):
    """The target's Result is accepted. None: what the mock had prepared."""

    frame: int
    index: int
    at: Instant
    ok: bool = True
    content: Carried | None = None
    is_left: bool = False  # there is no arm for it: the call has ended, and the Result rises


class CallLeft(Event, frozen=True, tag=143):
    """The arm has run and finalized the Result (None: the target's own)."""

    frame: int
    index: int
    ok: bool = True
    content: Carried | None = None
    bound: Bindings = field(default_factory=dict)


class CallInterrupted(Event, frozen=True, tag=144):
    """The target is asked to stop; whatever it returns now, its Result is the imposed one."""

    frame: int
    index: int
    imposed: Carried


class CallDropped(Event, frozen=True, tag=145):
    """An unwinding frame leaves the call; `content` is a cleanup failure of its target."""

    frame: int
    content: Carried | None = None


# Gather.


class GatherBegan(Event, frozen=True, tag=150):
    frame: int
    total: int
    need: int
    wait: bool
    limit: int
    elements: Carried | None = None  # None: the scatter form


class GatherDecided(Event, frozen=True, tag=151):
    """No further dispatch starts: those that never started are skipped, those in flight will be cancelled."""

    frame: int


class FanInterrupted(Event, frozen=True, tag=152):
    """An unwinding frame starts to interrupt the dispatches of its Gather."""

    frame: int


# Redrive.


class DispatchReopened(Event, frozen=True, tag=153):
    """The Flow that a dispatch of a Gather had called goes on where it failed, or was stopped."""

    frame: int
    index: int


class RenewedEntry(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    depth: int
    timer: int = 0
    memory: Payload | None = None
    metadata: Payload | None = None


class FrameRenewed(Event, frozen=True, tag=103):
    """A frame was put back: bounds around the step that failed have their whole time, retries all their attempts."""

    frame: int
    entries: list[RenewedEntry]


OWN_EVENTS: tuple[type[Event], ...] = (
    FrameOpened,
    FrameClosed,
    FrameInterrupted,
    StepEntered,
    StepShaped,
    StepLeft,
    StepFailed,
    StepCaught,
    StepEnded,
    StepSlept,
    StepDropped,
    StepAnswered,
    EntryOpened,
    EntryRefused,
    PhaseRan,
    GapBegan,
    RunAgain,
    GapEnded,
    CleanupBegan,
    EntryLeft,
    BoundReached,
    BoundConverted,
    CallEntered,
    CallFaulted,
    CallSettled,
    CallLeft,
    CallInterrupted,
    CallDropped,
    GatherBegan,
    GatherDecided,
    FanInterrupted,
    DispatchReopened,
    FrameRenewed,
)
