"""The state of a Playbook's run: tokens, step-runs in flight, pipelines, `ctx`. Changed by events only (see `folding`).

    token    created ─▶ pending | admitted | discarded        pending ─▶ admitted | discarded
    run      scheduled ─▶ its threads ─▶ boundary ─▶ routed    (then it is forgotten, its tally remains)
    thread   ready ─▶ working ─▶ judging ─▶ ready | resting | ended

A thread is one pass through a pipeline: the only one of a plain step-run, or one iteration of a looped one.
What can move is in a queue, so that no result needs a search through everything that is open.
"""

from collections import OrderedDict
from enum import IntEnum, StrEnum
from typing import Any

import msgspec

from perdure.dialects.playbook.state.events import AttemptEnded
from perdure.dialects.playbook.state.loop_state import LoopState
from perdure.dialects.playbook.state.task_errors import Error
from perdure.dialects.playbook.state.values import NO_VARIABLES, NOTHING, Value, Variables, decode_hook, encode_hook
from perdure.kernel.json_values.values import Instant, Payload

WHOLE = 0  # instead of a fork: the execution itself
CHARGES = 3  # lost workers that one pass through a pipeline may cause before it fails
ALONE = -1  # the index of a thread that is not an iteration; those that claim frames of a cursor have lower ones
ELSE = -1  # the rule that decided was the `else`
NO_RULE = -2  # none did
ANY_NAME = "*"  # for a gate whose text does not show which members of `ctx` it reads
STEPS = "steps."  # a gate that reads how other steps ended; no member of `ctx` has this name

Numbers = dict[int, None]
"""Numbers in order of arrival, each once."""

Queue = OrderedDict[int, None]
"""Like `Numbers`, consumed from the front: finding the first item of a plain dict gets slower with each removal."""


class TokenState(IntEnum):
    CREATED = 0
    PENDING = 1
    ADMITTED = 2
    HELD = 3


class ThreadPhase(IntEnum):
    """The phase of a thread within one attempt."""

    READY = 0
    WORKING = 1
    JUDGING = 2
    RESTING = 3
    DONE = 4
    FAILED = 5


class BranchEnding(StrEnum):
    """How a branch ended (PBK-139)."""

    NORMAL = "normal"
    SKIPPED = "skipped"
    FAILED = "failed"
    STRANDED = "stranded"
    ABORTED = "aborted"


class Boundary(msgspec.Struct, gc=False, array_like=True):
    """The event that creates tokens, as guards see it (PBK-119)."""

    name: str
    step: str = ""
    run: int = 0
    ok: bool = True
    result: Value = NOTHING
    error: Error | None = None
    args: Value = NOTHING
    attempt: int = 1
    at: Instant = 0
    fanin: str = ""  # how a fan-out was joined
    uri: str = ""  # of the result
    counts: tuple[int, int] = (0, 0)  # shards that succeeded and failed


class StoredBody(msgspec.Struct, gc=False, array_like=True):
    """A body that references refer to."""

    value: Value
    reference: bytes | None = None
    scope: str = "execution"
    expires: Instant = 0


class AdmissionDecision(msgspec.Struct, gc=False, array_like=True, frozen=True):
    """The last decision of a token's gate."""

    allow: bool
    rule: int
    errors: tuple[str, ...] = ()


class Token(msgspec.Struct, gc=False, array_like=True):
    step: str
    args: Value
    event: Boundary
    at: Instant
    parent: int = 0
    arc: int = -1
    state: TokenState = TokenState.CREATED
    decision: AdmissionDecision | None = None
    reads: tuple[str, ...] = ()  # while it is pending
    is_final: bool = False
    fork: int = WHOLE
    branch: str = ""  # of the join that it arrives at
    held_by: int = WHOLE  # the fork whose tracker holds it
    timer: int = 0  # its deadline, while it waits
    parts: "list[tuple[int, UnfinishedToken]]" = msgspec.field(default_factory=list)
    """The tokens that it stands for, if their join did not complete in time."""


class JoinTracker(msgspec.Struct, gc=False, array_like=True):
    """The tokens that have arrived at a join, by branch (PBK-130)."""

    held: dict[str, Queue] = msgspec.field(default_factory=dict)
    counts: dict[str, int] = msgspec.field(default_factory=dict)  # tokens that each branch has delivered
    fired: int = 0  # completed rounds


class TokenFork(msgspec.Struct, gc=False, array_like=True):
    """A step-run that created several tokens, as long as any of their descendants exists (PBK-232)."""

    parent: int = WHOLE
    keys: dict[str, int] = msgspec.field(default_factory=dict)  # join → the fork whose tracker holds its tokens
    live: int = 0  # tokens, step-runs and forks directly below it
    held: int = 0  # tokens in its trackers
    trackers: dict[str, JoinTracker] = msgspec.field(default_factory=dict)  # by join


