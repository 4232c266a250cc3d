"""The events of a Playbook's run. Rendered values, matched rules and directives are inside.

The canonical event names of the language are a view of these (see `views.history`). Events that always occur together
in the common case are one composite event, which the history expands.
"""

from perdure.dialects.playbook.state.task_errors import Error
from perdure.dialects.playbook.state.values import Patch
from perdure.kernel.events import Event
from perdure.kernel.json_values.values import Instant, Payload


class NewToken(Event, frozen=True):
    """Part of the events that create tokens. `gated`: its step's admission must be evaluated first."""

    token: int
    step: str
    gated: bool
    args: Payload
    arc: int = -1
    branch: str = ""  # of the join it arrives at; it is held there instead of being evaluated for admission
    run: int = 0  # the step-run that consumes it at once
    tasks: int = 0  # the number of tasks of that step


class Stored(Event, frozen=True):
    """Part of the events that store a body for references. Without `payload` it is the event's own result."""

    uri: str
    reference: bytes | None
    payload: Payload | None = None
    scope: str = "execution"
    expires: Instant = 0


class WorkflowStarted(Event, frozen=True, tag=100):
    entry: NewToken
    workload: Payload
    ctx: Patch
    size: int
    at: Instant
    timer: int = 0  # bounds the execution
    stored: tuple[Stored, ...] = ()  # bodies that the calling execution lent
    joins: bool = False  # the program has joins


class AdmissionJudged(Event, frozen=True, tag=101):
    """The first decision of a token's gate, or a changed one (PBK-066)."""

    token: int
    fate: str  # admitted, pending, discarded
    allow: bool
    rule: int
    errors: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()  # a change of these may change the decision


class AdmissionUnchanged(Event, frozen=True, tag=102):
    """A gate was evaluated again with the same result."""

    token: int


class TokenDropped(Event, frozen=True, tag=103):
    token: int
    reason: str
    ending: str


class StepStarted(Event, frozen=True, tag=104):
    """The token is consumed. `tasks` is 0 for a step that only routes; `items` is what a loop runs over."""

    run: int
    token: int
    tasks: int
    at: Instant
    timers: tuple[int, ...] = ()
    items: Payload | None = None
    total: int = 0
    limit: int = 1
    error: Error | None = None  # why its loop cannot start
    mode: str = ""  # of its loop: sequential, parallel, fanout


class IterationStarted(Event, frozen=True, tag=105):
    run: int
    index: int
    thread: int


class AttemptStarted(Event, frozen=True, tag=106):
    """`number` is the kernel's task or child; 0 when the outcome is known at once. `timer` bounds a child."""

    thread: int
    label: str
    kind: str
    number: int
    at: Instant
    timer: int = 0
    language: str = ""  # of a child in another language
    recipe: Payload | None = None  # how to obtain the result again, which is a secret and is not recorded


class AttemptEnded(Event, frozen=True, tag=107):
    """One outcome. `source`: an ok result is inside, arrived with the kernel's event, or was passed through.

    With `reference` templates see that in place of the result, except in the pipeline of a task that `opens` it.
    """

    thread: int
    at: Instant
    error: Error | None = None
    source: str = "given"
    result: Payload = b"null"
    extras: bytes | None = None
    reference: bytes | None = None
    opens: bool = False
    stored: tuple[Stored, ...] = ()
    label: str = ""  # of an attempt that starts here too, because its outcome is known at once
    kind: str = ""


class OutcomeJudged(Event, frozen=True, tag=108):
    """A task rule was chosen: its patches and its directive. `fate`: ready, resting, done, failed."""

    thread: int
    label: str
    rule: int
    directive: str
    fate: str
    to: int  # the position of the next task
    is_visit: bool  # the task is reached again, not retried
    set_ctx: Patch = ()
    set_iter: Patch = ()
    timer: int = 0
    error: Error | None = None
    errors: tuple[str, ...] = ()
    size: int = 0
    conflicts: tuple[str, ...] = ()  # keys that a concurrent step-run has just set to another value (PBK-154)
    keeps_back: bool = False  # a parallel loop merges its patches at the end (PBK-112)
    repeats: bool = False  # the failed shard is run again (PBK-135)
    stops: bool = False  # no further iteration starts (PBK-109)
    set_step: Patch = ()  # values of this pass only (PBK-158)


class StepEnded(Event, frozen=True, tag=109):
    """The boundary event."""

    run: int
    name: str
    at: Instant
    error: Error | None = None
    set_ctx: Patch = ()
    size: int = 0
    fanin: str = ""
    uri: str = ""  # of the reference of the result
    manifest: Stored | None = None  # replaces the results of a loop that are too large to be inlined
    keeps: bool = False  # the result stays readable by its reference, also after the step's next run


class NextEvaluated(Event, frozen=True, tag=110):
    """The step-run has left. `ending` is empty when tokens were created; `failures` are those that the branch adds."""

    run: int
    mode: str
    arcs: tuple[tuple[str, bool, str], ...]
    tokens: tuple[NewToken, ...]
    ending: str
    handled: bool
    failures: tuple[Error, ...]
    no_match_is_error: bool
    at: Instant
    set_ctx: Patch = ()  # of the arcs that fired, before their tokens exist (PBK-158)
    size: int = 0
    joins: tuple[str, ...] = ()  # those for which this step-run is the common fork


