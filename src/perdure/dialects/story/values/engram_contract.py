"""The contract between a Story's run and the worker that executes an Engram.

**The task.** Its provider is `engram:<template>@<version>` (`provider_of`). Its arguments are one JSON object, the same
for every attempt of the step (STY-205):

    inputs           the resolved input: Engram.with and step.with merged, rendered, completed by the schema's defaults
    secrets          logical name: name of the secret, as the Engram or the step says (never a value)
    step             {id, run, uid}: the step's name, the StepRun's name and uid
    story, storyRun  {name, namespace}, {name, namespace, uid}
    engram           {name, namespace, version}
    template         {name, version}
    idempotencyKey   STY-016
    storage          only if one is set: `{file: {path}}`, below the folder that workers share
    references       paths in `inputs` of references to secrets and config maps, as written in the document
    families         of a fork: the families of the runs it was forked from; it may read their stored values too
    run              only if the code is a command, an endpoint or an image (see `engram_code`)

Attempt, delivery, deadline and cancellation come with the task's context, as for every provider. The worker resolves
what is at `references` (`$bubuSecretRef`, `$bubuConfigMapRef`), and reads `$bubuStorageRef` in data within the family
of runs; none of the values it reads is recorded (STY-220, STY-283).

**The result.** A value is the output: an object, or anything else, which becomes `{"value": …}` (STY-121). A failure is
`Failed(code, message, retryable, details)`, where `details` may contain the members of `EngramReport`; missing members
are derived (`classify_failure`).

**Reports.** While it works, the worker reports (`Port.report`, durable before it answers) one object each:

    {"signal": {"key": …, "value": …, "seq"?: n}}                                STY-173
    {"effect": {"key": …, "status": …, "details"?: …, "seq"?: n}}                STY-164
    {"log": [{"at", "level", "message", "fields"?}, …], "dropped"?: n}           STY-263, when an execution ends
    {"replaySignals": {"step": StepRun or step, "sinceSeq": n}}  answers {"events": […], "firstRetainedSeq": n}

`Port.emit_signal` is equivalent to the first. Effects claimed through `Port.claim_effect` are recorded automatically.
"""

from typing import Any

import msgspec

from perdure.dialects.story.state.step_errors import EXIT_CLASSES, StepError, exit_class_of
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Cancelled, Code, Failed

TIMED_OUT = 124
LOST = -1
KILLED = 137

_TIMEOUT_CODES = frozenset({"Platform.DeadlineExceeded"})


def provider_of(template: str, version: str) -> str:
    return f"engram:{template}@{version}" if version else f"engram:{template}"


class EngramReport(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """What an Engram may report about its failure; every member is optional (STY-256)."""

    type: str | None = None
    exit_code: int | None = None
    exit_class: str | None = None
    retryable: bool | None = None
    code: str | None = None
    details: dict[str, Any] | None = None


class EngramFailure(msgspec.Struct, gc=False, frozen=True):
    """How an attempt failed."""

    error: StepError
    exit_code: int
    exit_class: str
    is_timeout: bool = False
    may_retry: bool = True


def classify_failure(outcome: Failed | Cancelled, *, expired: bool, timeout: str = "") -> EngramFailure:
    """The failure of an attempt in Story's terms (STY-123, 124, 256 to 258)."""
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
    report = _report(outcome)
    code = report.exit_code if report.exit_code is not None else _code_of(outcome)
    retryable = report.retryable if report.retryable is not None else outcome.retryable
    if report.exit_class in EXIT_CLASSES:
        exit_class = report.exit_class
    elif report.retryable is not None or (report.exit_code is None and retryable is not None):
        exit_class = "retry" if retryable else "terminal"
    else:
        exit_class = "terminal" if code == 0 else exit_class_of(code)  # a failure is never a success, whatever its code
    error = StepError.make(
        report.type,
        outcome.message or outcome.code,
        exit_code=code,
        exit_class=exit_class,
        retryable=retryable,
        code=report.code,
        details=report.details,
    )
    return EngramFailure(error, code, exit_class)


def _code_of(outcome: Failed) -> int:
    return KILLED if outcome.code == Code.WORKER_DIED else 1


def _report(outcome: Failed) -> EngramReport:
    """The members of the details that have the agreed form; others belong to the provider and are ignored."""
    if outcome.details is None:
        return EngramReport()
    details = jsontext.decode(outcome.details)
    if not isinstance(details, dict):
        return EngramReport()
    members: dict[str, Any] = {}
    for name, kind in (("type", str), ("exitCode", int), ("exitClass", str), ("retryable", bool), ("code", str)):
        if type(details.get(name)) is kind:
            members[name] = details[name]
    if isinstance(details.get("details"), dict):
        members["details"] = details["details"]
    return msgspec.convert(members, EngramReport)