class TaskOutcome(msgspec.Struct, gc=False, array_like=True):
    """The outcome of the latest attempt of a task (PBK-074)."""

    result: Value
    error: Error | None
    extras: bytes | None  # JSON text: data specific to the tool kind
    duration: Instant
    at: Instant
    recipe: Payload | None = None  # the result is a secret: how to read it again


class PipelineThread(msgspec.Struct, gc=False, array_like=True):
    run: int
    index: int = ALONE
    position: int = 0
    visits: int = 1  # task-runs so far, including the current one
    label: str = ""  # of the current one, once it has started
    attempt: int = 1
    phase: ThreadPhase = ThreadPhase.READY
    number: int = 0  # the task, child or timer it waits for
    timer: int = 0  # time limit of the attempt
    began: Instant = 0
    prev: Value = NOTHING
    results: dict[str, Value] = msgspec.field(default_factory=dict)
    outcome: TaskOutcome | None = None
    iter: Variables = NO_VARIABLES
    patch: list[tuple[str, bytes]] = msgspec.field(default_factory=list)  # of `ctx`, deferred by a parallel loop
    epoch: int = 1  # increased with every lost worker
    earlier: int = 0  # task-runs before the pipeline was restarted
    error: Error | None = None
    local: Variables = NO_VARIABLES  # `step` of profile "io"
    language: str = ""  # of the child it waits for, if that is not a playbook
    recipe: Payload | None = None  # of the current attempt
    prev_recipe: Payload | None = None  # of `prev`
    recipes: dict[str, Payload] = msgspec.field(default_factory=dict)  # of `results`
    charges: int = 0  # lost workers that this thread may have caused
    storing: AttemptEnded | None = None  # how the attempt ends once its body is in an object store

    @property
    def ordinal(self) -> int:
        """The number of this task-run; restarts with the pipeline, so that tools see the same work again."""
        return self.visits - self.earlier

    @property
    def charges_left(self) -> int:
        """How many further lost workers end the task that starts now; its pipeline has three in all (PBK-195)."""
        return max(1, CHARGES - self.charges)


class StepRun(msgspec.Struct, gc=False, array_like=True):
    step: str
    token: int
    args: Value
    at: Instant
    is_final: bool = False
    timers: tuple[int, ...] = ()
    loop: LoopState | None = None
    threads: Numbers = msgspec.field(default_factory=dict)  # those that have not ended
    result: Value = NOTHING
    error: Error | None = None
    label: str = ""  # of the task at which it ended
    visits: int = 1  # the number of that task-run in its pipeline
    attempt: int = 1
    boundary: Boundary | None = None
    seq: int = 0  # of the event that started it
    local: Variables = NO_VARIABLES  # values local to its pipeline
    uri: str = ""  # of its result
    fork: int = WHOLE
    temporary_bodies: list[str] = msgspec.field(default_factory=list)  # uris of bodies that are dropped with this run
    origin: Token | None = None  # the token it consumed, if it failed before its first task
    stopped_threads: dict[int, PipelineThread] = msgspec.field(default_factory=dict)
    """By index: threads that failed or were stopped, for a redrive."""


class StepTally(msgspec.Struct, gc=False, array_like=True):
    """What is known about one step over all its runs."""

    runs: int = 0
    done: int = 0
    failed: int = 0
    iterations: int = 0
    task_runs: dict[str, int] = msgspec.field(default_factory=dict)
    task_attempts: dict[str, int] = msgspec.field(default_factory=dict)
    finished: int = 0
    ok: bool = True  # the latest finished run
    result: Value = NOTHING
    result_of: int = 0
    uri: str = ""


class BranchFailure(msgspec.Struct, gc=False, array_like=True, frozen=True):
    step: str
    run: int
    task: str
    handled: bool
    error: Error


class StrandedToken(msgspec.Struct, gc=False, array_like=True, frozen=True):
    step: str
    token: int
    decision: AdmissionDecision | None


Lineage = list[tuple[int, int, dict[str, int]]]
"""The forks above something, the innermost first: number, parent, keys."""


class UnfinishedToken(msgspec.Struct, gc=False, array_like=True):
    """A token that a stop, a cancel or a failed join took away; a redrive puts it back."""

    token: Token
    ending: str
    lineage: Lineage


class UnfinishedRun(msgspec.Struct, gc=False, array_like=True):
    """A step-run that failed, or was stopped, and led to nothing; a redrive puts it back."""

    run: StepRun
    ending: str
    lineage: Lineage
    is_counted: bool  # as a failure of its step
    is_unrouted: bool = False


class EvaluatedRequest(msgspec.Struct, gc=False, array_like=True, frozen=True):
    """What the execution starts with, once `task` has resolved its keychain."""

    entry: str
    workload: Payload
    task: int
    timer: int = 0
    is_resolved: bool = False


