"""The state of a Story's run: its steps, its block, and decisions from outside. Changed by events only (`folding`).

    step    (unstarted) ─▶ Pending (queued) | Blocked ─▶ Running | Paused ─▶ terminal
            Running ─▶ Pending (retry) ─▶ Running        anything open ─▶ Canceled
    run     Pending ─▶ Running: steps ─▶ compensations ─▶ finally ─▶ terminal ─▶ (redrive) Running

Steps that can move are in `agenda`, so that no result needs a search through all steps.
"""

from typing import Any

import msgspec

from perdure.dialects.story.plan.program import NO_PLAN, StepPlan
from perdure.dialects.story.state.phases import StoryPhase
from perdure.kernel.json_values.values import Instant, Payload

Queue = dict[str, None]
"""Names in order of arrival, without duplicates."""

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
    """How a step uses the output cache."""

    entry: str
    mode: str
    ttl: int
    status: str = ""


class StepRun(msgspec.Struct, gc=False, array_like=True):
    """What an Engram step or branch has in addition to its state (section 1.8)."""

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
    execution: str = ""  # the last one seen: task and delivery
    expired: bool = False
    recalled: bool = False
    cached: CacheUse | None = None
    last_output_at: Instant | None = None
    logs: list[tuple[int, Payload]] = msgspec.field(
        default_factory=list
    )  # attempt, and the report that contains the log


class SignalsAndEffects(msgspec.Struct, gc=False, array_like=True):
    """Signals and effects that a step has reported, kept across attempts."""

    signals: dict[str, bytes] = msgspec.field(default_factory=dict)
    signal_events: list[SignalEvent] = msgspec.field(default_factory=list)
    signal_seq: int = 0
    effects: list[EffectRecord] = msgspec.field(default_factory=list)
    effect_seq: int = 0


FAN_PAGE = 100  # items of a map that are stored together
REDUCE = -1  # the index of the child that runs over the results of the others


class MapResult(msgspec.Struct, gc=False, array_like=True):
    sub_run: str
    phase: str = ""
    message: str = ""
    result: Payload | None = None  # the child's message and output


