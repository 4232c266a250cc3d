"""How work ends (a task, a child, a run) and how long a run is kept then. Dialects have terms of their own for it."""

from enum import StrEnum

import msgspec

from perdure.kernel.json_values.values import NULL, Instant, Payload


class Succeeded(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=1, gc=False):
    value: Payload = NULL


class Failed(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=2, gc=False):
    """`code` is what handlers match, `message` what people read, `details` JSON text for both.

    `previous` is JSON text too: the failure behind this one, with `type`, `code` and perhaps a `previous` of its own.
    """

    code: str
    message: str = ""
    retryable: bool | None = None
    details: bytes | None = None
    previous: bytes | None = None


LONGEST_MESSAGE = 64 * 1024  # characters
MOST_DETAILS = 1024 * 1024  # bytes


def shortened(failure: Failed) -> Failed:
    """The failure as it is recorded: it stands in the history itself, and again in each failure it leads to."""
    code, message, details = failure.code, failure.message, failure.details
    if max(len(code), len(message)) <= LONGEST_MESSAGE and len(details or b"") <= MOST_DETAILS:
        return failure
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[:LONGEST_MESSAGE]} … ({len(message) - LONGEST_MESSAGE} more characters)"
    if details is not None and len(details) > MOST_DETAILS:
        details = b'{"size":%d,"limit":%d}' % (len(details), MOST_DETAILS)
    return Failed(code[:LONGEST_MESSAGE], message, failure.retryable, details, failure.previous)


class Cancelled(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=3, gc=False):
    reason: str = ""


Outcome = Succeeded | Failed | Cancelled


class Status(StrEnum):
    """The status of a run. All but the first three are final, unless the run is reopened."""

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    PARTIAL = "partial"  # it has a result, although parts of it failed

    is_final: bool

    def __init__(self, value: str) -> None:
        self.is_final = value not in ("running", "waiting", "paused")  # every step asks

    @property
    def has_result(self) -> bool:
        return self in (Status.SUCCEEDED, Status.PARTIAL)

    @property
    def done(self) -> str:
        """For sentences such as: the run has …"""
        participles = {
            Status.CANCELLED: "been cancelled",
            Status.TIMED_OUT: "timed out",
            Status.PARTIAL: "ended, partial",
        }
        return participles.get(self, self.value)


OPEN_STATUSES = tuple(status for status in Status if not status.is_final)


class Code(StrEnum):
    """Failures that the platform itself reports as a task's outcome; a dialect may rename them."""

    DELIVERIES_EXHAUSTED = "Platform.DeliveriesExhausted"
    PROVIDER_FAULT = "Platform.ProviderFault"
    RESULT_TOO_LARGE = "Platform.ResultTooLarge"
    SECRET_MISSING = "Platform.SecretMissing"
    CANNOT_OPEN = "Platform.CannotOpen"  # sealed arguments; the details give the reason, in the language's terms
    EFFECT_IN_DOUBT = "Platform.EffectInDoubt"
    EFFECT_UNFIT = "Platform.EffectUnfit"  # performed, but its result has no JSON form
    EFFECT_KEY = "Platform.EffectKeyHoldsSecret"
    WORKER_DIED = "Platform.WorkerDied"
    MOVES_EXHAUSTED = "Platform.MovesExhausted"
    NOT_ALLOWED = "Platform.NotAllowed"  # by the operator's policy
    CANNOT_BEGIN = "Platform.CannotBegin"
    NAME_TAKEN = "Platform.NameTaken"  # by a run that is not the caller's


class Retention(msgspec.Struct, frozen=True):
    """How long a run is kept after its end. `children` None: as long as the run itself; `record` None: for ever.

    With `is_brief` the record goes as soon as the children have gone.
    """

    children: Instant | None
    record: Instant | None
    is_brief: bool = False