class Body(msgspec.Struct, gc=False, array_like=True):
    seq: int = 0
    begun: bool = False
    workload: Value = NOTHING
    ctx: Variables = msgspec.field(default_factory=Variables)
    ctx_size: int = 0  # never less than the real size
    writers: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)  # ctx key → run, seq

    tokens: dict[int, Token] = msgspec.field(default_factory=dict)
    runs: dict[int, StepRun] = msgspec.field(default_factory=dict)
    threads: dict[int, PipelineThread] = msgspec.field(default_factory=dict)
    tokens_made: int = 0
    runs_made: int = 0
    threads_made: int = 0

    # What can move.
    unevaluated: Queue = msgspec.field(default_factory=OrderedDict)  # tokens whose gate must be evaluated
    arriving: Queue = msgspec.field(default_factory=OrderedDict)  # tokens that have arrived at a join
    incomplete_forks: Queue = msgspec.field(
        default_factory=OrderedDict
    )  # forks without descendants that still hold tokens
    admitted: Queue = msgspec.field(default_factory=OrderedDict)  # tokens whose step must be started
    ready_threads: Queue = msgspec.field(default_factory=OrderedDict)  # threads
    looping: Queue = msgspec.field(default_factory=OrderedDict)  # runs that may start an iteration
    closing: Queue = msgspec.field(default_factory=OrderedDict)  # runs whose threads have ended
    routing: Queue = msgspec.field(default_factory=OrderedDict)  # runs whose boundary event must be routed
    # What the run waits for.
    pending: Numbers = msgspec.field(default_factory=dict)  # tokens that were denied
    readers: dict[str, Numbers] = msgspec.field(default_factory=dict)  # ctx name → pending tokens that read it
    awaited: dict[int, int] = msgspec.field(default_factory=dict)  # task, child or timer → thread
    bounds: dict[int, int] = msgspec.field(default_factory=dict)  # timer → run, or 0 for the execution
    attempt_bounds: dict[int, int] = msgspec.field(default_factory=dict)  # timer → thread

    forks: dict[int, TokenFork] = msgspec.field(default_factory=dict)  # none where the program has no joins

    tallies: dict[str, StepTally] = msgspec.field(default_factory=dict)
    branches: dict[str, int] = msgspec.field(default_factory=dict)
    failures: list[BranchFailure] = msgspec.field(default_factory=list)
    handled: int = 0
    unhandled: int = 0
    unrouted: int = 0  # failures that no `on_failure` excuses (PBK-125)
    order: list[tuple[str, str, int]] = msgspec.field(default_factory=list)
    last_leaf: Value = NOTHING
    stored_bodies: dict[str, StoredBody] = msgspec.field(default_factory=dict)  # by the reference's uri

    ended_thread: int = 0  # the thread whose task or child has just ended
    paused: bool = False
    waiting: bool = False
    wait_timer: int = 0
    wait_expired: bool = False  # `wait_timeout_s` has passed
    stranded: list[StrandedToken] = msgspec.field(default_factory=list)
    stopped: Error | None = None  # nothing is routed any more
    finalizing: int = 0  # the token of the final step
    final: str = ""  # result of the finalization: done, failed, skipped
    final_error: Error | None = None
    status: str = ""
    code: str = ""

    request: EvaluatedRequest | None = None  # evaluated, and waiting for its keychain
    dues: dict[str, Instant] = msgspec.field(default_factory=dict)  # entries of the keychain that are not renewed
    growing: tuple[str, ...] = ()  # keys for which the next patch holds only the addition

    # For a redrive.
    unfinished_tokens: dict[int, UnfinishedToken] = msgspec.field(default_factory=dict)
    unfinished_runs: dict[int, UnfinishedRun] = msgspec.field(default_factory=dict)
    finalizes_again: bool = False  # the final step has run at an earlier end
    is_changed: bool = False  # a fork with another input, or a newer document
    begun_since: dict[str, None] | None = None  # of a run that was moved to another document: steps since then

    token_bounds: dict[int, int] = msgspec.field(default_factory=dict)  # timer → token that waits

    @property
    def is_idle(self) -> bool:
        """Nothing can run and nothing is in flight (PBK-126); denied tokens do not count."""
        return not (self.unevaluated or self.arriving or self.incomplete_forks or self.admitted or self.runs)


def _decode_hook(kind: type, raw: Any) -> Any:
    return OrderedDict(raw) if kind == Queue else decode_hook(kind, raw)


_encoder = msgspec.msgpack.Encoder(enc_hook=encode_hook)
_decoder = msgspec.msgpack.Decoder(Body, dec_hook=_decode_hook)

freeze = _encoder.encode
thaw = _decoder.decode