class MapState(msgspec.Struct, gc=False, array_like=True):
    """A step that runs a Story for every item; counters avoid scans.

    Items are stored in pages beside the log, and so are the results of pages whose items have all ended: the size
    of this state does not grow with the results.
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
    children: dict[int, int] = msgspec.field(default_factory=dict)  # open ones: child, index
    results: dict[int, MapResult] = msgspec.field(default_factory=dict)  # of pages that are not closed
    ended: dict[int, int] = msgspec.field(default_factory=dict)  # how many have ended, of pages that are not closed
    full: list[int] = msgspec.field(default_factory=list)  # pages to be closed
    closed: dict[int, Payload] = msgspec.field(default_factory=dict)
    recalled: bool = False  # its children were asked to stop; no more are started

    @property
    def is_stopped(self) -> bool:
        return self.recalled or (self.fail_fast and self.failed > 0)

    @property
    def can_start(self) -> bool:
        if self.is_stopped or self.next >= self.total or len(self.children) >= self.limit:
            return False
        return bool(self.next % self.batch) or not self.children  # a batch ends before the next one starts

    @property
    def is_mapped(self) -> bool:
        """Whether no item has an open child and none will get one."""
        return not self.children and (self.is_stopped or self.next >= self.total)

    def length(self, page: int) -> int:
        return min(FAN_PAGE, self.total - page * FAN_PAGE)


class Handoff(msgspec.Struct, gc=False, array_like=True, frozen=True):
    """How a streaming worker is replaced: draining, cutover, ready (STR-088)."""

    phase: str
    message: str
    at: Instant


class StepState(msgspec.Struct, gc=False, array_like=True):
    phase: StoryPhase
    reason: str
    message: str
    started_at: Instant
    finished_at: Instant | None = None
    run: StepRun | None = None
    task: int = 0  # the task or child that it waits for
    timer: int = 0  # the deadline of the step or its attempt
    due: Instant | None = None
    poll: int = 0  # the timer of the next retry or check
    permits: list[int] = msgspec.field(default_factory=list)
    awaited: int = 0  # a requested permit
    sub_run: str = ""
    child: int = 0
    output: Payload | None = None
    task_result: Payload | None = None  # the result that its task has just returned
    open: int = 0  # branches that have not ended
    reads_steps: bool = False
    follows_failure: bool = False
    interrupted: bool = False
    fan: MapState | None = None
    recalled: bool = False  # its child runs were asked to stop
    expired: bool = False  # because the step timed out
    stream: bytes | None = None  # of a streaming step: its last numbers
    handoff: "Handoff | None" = None  # of a streaming step whose worker is or was replaced

    @property
    def has_begun(self) -> bool:
        """Whether the step has started. Queued and blocked steps have a state, but count as not started (STY-065)."""
        return self.phase is not StoryPhase.BLOCKED and not (self.phase is StoryPhase.PENDING and self.run is None)


METADATA = "metadata"  # the control message that changes labels and annotations
RUNS_KEPT = 4096  # sub-runs of packets that have ended: a packet that comes again finds its own


class PacketRun(msgspec.Struct, gc=False, array_like=True):
    """The sub-run of one packet."""

    step: str
    child: int
    sub_run: str
    result: Payload | None = None  # how it ended, once it has


class TopologyState(msgspec.Struct, gc=False, array_like=True):
    """The streaming main block while it lives, and what is remembered of it."""

    task: int
    hooks: dict[str, None] = msgspec.field(default_factory=dict)  # that were sent, as event:step
    runs: dict[str, PacketRun] = msgspec.field(default_factory=dict)  # by packet
    children: dict[int, str] = msgspec.field(default_factory=dict)  # open ones: the packet
    is_lost: bool = False  # it ended without saying how


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
    phase: StoryPhase = StoryPhase.PENDING
    reason: str = "Pending"
    message: str = ""
    inputs: Payload = b"{}"
    attempts: int = 0
    since: Instant | None = None  # when the conditions of this life began
    started_at: Instant | None = None
    finished_at: Instant | None = None
    timer: int = 0
    output: Payload | None = None
    error: bytes | None = None
    degraded: str = ""

    block: str = ""
    steps: dict[str, StepState] = msgspec.field(default_factory=dict)
    signals_and_effects: dict[str, SignalsAndEffects] = msgspec.field(default_factory=dict)
    gates: dict[str, Gate] = msgspec.field(default_factory=dict)
    unstarted: Queue = msgspec.field(default_factory=dict)  # of the current block
    open: int = 0  # open steps of the current block
    waiting: dict[str, int] = msgspec.field(default_factory=dict)  # step: number of open dependencies
    failed: Queue = msgspec.field(default_factory=dict)  # main steps whose failure is not allowed

    # Steps that can move.
    agenda: Queue = msgspec.field(default_factory=dict)  # in story order
    stale: Queue = msgspec.field(default_factory=dict)  # waits whose condition may have changed
    waits: Queue = msgspec.field(default_factory=dict)  # paused steps whose condition reads other steps
    # What the run waits for.
    tasks: dict[int, str] = msgspec.field(default_factory=dict)  # task or child: step
    timers: dict[int, str] = msgspec.field(default_factory=dict)
    permits: dict[int, str] = msgspec.field(default_factory=dict)

    fired_timer: tuple[str, bool] = (
        "",
        False,
    )  # the timer that has just fired: its step, and whether it was a deadline
    found_resources: dict[str, Payload] = msgspec.field(
        default_factory=dict
    )  # resources found after the start, by kind and name
    interruption: Interruption | None = None
    timed_out: bool = False
    redrive: tuple[str, str, str] | None = None  # step, token, operator: requested while the run was live
    redriven: list[tuple[str, str]] = msgspec.field(default_factory=list)  # step, token
    canceled_before: bool = False  # a redrive has consumed an earlier cancel (STY-185)
    cleaned_at: Instant | None = None  # when its StepRuns and sub-runs were removed (STY-189)
    # Helpers (STY-207): digest of the last request and input by helper; and helpers that have not ended.
    help: dict[str, bytes] = msgspec.field(default_factory=dict)
    help_inputs: dict[str, Payload] = msgspec.field(default_factory=dict)
    helping: Queue = msgspec.field(default_factory=dict)
    launched: dict[str, list[int]] = msgspec.field(default_factory=dict)  # child runs of this life, by step
    topology: TopologyState | None = None
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)  # given after the start; None: taken away
    annotations: dict[str, str | None] = msgspec.field(default_factory=dict)

    def enqueue(self, name: str) -> None:
        """Add a step that can move. Most arrive in story order; otherwise the agenda is sorted again."""
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
        return None  # it comes from the program
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
