"""What a Story's run has decided. Rendered values are inside, so nothing is evaluated twice.

Phases, conditions and counters of the resources are a view of these (see `showing`), never stored as such.
"""

from perdure.kernel.events import Event
from perdure.kernel.values import Instant, Payload


class StoryStarted(Event, frozen=True, tag=100):
    """The run has a name and entered Running, unless it `is_refused`. `inputs` have the schema's defaults."""

    name: str
    namespace: str
    inputs: Payload
    at: Instant
    timer: int = 0  # bounds the whole run
    is_refused: bool = False  # its end follows at once


class StepsSkipped(Event, frozen=True, tag=101):
    """`follows_failure`: because of a failed dependency, so that dependents are skipped too (STY-067)."""

    steps: tuple[str, ...]
    message: str
    at: Instant
    follows_failure: bool = False


class StepQueued(Event, frozen=True, tag=102):
    """Ready, and waiting for a place under a limit. `permit` is asked for."""

    step: str
    permit: int
    message: str
    at: Instant


class StepBlocked(Event, frozen=True, tag=103):
    """What the step refers to is not there; `permit` stands for its arrival, or `poll` brings the next look."""

    step: str
    reason: str
    message: str
    at: Instant
    permit: int
    poll: int = 0


class StepStarted(Event, frozen=True, tag=104):
    """A primitive began to work or to wait."""

    step: str
    phase: str
    message: str
    at: Instant
    timer: int = 0  # its deadline
    due: Instant | None = None
    poll: int = 0
    child: int = 0
    sub_run: str = ""
    reads_steps: bool = False  # a wait whose condition may change when another step does


class StepRunCreated(Event, frozen=True, tag=105):
    """An Engram step has its StepRun. `arguments`: its resolved input, when no task is to carry it."""

    step: str
    key: str
    engram: str
    template: str
    generation: int
    at: Instant
    arguments: Payload | None = None


class AttemptStarted(Event, frozen=True, tag=106):
    """A worker may begin. `timer` bounds this attempt, unless it was set for its task."""

    step: str
    task: int
    timer: int
    at: Instant


class StepLaunched(Event, frozen=True, tag=151):
    """An Engram step has its StepRun, and a worker may begin at once: `StepRunCreated` and `AttemptStarted` in one.
    The task is scheduled next, then the timer that bounds it.
    """

    step: str
    key: str
    engram: str
    template: str
    generation: int
    task: int
    at: Instant


class CacheNoted(Event, frozen=True, tag=107):
    """`status`: hit, miss, stored."""

    step: str
    entry: str
    mode: str
    ttl: int
    status: str


class RetryScheduled(Event, frozen=True, tag=109):
    step: str
    retries: int
    timer: int
    due: Instant
    message: str
    failure: str
    exit_code: int
    exit_class: str
    at: Instant
    error: bytes = b"null"


class StepEnded(Event, frozen=True, tag=110):
    """`source` says where the output is: landed with the task, given here, or none."""

    step: str
    phase: str
    reason: str
    message: str
    at: Instant
    source: str = "none"
    output: Payload = b"{}"
    error: bytes | None = None
    exit_code: int | None = None
    exit_class: str = ""
    interrupted: bool = False  # ended from outside: no failure of its own


class StepExpired(Event, frozen=True, tag=111):
    """An attempt's time is up; it was asked to stop."""

    step: str


class StepRecalled(Event, frozen=True, tag=112):
    """A working step was asked to stop, because its block or its run ends."""

    step: str
    message: str


class SubRunRecalled(Event, frozen=True, tag=152):
    """A step that waits for runs below it was asked to stop: they were, and it ends once they have (STY-186)."""

    step: str
    message: str


class SubRunsExpired(Event, frozen=True, tag=153):
    """The time of a step that waits for runs below it is up: they were asked to stop, and it ends once they have."""

    step: str


class WaitChecked(Event, frozen=True, tag=113):
    """A condition was looked at and did not hold; `poll` brings the next look."""

    step: str
    poll: int = 0


class GateDecided(Event, frozen=True, tag=114):
    step: str
    state: str
    message: str
    by: str
    at: Instant


class SignalRecorded(Event, frozen=True, tag=115):
    """`value` is what `signals[key]` holds now, null when it was cleared."""

    step: str
    seq: int
    key: str
    value: bytes
    payload: bytes
    at: Instant


