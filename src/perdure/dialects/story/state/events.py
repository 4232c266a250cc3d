"""Events of a Story's run. They contain rendered values, so nothing is evaluated twice.

Phases, conditions and counters of the resources are computed from these (see `views`), never stored.
"""

from perdure.dialects.story.state.stream_events import STREAM_EVENTS
from perdure.kernel.events import Event
from perdure.kernel.json_values.values import Instant, Payload


class StoryStarted(Event, frozen=True, tag=100):
    """The run has a name and entered Running, unless it `is_refused`. `inputs` include the schema's defaults."""

    name: str
    namespace: str
    inputs: Payload
    at: Instant
    timer: int = 0  # the deadline of the whole run
    is_refused: bool = False  # the run ends at once


class StepsSkipped(Event, frozen=True, tag=101):
    """`follows_failure`: skipped because of a failed dependency, so that dependents are skipped too (STY-067)."""

    steps: tuple[str, ...]
    message: str
    at: Instant
    follows_failure: bool = False


class StepQueued(Event, frozen=True, tag=102):
    """The step is ready and waits for a place under a limit. `permit` was requested."""

    step: str
    permit: int
    message: str
    at: Instant


class StepBlocked(Event, frozen=True, tag=103):
    """A resource that the step refers to does not exist; `permit` is granted when it does, or `poll` triggers the next
    check.
    """

    step: str
    reason: str
    message: str
    at: Instant
    permit: int
    poll: int = 0


class StepStarted(Event, frozen=True, tag=104):
    """A primitive started to work or to wait."""

    step: str
    phase: str
    message: str
    at: Instant
    timer: int = 0  # its deadline
    due: Instant | None = None
    poll: int = 0
    child: int = 0
    sub_run: str = ""
    reads_steps: bool = False  # its condition may change with other steps


class StepRunCreated(Event, frozen=True, tag=105):
    """An Engram step has its StepRun. `arguments` is its resolved input if no task carries it."""

    step: str
    key: str
    engram: str
    template: str
    generation: int
    at: Instant
    arguments: Payload | None = None


class AttemptStarted(Event, frozen=True, tag=106):
    """A worker may start. `timer` bounds this attempt, unless it was set for its task."""

    step: str
    task: int
    timer: int
    at: Instant


class StepLaunched(Event, frozen=True, tag=151):
    """An Engram step has its StepRun and a worker may start at once: `StepRunCreated` and `AttemptStarted` in one. The
    task is scheduled next, then the timer that bounds it.
    """

    step: str
    key: str
    engram: str
    template: str
    generation: int
    task: int
    at: Instant


class CacheNoted(Event, frozen=True, tag=107):
    """`status`: hit, miss or stored."""

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
    """`source` says where the output is: returned by the task (`landed`), in this event (`given`), or `none`."""

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
    interrupted: bool = False  # ended from outside: not counted as its failure


class StepExpired(Event, frozen=True, tag=111):
    """An attempt timed out; it was asked to stop."""

    step: str


class StepRecalled(Event, frozen=True, tag=112):
    """A running step was asked to stop because its block or run ends."""

    step: str
    message: str


class SubRunRecalled(Event, frozen=True, tag=152):
    """A step's child runs were asked to stop; the step ends once they have (STY-186)."""

    step: str
    message: str


class SubRunsExpired(Event, frozen=True, tag=153):
    """A step with child runs timed out: they were asked to stop, and the step ends once they have."""

    step: str


class WaitChecked(Event, frozen=True, tag=113):
    """A condition was checked and did not hold; `poll` triggers the next check."""

    step: str
    poll: int = 0


class GateDecided(Event, frozen=True, tag=114):
    step: str
    state: str
    message: str
    by: str
    at: Instant


class SignalRecorded(Event, frozen=True, tag=115):
    """`value` is what `signals[key]` contains now; null if it was cleared."""

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
    """A diagnostic event with the original's name (STY-261); nothing depends on it."""

    step: str
    kind: str
    message: str
    at: Instant


class Interrupted(Event, frozen=True, tag=118):
    """The current block ends early. `cause`: stop, cancel, timeout or redrive."""

    cause: str
    step: str
    phase: str
    message: str
    at: Instant


class TimeRanOut(Event, frozen=True, tag=119):
    """The Story timed out during cleanup: it ends as Timeout, but after the cleanup (STY-134)."""

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
    degraded: str = ""  # a reason, if it succeeded but something was lost


class Redriven(Event, frozen=True, tag=122):
    """These steps are reset; `step` is empty if the whole run starts over."""

    step: str
    steps: tuple[str, ...]
    token: str
    by: str
    at: Instant
    timer: int = 0


class RetryHastened(Event, frozen=True, tag=123):
    """An operator requested the next attempt now (STY-128)."""

    step: str
    by: str


class RedriveAsked(Event, frozen=True, tag=124):
    """A live run will start over once everything it has open has stopped."""

    step: str
    token: str
    by: str


class ResourceFound(Event, frozen=True, tag=125):
    """A resource that did not exist when the run started, as it is used from now on (STY-255)."""

    kind: str
    namespace: str
    name: str
    body: Payload


class FanBegan(Event, frozen=True, tag=126):
    """A map over items: a child Story for each, `limit` at a time."""

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
    """Every item of a page has ended; `results` are their entries in the manifest."""

    step: str
    page: int
    results: Payload


class FanChildEnded(Event, frozen=True, tag=128):
    """A child has ended; its output, if any, is in the kernel's event."""

    step: str
    index: int
    child: int
    phase: str
    message: str


class HelpWanted(Event, frozen=True, tag=146):
    """A template of `target` (of the run's output, if empty) needs offloaded data: the helper `step` evaluates it.

    `inputs` are the helper's, `key` is their digest. The target waits.
    """

    step: str
    target: str
    purpose: str
    inputs: Payload
    key: bytes
    message: str
    at: Instant


class ChildrenCleaned(Event, frozen=True, tag=145):
    """The TTL of the run's StepRuns and sub-runs has passed and they are removed; its record of the steps stays."""

    at: Instant


class LogKept(Event, frozen=True, tag=150):
    """The log of an attempt, as its worker reported it at the end (STY-263): `body` is that report."""

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
    *STREAM_EVENTS,
)
