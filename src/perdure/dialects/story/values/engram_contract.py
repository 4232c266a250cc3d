"""What passes between a Story's run and the worker that executes an Engram. Both sides are written against this page.

**The task.** Its provider is `engram:<template>@<version>` (`provider_of`). Its arguments are one JSON object, the same
for every attempt of the step (STY-205):

    inputs           the resolved input: Engram.with and step.with merged, rendered, completed by the schema's defaults
    secrets          logical name: name of the secret, as the Engram or the step says (never a value)
    step             {id, run, uid}: the step's name, the StepRun's name and uid
    story, storyRun  {name, namespace}, {name, namespace, uid}
    engram           {name, namespace, version}
    template         {name, version}
    idempotencyKey   STY-016
    storage          only where one is written: `{file: {path}}`, below the folder that workers share
    references       where in `inputs` references to secrets and config maps stand, as the document has them
    families         of a fork: the families of the runs whose past it has, whose stored values it may read as well
    run              only where the code is a command, an endpoint or an image (see `code`), which is then the provider

Attempt, delivery, deadline and the wish to stop come with the task's context, as for every provider. The worker fills
in what stands at `references` (`$bubuSecretRef`, `$bubuConfigMapRef`), and follows `$bubuStorageRef` in data as far as
the family of runs reaches; nothing of what it finds is recorded (STY-220, STY-283).

**The end.** A value is the output: an object, or anything else, which becomes `{"value": …}` (STY-121). A failure is
`Failed(code, message, retryable, details)`, where `details` may hold the members of `Report`; what is left out follows
from the rest (`classify_failure`).

**On the way.** The worker reports (`Port.report`, durable before it answers) one object each:

    {"signal": {"key": …, "value": …, "seq"?: n}}                                STY-173
    {"effect": {"key": …, "status": …, "details"?: …, "seq"?: n}}                STY-164
    {"log": [{"at", "level", "message", "fields"?}, …], "dropped"?: n}           STY-263, when an execution ends
    {"replaySignals": {"step": StepRun or step, "sinceSeq": n}}  answers {"events": […], "firstRetainedSeq": n}

`Port.emit_signal` does as the first. Effects performed through `Port.claim_effect` are recorded by themselves.
"""

from typing import Any

import msgspec

from perdure.dialects.story.state.step_errors import EXIT_CLASSES, StepError, exit_class_of
from perdure.kernel import jsontext
from perdure.kernel.outcomes import Cancelled, Code, Failed

TIMED_OUT = 124
LOST = -1
KILLED = 137

_TIMEOUT_CODES = frozenset({"Platform.DeadlineExceeded"})


def provider_of(template: str, version: str) -> str:
    return f"engram:{template}@{version}" if version else f"engram:{template}"


class EngramReport(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """What an Engram may say of its failure, each member on its own (STY-256)."""

    type: str | None = None
    exit_code: int | None = None
    exit_class: str | None = None
    retryable: bool | None = None
    code: str | None = None
    details: dict[str, Any] | None = None


class EngramFailure(msgspec.Struct, gc=False, frozen=True):
    """How an attempt ended, when it did not end well."""

    error: StepError
    exit_code: int
    exit_class: str
    is_timeout: bool = False
    may_retry: bool = True


def classify_failure(outcome: Failed | Cancelled, *, expired: bool, timeout: str = "") -> EngramFailure:
    """The failure of an attempt in the language's terms (STY-123, 124, 256 to 258)."""
    if expired or (isinstance(outcome, Failed) and outcome.code in _TIMEOUT_CODES):
        message = f"the step did not end within {timeout}" if timeout else "the step did not end in time"
        return EngramFailure(
            StepError.make("timeout", message, exit_code=TIMED_OUT, exit_class="retry"),
            TIMED_OUT,
            "retry",
            is_timeout=True,
        )
    if isinstance(outcome, Cancelled):
        error = StepError.make("execution_error", outcome.reason or "the execution was stopped", exit_code=KILLED)
        return EngramFailure(error, KILLED, "retry")
    if outcome.code == Code.DELIVERIES_EXHAUSTED:  # STY-182: an operator's cap on crash loops is final
        error = StepError.make("unknown", outcome.message, exit_code=LOST, exit_class="unknown", retryable=False)
        return EngramFailure(error, LOST, "unknown", may_retry=False)
    said = _report(outcome)
    code = said.exit_code if said.exit_code is not None else _code_of(outcome)
    retryable = said.retryable if said.retryable is not None else outcome.retryable
    if said.exit_class in EXIT_CLASSES:
        found = said.exit_class
    elif said.retryable is not None or (said.exit_code is None and retryable is not None):
        found = "retry" if retryable else "terminal"
    else:
        found = "terminal" if code == 0 else exit_class_of(code)  # a failure is no success, whatever its code says
    error = StepError.make(
        said.type,
        outcome.message or outcome.code,
        exit_code=code,
        exit_class=found,
        retryable=retryable,
        code=said.code,
        details=said.details,
    )
    return EngramFailure(error, code, found)


def _code_of(outcome: Failed) -> int:
    return KILLED if outcome.code == Code.WORKER_DIED else 1


def _report(outcome: Failed) -> EngramReport:
    """What of the details has the form agreed on; other members are the provider's own and are left alone."""
    if outcome.details is None:
        return EngramReport()
    found = jsontext.decode(outcome.details)
    if not isinstance(found, dict):
        return EngramReport()
    kept: dict[str, Any] = {}
    for name, kind in (("type", str), ("exitCode", int), ("exitClass", str), ("retryable", bool), ("code", str)):
        if type(found.get(name)) is kind:
            kept[name] = found[name]
    if isinstance(found.get("details"), dict):
        kept["details"] = found["details"]
    return msgspec.convert(kept, EngramReport)
