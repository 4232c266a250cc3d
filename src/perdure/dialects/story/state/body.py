"""The state of a Story's run: its steps, its block, what was decided from outside. Changed by events only (`folding`).

    step    (unstarted) ─▶ Pending (queued) | Blocked ─▶ Running | Paused ─▶ terminal
            Running ─▶ Pending (retry) ─▶ Running        anything open ─▶ Canceled
    run     Pending ─▶ Running: steps ─▶ compensations ─▶ finally ─▶ terminal ─▶ (redrive) Running

What can move stands in `agenda`, so that no result costs a search through all steps.
"""

from typing import Any

import msgspec

from perdure.dialects.story.plan.program import NO_PLAN, StepPlan
from perdure.dialects.story.state.phases import Phase
from perdure.kernel.values import Instant, Payload

Queue = dict[str, None]
"""Names in order of arrival, each once."""

LOGS_KEPT = 16  # executions of one StepRun
EVENTS_KEPT = 256  # signals and effects of one StepRun (STY-164, STY-176)


class SignalEvent(msgspec.Struct, gc=False, array_like=True, frozen=True):
    seq: int
    key: str
    at: Instant
    payload: bytes


class EffectRecord(msgspec.Struct, gc=False, array_like=True, frozen=True):
    seq: int
    key: str
    status: str
    at: Instant
    details: bytes


class CacheUse(msgspec.Struct, gc=False, array_like=True):
    """What is known of a step's kept output."""

    entry: str
    mode: str
    ttl: int
    status: str = ""


class StepRun(msgspec.Struct, gc=False, array_like=True):
    """What an Engram step or a branch has beyond its state (section 1.8)."""

    life: int
    key: str
    engram: str
    template: str
    generation: int
    created_at: Instant
    arguments: Payload | None = None
    attempt: int = 0
    began_at: Instant | None = None
    retries: int = 0
    next_retry_at: Instant | None = None
    last_failure: str = ""
    exit_code: int | None = None
    exit_class: str = ""
    error: bytes | None = None
    restarts: int = 0
    restarted_at: Instant | None = None
    execution: str = ""  # the last one observed: task and delivery
    expired: bool = False
    recalled: bool = False
    cached: CacheUse | None = None
    last_output_at: Instant | None = None
    logs: list[tuple[int, Payload]] = msgspec.field(default_factory=list)  # attempt, the report that holds it


class SignalsAndEffects(msgspec.Struct, gc=False, array_like=True):
    """What a step has said while it worked: signals and effects, kept over attempts."""

    signals: dict[str, bytes] = msgspec.field(default_factory=dict)
    signal_events: list[SignalEvent] = msgspec.field(default_factory=list)
    signal_seq: int = 0
    effects: list[EffectRecord] = msgspec.field(default_factory=list)
    effect_seq: int = 0


FAN_PAGE = 100  # items of a map that lie together
REDUCE = -1  # the index of the child that runs over the results of the others


class MapResult(msgspec.Struct, gc=False, array_like=True):
    sub_run: str
    phase: str = ""
    message: str = ""
    told: Payload | None = None  # what the child gave: its message and its output


class MapState(msgspec.Struct, gc=False, array_like=True):
    """A step that runs a Story for every item; counters stand for scans.

    Items lie in pages beside the log, and so do the results of every page whose items have all ended: what is held here
    does not grow with what they say.
    """

    total: int
    limit: int
    fail_fast: bool
    allows_failures: bool
    batch: int
    plan: Payload  # the step's input without its items
    items: tuple[Payload, ...]  # by page
    next: int = 0
    succeeded: int = 0
    failed: int = 0
    children: dict[int, int] = msgspec.field(default_factory=dict)  # those that have not ended: child, index
    results: dict[int, MapResult] = msgspec.field(default_factory=dict)  # of pages that are not closed
    ended: dict[int, int] = msgspec.field(default_factory=dict)  # of pages that are not closed: how many have
    full: list[int] = msgspec.field(default_factory=list)  # pages to be closed
    closed: dict[int, Payload] = msgspec.field(default_factory=dict)
    recalled: bool = False  # its children were asked to stop, and no more are started

    @property
    def is_stopped(self) -> bool:
        return self.recalled or (self.fail_fast and self.failed > 0)

    @property
    def can_start(self) -> bool:
        if self.is_stopped or self.next >= self.total or len(self.children) >= self.limit:
            return False
        return bool(self.next % self.batch) or not self.children  # a batch ends before the next begins

    @property
    def is_mapped(self) -> bool:
        """No item has a child that works, and none will get one."""
        return not self.children and (self.is_stopped or self.next >= self.total)

    def length(self, page: int) -> int:
        return min(FAN_PAGE, self.total - page * FAN_PAGE)


