"""Bodies of the worker protocol: requests and answers."""

from typing import Annotated, Any, Literal

import msgspec


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A body of a request."""


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
LeaseId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]  # what is stored fits into a column

Opens = Annotated[list[Name], msgspec.Meta(max_length=100)]

MOST_TASKS = 100
"""Tasks of one answer: with values of the usual size they fit into it."""


class LeaseBody(Body):
    worker: Name
    pools: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=100)]
    providers: Annotated[list[Name], msgspec.Meta(max_length=1_000)] | None = None  # none given: any
    max: Annotated[int, msgspec.Meta(ge=1)] = 1  # more than there are is no mistake
    wait: Annotated[float, msgspec.Meta(ge=0)] = 0
    opens: Opens = msgspec.field(default_factory=list)  # languages whose sealed tasks it opens
    slots: Count | None = None  # tasks that it does at a time, for whoever looks


class LeasedTask(msgspec.Struct):
    lease: str
    run: str
    task: int
    kind: str  # `task`, or `pipeline`: its outcome is reported, and the next task comes with the answer
    pool: str
    provider: str
    language: str
    namespace: str
    path: str
    attempt: int
    delivery: int
    arguments: Any
    input: Any
    sealed: bool
    idempotency_key: str
    large: list[str]  # `arguments`, `input`: those that are fetched by the digest that they name
    deadline: str | None
    deadline_in: float | None  # seconds from this answer
    lease_until: str
    lease_for: float
    beat_every: float
    holds_effects: bool
    suspicion: int
    losses: int
    secrets: list[str]
    needs: list[str]  # of a pipeline: the providers of all its tasks
    number: int  # of the outcome that is reported next
    pipeline: Any  # of a pipeline: what the rules of its language read, and `ctx`; otherwise null
    traceparent: str | None = None  # of this attempt, if the run was started with one
    sends_secrets: bool = False  # whether the server has secrets for it, which it sends under its lease


class LeaseAnswer(msgspec.Struct):
    tasks: list[LeasedTask]


class KeptLease(Body):
    lease: LeaseId
    progress: Any = None


KeptLeases = Annotated[list[KeptLease], msgspec.Meta(max_length=10_000)]


class HeartbeatBody(Body):
    worker: Name
    leases: KeptLeases = msgspec.field(default_factory=list)


class HeartbeatAnswer(msgspec.Struct):
    lease_until: str
    recalled: list[str]
    lost: list[str]


class CompleteBody(Body):
    output: Any = None


class FailBody(Body):
    code: Name
    message: Annotated[str, msgspec.Meta(max_length=1_000_000)] = ""
    details: Any = None
    retryable: bool | None = None
    alone: bool = False  # it had a process of its own, which died


class ReleaseBody(Body):
    begun: bool = False  # it had begun and was stopped: the next delivery has it at once


class BeginBody(Body):
    place: Literal["beside", "alone", "apart"] = "beside"
    cleared: bool | None = None  # it outlived its time alone; false: the lease was lost while its worker lived


class EffectResultBody(Body):
    result: Any = None
    unfit: str | None = None  # it was performed, and its result has no JSON form: why


class EmptyBody(Body):
    pass


class EffectAnswer(msgspec.Struct, omit_defaults=True):
    state: str  # claimed, completed, in_doubt, held; released
    result: Any = None
    unfit: str | None = None


class TaskSignalBody(Body):
    value: Any = None


class LogLineBody(Body):
    message: str
    level: Annotated[str, msgspec.Meta(max_length=20)] = "info"
    fields: dict[str, Any] = msgspec.field(default_factory=dict)
    number: Count | None = None  # of the line in this delivery


LogLines = Annotated[list[LogLineBody], msgspec.Meta(max_length=10_000)]


class LogBody(Body):
    message: str | None = None
    level: Annotated[str, msgspec.Meta(max_length=20)] = "info"
    fields: dict[str, Any] = msgspec.field(default_factory=dict)
    lines: LogLines = msgspec.field(default_factory=list)


class JudgedBody(Body):
    """What a worker made of an outcome by the rules of its task."""

    directive: Literal["continue", "retry", "jump", "break", "fail"]
    rule: int | Literal["else"] | None = None  # the place of the rule that applied; null: none did
    set_ctx: dict[str, Any] = msgspec.field(default_factory=dict)
    set_iter: dict[str, Any] = msgspec.field(default_factory=dict)
    set_step: dict[str, Any] = msgspec.field(default_factory=dict)


class ReportBody(Body):
    """Progress, or with a number the outcome of a task of a pipeline: one of `output` and `failure`."""

    body: Any = None
    number: Count | None = None
    output: Any = msgspec.UNSET
    failure: FailBody | None = None
    judged: JudgedBody | None = None  # none: the server applies the task's rules


class ReportAnswer(msgspec.Struct, omit_defaults=True):
    answer: Any = msgspec.UNSET
    ctx: Any = msgspec.UNSET  # of a pipeline: `ctx` as it is now; null when it does not go on
    goes_on: bool | msgspec.UnsetType = msgspec.UNSET  # under this lease
    next: LeasedTask | msgspec.UnsetType | None = msgspec.UNSET
    recalled: bool = False  # it was cancelled: what was reported changed nothing


class SecretsBody(Body):
    names: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=1_000)]


class SecretsAnswer(msgspec.Struct):
    secrets: dict[str, Any]  # by name: texts, and maps for credentials; without those that the store does not keep


class AnsweredTask(Body):
    """One of `output` and `failure`."""

    lease: LeaseId
    output: Any = msgspec.UNSET
    failure: FailBody | None = None


class AnswersBody(Body):
    answers: Annotated[list[AnsweredTask], msgspec.Meta(min_length=1, max_length=1_000)]


class AnswerResult(msgspec.Struct, omit_defaults=True):
    lease: str
    status: int  # as the single answer would have had
    code: str = ""


class AnswersAnswer(msgspec.Struct):
    results: list[AnswerResult]


class LeaveBody(Body):
    worker: Name
    pools: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=100)]


class EndedAnswer(msgspec.Struct):
    lease: str
