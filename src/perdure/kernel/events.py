"""What was decided. Past tense, complete: `evolve` needs nothing that is not in the event.

Some events are also requests: a recorded `TaskScheduled` *is* the request to run the task, there is no second copy.
Numbers (task, timer, child, permit) come from one counter of the run and are never reused.

Tags never change: they are in every log ever written. A changed meaning takes a new tag;
a new field goes to the end and has a default. Kernel tags are below 100, dialects use 100 and up.
"""

import msgspec

from perdure.kernel.json_values.values import NULL, Instant, Payload, RunId
from perdure.kernel.outcomes import Outcome, Status


class Event(msgspec.Struct, gc=False, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Base of all events; dialects derive theirs from it too. Members that we do not know are not skipped."""


class RunStarted(Event, frozen=True, tag=1):
    language: str
    program: bytes  # digest of the pinned document
    name: str
    input: Payload
    options: bytes  # JSON text; further options of the start, for the dialect
    seed: int
    parent: tuple[RunId, int] | None = None  # who waits for the end, and under which number
    labels: dict[str, str] = {}
    key: bytes = b""  # digest of the request, to tell a repeated start from a different one
    namespace: str = ""  # empty: recorded before runs had one
    started_by: tuple[str, str] | None = None  # name, and how it is known: token, store, impulse …; None: another run
    from_api: bool = False  # the document came through the API of a server


class TaskScheduled(Event, frozen=True, tag=2):
    task: int
    provider: str
    path: str  # the site in the program, with loop and dispatch indexes; stable over attempts and deliveries
    arguments: Payload = NULL
    input: Payload = NULL
    attempt: int = 1
    pool: str = ""  # empty: in the engine's own process
    deadline: Instant | None = None
    max_deliveries: int = 5  # 0: no cap
    grace: Instant = 10_000_000
    hold_effects_in_doubt: bool = False
    sealed: bool = False  # the arguments are an envelope, opened at the worker (see `sealed_arguments`)
    key: str = ""  # what the idempotency key is made of, if not the path


class TaskRedelivered(Event, frozen=True, tag=3):
    """Recorded before the task is handed out again, with what its loss says about it (see `crash_attribution`)."""

    task: int
    delivery: int
    reason: str
    suspicion: int = 0  # from now on; 0: not suspicious
    charged: bool = False  # it was lost alone: this counts towards its cap


class TaskEnded(Event, frozen=True, tag=4):
    task: int
    outcome: Outcome


class TaskCancelRequested(Event, frozen=True, tag=5):
    task: int
    reason: str = ""


class TaskReported(Event, frozen=True, tag=6):
    """The holder of a task reported progress that the run must know before the task continues."""

    task: int
    body: Payload


class TimerSet(Event, frozen=True, tag=7):
    timer: int
    due: Instant
    rank: int = 0  # orders timers that are due at the same instant; from `CONTROL_WAIT_RANK` it ends a wait
    task: int = 0  # the open task that it bounds: the timer is removed when the task ends


class TimerFired(Event, frozen=True, tag=8):
    timer: int


class TimerDropped(Event, frozen=True, tag=9):
    timer: int


class ChildStarted(Event, frozen=True, tag=10):
    child: int
    language: str
    program: bytes
    name: str
    input: Payload
    options: bytes
    labels: dict[str, str] = {}
    awaited: bool = True
    from_api: bool = False  # its own document came through the API; that of a run above may have, too


class ChildEnded(Event, frozen=True, tag=11):
    child: int
    status: Status
    outcome: Outcome


class ChildCancelRequested(Event, frozen=True, tag=12):
    child: int
    reason: str = ""


class MessageSent(Event, frozen=True, tag=48):
    """How a server knew who has sent the control message of this turn. There is none where it was sent on the store."""

    via: str
    issuer: str = ""


class SignalReceived(Event, frozen=True, tag=13):
    name: str
    value: Payload
    key: str = ""
    by: str = ""


class CancelRequested(Event, frozen=True, tag=14):
    reason: str
    by: str = ""


class Steered(Event, frozen=True, tag=15):
    """A control message in the dialect's own terms: an approval, a patch, a pause."""

    verb: str
    body: Payload
    key: str = ""
    by: str = ""


class PermitRequested(Event, frozen=True, tag=16):
    permit: int
    scope: str
    priority: int = 0
    limit: int | None = None  # what the program allows; a configured limit of the scope may be lower
    ageing: Instant = 0  # each such period of waiting adds one to the priority; 0: never


class PermitGranted(Event, frozen=True, tag=17):
    permit: int


class PermitReleased(Event, frozen=True, tag=18):
    permit: int


class EffectClaimed(Event, frozen=True, tag=19):
    key: str
    task: int
    delivery: int


class EffectCompleted(Event, frozen=True, tag=20):
    key: str
    result: Payload


class EffectReleased(Event, frozen=True, tag=21):
    key: str


class EffectUnfit(Event, frozen=True, tag=34):
    """It was performed, but its result has no JSON form: it is not performed again, and has no result."""

    key: str
    reason: str


class EffectSettled(Event, frozen=True, tag=38):
    """An operator has settled an effect in doubt: with its result, or None when it was not performed."""

    effect: str
    result: Payload | None
    key: str = ""
    by: str = ""


class TaskHeld(Event, frozen=True, tag=33):
    """The task cannot continue before an operator has settled an effect: no worker has it until then."""

    task: int
    effect: str


class Sliced(Event, frozen=True, tag=22):
    """Long work yielded to other runs: `moves` so far without outside input, and whether there is more to do."""

    moves: int
    more: bool


class RunEnded(Event, frozen=True, tag=23):
    status: Status
    outcome: Outcome


class RunReopened(Event, frozen=True, tag=24):
    incarnation: int
    body: Payload
    key: str = ""
    by: str = ""
    keeps_effects: bool = False  # the run goes on at what failed: what was performed before is not performed again


class RunForked(Event, frozen=True, tag=25):
    """Everything before this happened in another run; work that was open then is issued again."""

    source: RunId
    seq: int
    program: bytes = b""  # of another document than that run had
    input: Payload | None = None  # another one than that run had
    from_api: bool = False  # the other document came through the API of a server


class TasksLaidDown(Event, frozen=True, tag=26):
    """Tasks returned unstarted when their run was handed over: the delivery is not used up.

    Those in `begun` were lost because a process stopped in order, which is not attributed to them.
    """

    tasks: list[int]
    begun: list[int] = []


class TasksTakenUp(Event, frozen=True, tag=27):
    """Recorded before tasks that were returned unstarted are handed out again. From here on they may have started."""

    tasks: list[int]


class ChildrenDisowned(Event, frozen=True, tag=28):
    """These children belong to work that was undone: each stops if it is open, and is removed with its descendants."""

    children: list[int]


class RunDisowned(Event, frozen=True, tag=29):
    """The run's parent no longer needs it: it is removed when it ends."""


class WorkCounted(Event, frozen=True, tag=36):
    """Long work yields: what it has `enumerated` and `caught` so far without outside input, besides its moves."""

    enumerated: int  # elements of Gathers, loops and maps, each of which allows further moves
    caught: int  # failures


class ChildBounded(Event, frozen=True, tag=37):
    """A child was asked to stop and its end is awaited: when the timer is due, its state is checked.

    A child that is stuck or has no owner is given up then; any other child bounds its own end, and is checked again.
    """

    child: int
    timer: int
    due: Instant
    grace: Instant


class TaskBegun(Event, frozen=True, tag=31):
    """A suspect is about to start: recorded before it does. The start of any other task is not recorded."""

    task: int
    place: int  # `StartPlace`
    machine: str = ""  # of a task that is started alone: the machine, and its boot


class TaskCleared(Event, frozen=True, tag=32):
    """A task is less suspicious than before: it survived its time alone, or the process that had it is still alive."""

    task: int
    suspicion: int
    uncharged: bool = False  # its last charge was not caused by it


class InputDeclined(Event, frozen=True, tag=30):
    """A control message was acknowledged before it was decided, and does not count. It may follow the run's end."""

    kind: str  # signal, steer, cancel, reopen, settle
    key: str
    by: str
    arrived: Instant
    reason: str


class RunPaused(Event, frozen=True, tag=46):
    """From here on the run makes no move. `holds`: by the kernel's doing, not by the language's own rules."""

    reason: str
    by: str
    holds: bool


class RunUnpaused(Event, frozen=True, tag=47):
    """The run goes on; tasks that were kept back are handed out."""

    reason: str
    by: str


class MoreInputsDeclined(Event, frozen=True, tag=45):
    """This many control messages were declined so far; after a run's first hundred they are counted, not listed."""

    total: int


class RunMigrated(Event, frozen=True, tag=49):
    """From here on the run goes on with another document; everything before was decided with the one it had."""

    program: bytes  # digest of the new document
    before: bytes
    language: str  # as the document it had was pinned
    document: Payload  # the text of that one: the run's own, however long others need it
    mapping: dict[str, str] = {}
    undoes: bool = False  # it returns to the document before the last move
    key: str = ""
    by: str = ""
    from_api: bool = False


KERNEL_EVENTS: tuple[type[Event], ...] = (
    RunStarted,
    TaskScheduled,
    TaskRedelivered,
    TaskEnded,
    TaskCancelRequested,
    TaskReported,
    TimerSet,
    TimerFired,
    TimerDropped,
    ChildStarted,
    ChildEnded,
    ChildCancelRequested,
    SignalReceived,
    CancelRequested,
    Steered,
    PermitRequested,
    PermitGranted,
    PermitReleased,
    EffectClaimed,
    EffectCompleted,
    EffectReleased,
    EffectUnfit,
    EffectSettled,
    TaskHeld,
    Sliced,
    RunEnded,
    RunReopened,
    RunForked,
    TasksLaidDown,
    TasksTakenUp,
    ChildrenDisowned,
    RunDisowned,
    WorkCounted,
    ChildBounded,
    TaskBegun,
    TaskCleared,
    InputDeclined,
    MoreInputsDeclined,
    RunPaused,
    RunUnpaused,
    MessageSent,
    RunMigrated,
)
