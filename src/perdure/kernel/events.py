"""What was decided. Past tense, complete: `evolve` needs nothing that is not in the event.

Some events are also requests: a recorded `TaskScheduled` *is* the wish to run the task, there is no second copy.
Numbers (task, timer, child, permit) come from one counter of the run and are never reused.

The tags are a promise: they stand in every log ever written. A changed meaning takes a new tag;
a new field goes to the end and has a default. Kernel tags are below 100, dialects use 100 and up.
"""

import msgspec

from perdure.kernel.outcomes import Outcome, Status
from perdure.kernel.values import NULL, Instant, Payload, RunId


class Event(msgspec.Struct, gc=False, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Base of all events; dialects derive theirs from it too. Members that we do not know are not skipped."""


class RunStarted(Event, frozen=True, tag=1):
    language: str
    program: bytes  # digest of the pinned document
    name: str
    input: Payload
    options: bytes  # JSON text; what else the dialect was told at the start
    seed: int
    parent: tuple[RunId, int] | None = None  # who waits for the end, and under which number
    labels: dict[str, str] = {}
    key: bytes = b""  # digest of what was asked for, so that a repeated start can be told from another one


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
    sealed: bool = False  # the arguments are an envelope, which the language opens at the worker (see `sealing`)
    key: str = ""  # what the idempotency key is made of, where that is not the path


class TaskRedelivered(Event, frozen=True, tag=3):
    """Recorded before the task is handed out again, with what its loss says about it (see `crash_attribution`)."""

    task: int
    delivery: int
    reason: str
    suspicion: int = 0  # from now on; 0: it is like any other
    charged: bool = False  # it was lost alone: this counts towards its cap


class TaskEnded(Event, frozen=True, tag=4):
    task: int
    outcome: Outcome


class TaskCancelRequested(Event, frozen=True, tag=5):
    task: int
    reason: str = ""


class TaskReported(Event, frozen=True, tag=6):
    """The holder of a task told of progress that the run must know before the task goes on."""

    task: int
    body: Payload


class TimerSet(Event, frozen=True, tag=7):
    timer: int
    due: Instant
    rank: int = 0  # orders timers that are due at the same instant; from `WORD_RANK` on it ends a wait for a word
    task: int = 0  # the open task that it bounds: with its end the timer is gone too


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


class ChildEnded(Event, frozen=True, tag=11):
    child: int
    status: Status
    outcome: Outcome


class ChildCancelRequested(Event, frozen=True, tag=12):
    child: int
    reason: str = ""


class SignalReceived(Event, frozen=True, tag=13):
    name: str
    value: Payload
    key: str = ""
    by: str = ""


class CancelRequested(Event, frozen=True, tag=14):
    reason: str
    by: str = ""


class Steered(Event, frozen=True, tag=15):
    """An operator's word in the dialect's own vocabulary: an approval, a patch, a pause."""

    verb: str
    body: Payload
    key: str = ""
    by: str = ""


class PermitRequested(Event, frozen=True, tag=16):
    permit: int
    scope: str
    priority: int = 0
    limit: int | None = None  # what the program allows; a configured limit of the scope may be lower
    ageing: Instant = 0  # waiting so long adds one to the priority; 0: it never does


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
    """It was performed, but what it gave has no JSON form: it is not performed again, and has no result."""

    key: str
    reason: str


class EffectSettled(Event, frozen=True, tag=38):
    """An operator has said what came of an effect in doubt: its result, or None when it was not performed."""

    effect: str
    result: Payload | None
    key: str = ""
    by: str = ""


class TaskHeld(Event, frozen=True, tag=33):
    """The task cannot go on before an operator has settled an effect: it is in nobody's hands until then."""

    task: int
    effect: str


class Sliced(Event, frozen=True, tag=22):
    """Long work gave way to others: `moves` so far without outside input, and whether there is more to do."""

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


class RunForked(Event, frozen=True, tag=25):
    """Everything before this was lived by another run; what was open then is issued anew."""

    source: RunId
    seq: int


class TasksLaidDown(Event, frozen=True, tag=26):
    """These were not begun when their run was handed over: their delivery is still to be had.

    Those that were `begun` are lost to a process that stopped in order, which is not their doing.
    """

    tasks: list[int]
    begun: list[int] = []


class TasksTakenUp(Event, frozen=True, tag=27):
    """Recorded before tasks that were laid down are handed out after all. From here on they may have begun."""

    tasks: list[int]


class ChildrenDisowned(Event, frozen=True, tag=28):
    """These belong to what was undone: each stops if it is open, and is removed with everything below it."""

    children: list[int]


class RunDisowned(Event, frozen=True, tag=29):
    """The run's parent has no use for it any more: it is removed when it ends."""


class WorkCounted(Event, frozen=True, tag=36):
    """Long work gives way: what it has `enumerated` and `caught` so far without outside input, beside its moves."""

    enumerated: int  # elements of Gathers, loops and maps, each of which allows further moves
    caught: int  # failures


class ChildBounded(Event, frozen=True, tag=37):
    """Somebody waits for a child that was asked to stop: when the timer is due, it is looked whether it still can.

    A child that is stuck or has no owner is given up then; any other bounds its own end, and is looked at again.
    """

    child: int
    timer: int
    due: Instant
    grace: Instant


class TaskBegun(Event, frozen=True, tag=31):
    """A suspect is about to begin: recorded before it does. The begin of any other task is not recorded."""

    task: int
    place: int  # `StartPlace`
    machine: str = ""  # of one that is begun alone: the machine, and its boot


class TaskCleared(Event, frozen=True, tag=32):
    """A task is less suspicious than it was: it outlived its time alone, or the process that had it lives on."""

    task: int
    suspicion: int
    uncharged: bool = False  # what it was charged with last was not its doing


class InputDeclined(Event, frozen=True, tag=30):
    """A word was acknowledged before it was decided, and does not count. It may stand behind the run's end."""

    kind: str  # signal, steer, cancel, reopen, settle
    key: str
    by: str
    arrived: Instant
    reason: str


class MoreInputsDeclined(Event, frozen=True, tag=45):
    """So many words were declined by now; after the first hundred of a run they are counted, not listed."""

    total: int


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
)