class EffectRecorded(Event, frozen=True, tag=116):
    step: str
    seq: int
    key: str
    status: str
    details: bytes
    at: Instant


class Noted(Event, frozen=True, tag=117):
    """A diagnostic in the original's words (STY-261): nothing depends on it."""

    step: str
    kind: str
    message: str
    at: Instant


class Interrupted(Event, frozen=True, tag=118):
    """The present block ends early. `cause`: stop, cancel, timeout, redrive."""

    cause: str
    step: str
    phase: str
    message: str
    at: Instant


class TimeRanOut(Event, frozen=True, tag=119):
    """The story's time was up while it was cleaning up: it ends as Timeout, but in its own time (STY-134)."""

    at: Instant


class BlockEntered(Event, frozen=True, tag=120):
    block: str
    at: Instant


class StoryEnded(Event, frozen=True, tag=121):
    phase: str
    reason: str
    message: str
    at: Instant
    output: Payload | None = None
    error: bytes | None = None
    degraded: str = ""  # a reason, when it ended well and yet something was lost


class Redriven(Event, frozen=True, tag=122):
    """These steps are as if they had never been; `step` is empty when the whole run starts over."""

    step: str
    steps: tuple[str, ...]
    token: str
    by: str
    at: Instant
    timer: int = 0


class RetryHastened(Event, frozen=True, tag=123):
    """An operator wants the next attempt now (STY-128)."""

    step: str
    by: str


class RedriveAsked(Event, frozen=True, tag=124):
    """A live run is to start over once everything it has open has stopped."""

    step: str
    token: str
    by: str


class ResourceFound(Event, frozen=True, tag=125):
    """A resource that was not there when the run started, as it is used from now on (STY-255)."""

    kind: str
    namespace: str
    name: str
    body: Payload


class FanBegan(Event, frozen=True, tag=126):
    """A map over items: a child Story each, `limit` at a time."""

    step: str
    total: int
    limit: int
    fail_fast: bool
    allows_failures: bool
    timer: int
    at: Instant
    batch: int = 1
    plan: Payload = b"{}"  # the step's input without its items
    items: tuple[Payload, ...] = ()  # by page


class FanChildStarted(Event, frozen=True, tag=127):
    """`index` is the item's, or REDUCE."""

    step: str
    index: int
    child: int
    sub_run: str


class FanPageClosed(Event, frozen=True, tag=140):
    """Every item of a page has ended; `results` says how, as the manifest will."""

    step: str
    page: int
    results: Payload


class FanChildEnded(Event, frozen=True, tag=128):
    """Its output, if it has one, landed with the child's end."""

    step: str
    index: int
    child: int
    phase: str
    message: str


class HelpWanted(Event, frozen=True, tag=146):
    """A template of `target` (of the run's output, if empty) needs offloaded data: the helper `step` evaluates it.

    `inputs` are the helper's, `key` their digest. The target waits.
    """

    step: str
    target: str
    purpose: str
    inputs: Payload
    key: bytes
    message: str
    at: Instant


class ChildrenCleaned(Event, frozen=True, tag=145):
    """The run has been kept long enough that its StepRuns and sub-runs go; what it says of its steps stays."""

    at: Instant


class LogKept(Event, frozen=True, tag=150):
    """What an attempt has logged, as its worker told it when it ended (STY-263): `body` is that report."""

    step: str
    attempt: int
    lines: int
    body: Payload
    at: Instant


OWN_EVENTS: tuple[type[Event], ...] = (
    ChildrenCleaned,
    HelpWanted,
    LogKept,
    StoryStarted,
    StepsSkipped,
    StepQueued,
    StepBlocked,
    StepStarted,
    StepRunCreated,
    StepLaunched,
    AttemptStarted,
    CacheNoted,
    RetryScheduled,
    StepEnded,
    StepExpired,
    StepRecalled,
    WaitChecked,
    GateDecided,
    SignalRecorded,
    EffectRecorded,
    Noted,
    Interrupted,
    TimeRanOut,
    BlockEntered,
    StoryEnded,
    Redriven,
    RetryHastened,
    RedriveAsked,
    ResourceFound,
    FanBegan,
    FanChildStarted,
    FanChildEnded,
    FanPageClosed,
    SubRunRecalled,
    SubRunsExpired,
)