class StepState(msgspec.Struct, gc=False, array_like=True):
    phase: Phase
    reason: str
    message: str
    started_at: Instant
    finished_at: Instant | None = None
    run: StepRun | None = None
    task: int = 0  # the kernel's task or child it waits for
    timer: int = 0  # ends it, or ends its attempt
    due: Instant | None = None
    poll: int = 0  # a retry's wait, or the next look
    permits: list[int] = msgspec.field(default_factory=list)
    awaited: int = 0  # a permit that is asked for
    sub_run: str = ""
    child: int = 0
    output: Payload | None = None
    landed: Payload | None = None  # what its task has just given
    open: int = 0  # branches that have not ended
    reads_steps: bool = False
    follows_failure: bool = False
    interrupted: bool = False
    fan: MapState | None = None
    recalled: bool = False  # of one that waits for runs below it: they were asked to stop
    expired: bool = False  # because its time was up

    @property
    def has_begun(self) -> bool:
        """Queued and blocked steps have a state, but count as not started (STY-065)."""
        return self.phase is not Phase.BLOCKED and not (self.phase is Phase.PENDING and self.run is None)


class Gate(msgspec.Struct, gc=False, array_like=True, frozen=True):
    state: str
    message: str
    at: Instant
    by: str


class Interruption(msgspec.Struct, gc=False, array_like=True, frozen=True):
    cause: str
    step: str
    phase: str
    message: str


class Body(msgspec.Struct, gc=False, array_like=True):
    plan: StepPlan = NO_PLAN
    life: int = 1
    name: str = ""
    namespace: str = ""
    begun: bool = False
    phase: Phase = Phase.PENDING
    reason: str = "Pending"
    message: str = ""
    inputs: Payload = b"{}"
    attempts: int = 0
    since: Instant | None = None  # of this life: when its conditions began
    started_at: Instant | None = None
    finished_at: Instant | None = None
    timer: int = 0
    output: Payload | None = None
    error: bytes | None = None
    degraded: str = ""

    block: str = ""
    steps: dict[str, StepState] = msgspec.field(default_factory=dict)
    told: dict[str, SignalsAndEffects] = msgspec.field(default_factory=dict)
    gates: dict[str, Gate] = msgspec.field(default_factory=dict)
    unstarted: Queue = msgspec.field(default_factory=dict)  # of the present block
    open: int = 0  # steps of the present block that have not ended
    waiting: dict[str, int] = msgspec.field(default_factory=dict)  # step: dependencies that have not ended
    failed: Queue = msgspec.field(default_factory=dict)  # main steps whose failure is not allowed

    # What can move.
    agenda: Queue = msgspec.field(default_factory=dict)  # in story order
    stale: Queue = msgspec.field(default_factory=dict)  # waits whose condition may have changed
    waits: Queue = msgspec.field(default_factory=dict)  # paused ones that read steps
    # What is waited for.
    tasks: dict[int, str] = msgspec.field(default_factory=dict)  # task or child: step
    timers: dict[int, str] = msgspec.field(default_factory=dict)
    permits: dict[int, str] = msgspec.field(default_factory=dict)

    rang: tuple[str, bool] = ("", False)  # the timer that has just fired: whose, and whether it was a deadline
    found: dict[str, Payload] = msgspec.field(default_factory=dict)  # resources that came later, by kind and name
    interruption: Interruption | None = None
    timed_out: bool = False
    redrive: tuple[str, str, str] | None = None  # step, token, who: asked for while the run was live
    redriven: list[tuple[str, str]] = msgspec.field(default_factory=list)  # step, token
    canceled_before: bool = False  # an earlier cancel that a redrive has used up (STY-185)
    cleaned_at: Instant | None = None  # its StepRuns and sub-runs are gone (STY-189)
    # Helpers (STY-207): what each was asked last, by digest; its input; and those that have not ended.
    help: dict[str, bytes] = msgspec.field(default_factory=dict)
    help_inputs: dict[str, Payload] = msgspec.field(default_factory=dict)
    helping: Queue = msgspec.field(default_factory=dict)
    launched: dict[str, list[int]] = msgspec.field(default_factory=dict)  # sub-runs of this life, by step

    def enqueue(self, name: str) -> None:
        """The step can move. Most come in story order; who does not is put in its place."""
        if name in self.agenda:
            return
        order = self.plan.order
        last = next(reversed(self.agenda), name)
        self.agenda[name] = None
        if order[last] > order[name]:
            self.agenda = _in_order(self.agenda, self.plan)


def _in_order(names: Queue, plan: StepPlan) -> Queue:
    return dict.fromkeys(sorted(names, key=plan.order.__getitem__))


def encode_hook(value: Any) -> Any:
    if isinstance(value, StepPlan):
        return None  # the program has it
    raise NotImplementedError(type(value))


def decode_hook(kind: type, value: Any) -> Any:
    if kind is StepPlan:
        return NO_PLAN
    raise NotImplementedError(kind)


_encoder = msgspec.msgpack.Encoder(enc_hook=encode_hook)
_decoder = msgspec.msgpack.Decoder(Body, dec_hook=decode_hook)

freeze = _encoder.encode


def thaw(plan: StepPlan, frozen: bytes) -> Body:
    body = _decoder.decode(frozen)
    body.plan = plan
    body.agenda = _in_order(body.agenda, plan)
    return body