class CtxPatched(Event, frozen=True, tag=111):
    """From outside, by an operator or a program (PBK-156)."""

    set_ctx: Patch
    size: int
    by: str = ""
    reason: str = ""


class WorkflowWaiting(Event, frozen=True, tag=112):
    tokens: tuple[tuple[int, tuple[str, ...]], ...]
    timer: int = 0


class WaitExpired(Event, frozen=True, tag=113):
    pass


class WorkflowStopped(Event, frozen=True, tag=114):
    """No token moves any more and nothing is routed; tasks that a worker has started may end (PBK-138)."""

    error: Error
    is_failure: bool  # it is the execution's own, not a step's


class RunWithdrawn(Event, frozen=True, tag=115):
    run: int
    reason: str = ""


class WorkflowQuiesced(Event, frozen=True, tag=116):
    status: str
    token: NewToken
    at: Instant


class WorkflowFinished(Event, frozen=True, tag=117):
    status: str
    code: str


class Paused(Event, frozen=True, tag=118):
    by: str = ""
    reason: str = ""


class Resumed(Event, frozen=True, tag=119):
    by: str = ""
    reason: str = ""


class JoinReached(Event, frozen=True, tag=120):
    """A token arrived at a join: its fork's tracker holds it, or its round is complete and it ends there."""

    token: int
    fork: int
    is_late: bool = False


class JoinCompleted(Event, frozen=True, tag=121):
    """Enough branches have arrived: these tokens leave as one. `last` is the one that completed the round."""

    step: str
    fork: int
    tokens: tuple[int, ...]
    last: int
    token: NewToken
    at: Instant


class JoinFailed(Event, frozen=True, tag=122):
    """Nothing is left that could deliver the missing tokens."""

    step: str
    fork: int
    tokens: tuple[int, ...]
    error: Error


class RequestEvaluated(Event, frozen=True, tag=123):
    """The execution will start once `task` has resolved the keychain (PBK-180)."""

    entry: str
    workload: Payload
    ctx: Patch
    size: int
    at: Instant
    task: int
    timer: int = 0
    stored: tuple[Stored, ...] = ()


class KeychainResolved(Event, frozen=True, tag=124):
    """`dues`: when the entries that are not renewed expire."""

    dues: dict[str, Instant]


class PipelineRestarted(Event, frozen=True, tag=125):
    """Its worker was lost, and its step is configured to start again instead of continuing (PBK-195)."""

    thread: int
    reason: str = ""


class TaskPassed(Event, frozen=True, tag=126):
    """A task without rules succeeded with the result of the kernel's event: the pipeline continues at `to`, or ends."""

    thread: int
    label: str
    at: Instant
    to: int
    is_last: bool


class StepPassed(Event, frozen=True, tag=127):
    """Like `TaskPassed`, where the boundary event of the step-run follows immediately."""

    run: int
    thread: int
    label: str
    at: Instant
    to: int
    uri: str = ""
    keeps: bool = False


class CtxGrows(Event, frozen=True, tag=128):
    """For these keys the next patch contains only what is added at the end of their lists or texts."""

    keys: tuple[str, ...]


class WorkflowReopened(Event, frozen=True, tag=129):
    """A redrive: what failed or was stopped is put back, and its time limits begin anew."""

    at: Instant
    timer: int = 0  # of the execution
    timers: tuple[tuple[int, tuple[int, ...]], ...] = ()  # of step-runs
    workload: Payload | None = None  # of a fork with another input, or a newer document


class TokenBounded(Event, frozen=True, tag=130):
    """The deadline of a token that waits; 0: it has none any more."""

    token: int
    timer: int


class JoinExpired(Event, frozen=True, tag=131):
    """The deadline of the oldest token of a round has passed: its tokens leave as one, whose step-run fails."""

    step: str
    fork: int
    tokens: tuple[int, ...]
    token: NewToken
    at: Instant


class ResultStoring(Event, frozen=True, tag=132):
    """The tool has ended; the attempt ends like this when task `number` has stored its body in an object store."""

    attempt: AttemptEnded
    number: int


class ClaimStarted(Event, frozen=True, tag=133):
    """A cursor loop asks for its next frame; the claim is a thread of its own."""

    run: int
    thread: int


class FrameClaimed(Event, frozen=True, tag=134):
    """The answer to a claim is counted: so many iterations, or none any more; or the loop cannot go on."""

    run: int
    iterations: int
    rows: int
    error: Error | None = None


OWN_EVENTS: tuple[type[Event], ...] = (
    WorkflowStarted,
    AdmissionJudged,
    AdmissionUnchanged,
    TokenDropped,
    StepStarted,
    IterationStarted,
    AttemptStarted,
    AttemptEnded,
    OutcomeJudged,
    StepEnded,
    NextEvaluated,
    CtxPatched,
    WorkflowWaiting,
    WaitExpired,
    WorkflowStopped,
    RunWithdrawn,
    WorkflowQuiesced,
    WorkflowFinished,
    Paused,
    Resumed,
    JoinReached,
    JoinCompleted,
    JoinFailed,
    RequestEvaluated,
    KeychainResolved,
    PipelineRestarted,
    TaskPassed,
    StepPassed,
    CtxGrows,
    WorkflowReopened,
    TokenBounded,
    JoinExpired,
    ResultStoring,
    ClaimStarted,
    FrameClaimed,
)
