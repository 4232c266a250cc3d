"""What arrives. Each input counts once.

Results, timers and child ends are checked against the state; signals, steering and reopening carry a key that is kept
as long as the run. Inputs that cross from one process to another are stored as these same structures.
"""

import msgspec

from perdure.kernel.errors import NewerRecord
from perdure.kernel.json_values.values import NULL, Payload, RunId
from perdure.kernel.outcomes import Outcome, Status


class Input(msgspec.Struct, gc=False, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Base of all inputs."""


class Start(Input, frozen=True, tag=1):
    language: str
    program: bytes
    name: str
    input: Payload
    options: bytes
    seed: int
    parent: tuple[RunId, int] | None = None
    labels: dict[str, str] = {}
    key: bytes = b""
    namespace: str = ""  # empty: of before runs had one
    started_by: tuple[str, str] | None = None  # name, and how it is known; None: another run
    from_api: bool = False  # the document came through the API of a server: the policy for such documents binds it


class TaskResult(Input, frozen=True, tag=2):
    task: int
    attempt: int
    delivery: int
    outcome: Outcome


class PipelineResult(TaskResult, frozen=True, tag=39):
    """The result of a task whose worker goes on with the same pipeline, under the same lease."""

    pipeline: int = 0  # its number within the run
    lease: str = ""
    number: int = 0  # of the outcome, under this lease
    digest: bytes = b""  # by which the same report is recognized
    judged: bytes | None = None  # JSON text: what the worker made of it by the rules of its language; None: nothing


class TaskLost(Input, frozen=True, tag=3):
    """The holder of this delivery is gone without a result."""

    task: int
    delivery: int
    reason: str
    loss: int = 0  # `LossKind`: what is known of how


class TaskReport(Input, frozen=True, tag=4):
    task: int
    delivery: int
    body: Payload


class TimerDue(Input, frozen=True, tag=5):
    timer: int


class Sender(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """How a server knows who has sent a control message; on the store itself nobody is known."""

    via: str  # token, oidc, anonymous, worker …
    issuer: str = ""  # of whoever an identity provider answers for


class Signal(Input, frozen=True, tag=6):
    name: str
    value: Payload = NULL
    key: str = ""
    by: str = ""
    sender: Sender | None = None


class Cancel(Input, frozen=True, tag=7):
    reason: str = ""
    by: str = ""
    sender: Sender | None = None
    seen: int = 0  # events that the run had when its sender looked: it counts only while there are no more; 0: always


class ChildResult(Input, frozen=True, tag=8):
    child: int
    status: Status
    outcome: Outcome


class PermitGrant(Input, frozen=True, tag=9):
    permit: int


class EffectClaim(Input, frozen=True, tag=10):
    task: int
    delivery: int
    key: str


class EffectDone(Input, frozen=True, tag=11):
    task: int
    delivery: int
    key: str
    result: Payload


class EffectRelease(Input, frozen=True, tag=12):
    task: int
    delivery: int
    key: str


class EffectUnfit(Input, frozen=True, tag=34):
    """It was performed, but its result has no JSON form."""

    task: int
    delivery: int
    key: str
    reason: str


class EffectSettle(Input, frozen=True, tag=38):
    """An operator's decision about an effect in doubt. `holder` is the claim's holder when the operator looked."""

    effect: str
    result: Payload | None  # None: it was not performed
    holder: tuple[int, int]
    is_holder_gone: bool = False  # no process drove the run then, so its open tasks had no holder either
    key: str = ""
    by: str = ""
    sender: Sender | None = None


class Steer(Input, frozen=True, tag=13):
    verb: str
    body: Payload = NULL
    key: str = ""
    by: str = ""
    sender: Sender | None = None
    seen: int = 0  # events that the run had when its sender looked: it counts only while there are no more; 0: always


class Reopen(Input, frozen=True, tag=14):
    body: Payload = NULL
    key: str = ""
    by: str = ""
    sender: Sender | None = None
    seen: int = 0  # events that the run had when its sender looked: it counts only while there are no more; 0: always


class Proceed(Input, frozen=True, tag=15):
    """Not from outside: the run yielded after a slice of work and continues."""


class Fork(Input, frozen=True, tag=16):
    """Ends the copied part of a forked log."""

    source: RunId
    seq: int
    program: bytes = b""  # of another document than that run had
    input: Payload | None = None  # another one than that run had
    from_api: bool = False  # the other document came through the API of a server


class Wake(Input, frozen=True, tag=17):
    """A request to the owner to load the run (again): after a fix, or when it was left dormant."""


class LayDown(Input, frozen=True, tag=18):
    """The run is handed over, and these of its tasks were never started; those in `begun` will not end here."""

    tasks: list[int]
    begun: list[int] = []


class TakeUp(Input, frozen=True, tag=19):
    """The run was handed over to this owner: tasks that were returned unstarted can be started."""

    tasks: list[int]


class Disown(Input, frozen=True, tag=20):
    """From its parent: the run is no longer needed. It stops if it is open, and is removed once it has ended."""


class Begin(Input, frozen=True, tag=31):
    """A suspect is about to be started here, at this `StartPlace`, once that is recorded."""

    task: int
    delivery: int
    place: int
    machine: str = ""  # of a task that is started alone


class Migrate(Input, frozen=True, tag=40):
    """The run is to go on with another document; or, with `undoes`, with the one it had before its last move."""

    before: bytes  # digest of the document that it has, as its sender believes
    before_language: str  # that document, as it is pinned
    before_document: bytes
    language: str  # the new one
    document: bytes
    mapping: dict[str, str] = {}  # steps that have another name; empty: what is known of the step is forgotten
    undoes: bool = False
    key: str = ""
    by: str = ""
    sender: Sender | None = None
    from_api: bool = False  # the document came through the API of a server


class Clear(Input, frozen=True, tag=32):
    """The delivery was started alone and survived its time; or its holder is alive, and was only late."""

    task: int
    delivery: int
    outlived: bool


AnyInput = (
    Start
    | TaskResult
    | PipelineResult
    | TaskLost
    | TaskReport
    | TimerDue
    | Signal
    | Cancel
    | ChildResult
    | PermitGrant
    | EffectClaim
    | EffectDone
    | EffectRelease
    | EffectUnfit
    | EffectSettle
    | Steer
    | Reopen
    | Proceed
    | Fork
    | Wake
    | LayDown
    | TakeUp
    | Disown
    | Begin
    | Clear
    | Migrate
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyInput] = msgspec.msgpack.Decoder(AnyInput)
encode = _encoder.encode


def decode(body: bytes) -> AnyInput:
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:  # complete, but of a type or with fields that are not known here
        raise NewerRecord(f"a message to it contains something that this version does not know ({error})") from None


CALENDAR_RANK = -1
"""The rank of a timer whose due time is on the wall clock (`Sleep until`), not on the store's clock (invariant 30)."""

TIMER_RANK = 1
"""Results come first among the inputs of one instant, then timers by their own rank.

A result that is there at a deadline beats it, on every machine and after every restart.
"""

CONTROL_WAIT_RANK = 1 << 20
"""From this rank on a timer ends a wait for a control message; all others are bounds, which arrive when they are due.

A wait expires only when the inbox was read after its due time and no other input is waiting (invariant 8).
"""


# Answers to the sender of an input, given once the decision is durable.


class Accepted(msgspec.Struct, gc=False, frozen=True):
    """It counted now, or the same input had counted before."""

    body: bytes | None = None


class Refused(msgspec.Struct, gc=False, frozen=True):
    """It changed nothing. `conflict`: the key was used before for something else, or the run is past that point."""

    reason: str
    conflict: bool = False


class EffectClaimAnswer(msgspec.Struct, gc=False, frozen=True):
    """The answer to an `EffectClaim`; `result` or `unfit` is set when the effect was completed before."""

    completed: bool
    in_doubt: bool = False
    result: Payload | None = None
    unfit: str | None = None


InputAnswer = Accepted | Refused | EffectClaimAnswer
ACCEPTED = Accepted()
