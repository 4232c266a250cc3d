"""The program of a Playbook: the checked document, ready to be run. Immutable; shared by every run of it.

Program ─▶ Step ─▶ Admission          may a token enter?
                ─▶ Task… ─▶ Policy    the pipeline, and what each outcome means
                ─▶ Loop               once per element
                ─▶ Router ─▶ Arc…     where tokens go afterwards
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from perdure.dialects.playbook.state.names import CLAIM
from perdure.dialects.playbook.values.jsonpath import JsonPath
from perdure.expressions.jinja import Guard, Template, TemplateReads, all_reads
from perdure.kernel.json_values.values import Instant

SCOPES = frozenset(
    {
        *("workload", "ctx", "args", "iter", "event", "steps", "execution_id", "keychain", "results", "outcome"),
        "fanin",
        *("_prev", "_task", "_attempt", "_idempotency_key"),
        *("__frame_max_rows", "__frame_key"),  # these two in the claim of a cursor loop only
        *("output", "step", "job"),  # these three in profile "io" only
    }
)
"""What a template can name; anything else is a bare name."""


class Directive(StrEnum):
    """What a task's outcome does to the pipeline (PBK-023)."""

    CONTINUE = "continue"
    RETRY = "retry"
    JUMP = "jump"
    BREAK = "break"
    FAIL = "fail"


class OnDeny(StrEnum):
    PENDING = "pending"
    DISCARD = "discard"


class OnFailure(StrEnum):
    """What failures of branches do to the execution (PBK-138)."""

    FAIL_ON_UNHANDLED = "fail_on_unhandled"
    FAIL_ON_ANY = "fail_on_any"
    FAIL_FAST = "fail_fast"
    PARTIAL = "partial"
    IGNORE = "ignore"


class OnStranded(StrEnum):
    """What happens to tokens that are still denied when nothing else can move (PBK-126)."""

    AUTO = "auto"
    WAIT = "wait"
    FAIL = "fail"
    PARTIAL = "partial"
    DISCARD = "discard"


class OnFinalFailure(StrEnum):
    FAIL = "fail"
    PARTIAL = "partial"


class BareNames(msgspec.Struct, frozen=True):
    """Profile "io": a name that is not a scope is a member of `ctx`, or a step whose result is meant (PBK-158, 230)."""

    steps: frozenset[str]

    def resolved(self, reads: TemplateReads) -> TemplateReads:
        bare = reads.names - SCOPES
        result = TemplateReads(
            {name: members for name, members in reads.members.items() if name in SCOPES and name != "job"}
        )
        if bare:
            result |= TemplateReads({"ctx": bare})
        return result | TemplateReads({"steps": bare & self.steps}) if bare & self.steps else result


class AdmitRule(msgspec.Struct, frozen=True):
    when: Guard | None  # None: `else`
    allow: bool


class Admission(msgspec.Struct, frozen=True):
    rules: tuple[AdmitRule, ...]
    on_deny: OnDeny = OnDeny.PENDING
    bare_names: "BareNames | None" = None

    @property
    def reads(self) -> TemplateReads:
        """What the guards read."""
        return all_reads(rule.when.reads for rule in self.rules if rule.when is not None)

    @property
    def watches(self) -> TemplateReads:
        """What may change the answer: like `reads`, with bare names replaced by what they may mean."""
        return self.reads if self.bare_names is None else self.bare_names.resolved(self.reads)

    @property
    def can_allow(self) -> bool:
        return any(rule.allow for rule in self.rules)


class Then(msgspec.Struct, frozen=True):
    """The right-hand side of a task rule."""

    do: Directive
    attempts: int = 3
    backoff: str = "none"
    delay: Template | None = None
    to: int | None = None  # where a jump goes, as a position in the pipeline
    set_ctx: Mapping[str, Template] = msgspec.field(default_factory=dict)
    set_iter: Mapping[str, Template] = msgspec.field(default_factory=dict)
    set_step: Mapping[str, Template] = msgspec.field(default_factory=dict)  # profile "io": values of this pass alone


class TaskRule(msgspec.Struct, frozen=True):
    when: Guard | None  # None: `else`
    then: Then


class TaskPolicy(msgspec.Struct, frozen=True):
    rules: tuple[TaskRule, ...]
    unmatched_fails: bool = False


class ResultPolicy(msgspec.Struct, frozen=True):
    """When a result is kept by reference, and what its reference contains (PBK-170, 171)."""

    inline_max: int = 65_536
    preview_max: int = 1_024
    store: str = "auto"
    scope: str = "execution"
    ttl: Instant | None = None
    select: tuple[tuple[JsonPath, str], ...] = ()
    selects_small: bool = False  # without `select`: small members of a map
    bucket: str = ""  # of an object store; empty: the only one that the operator names


class Task(msgspec.Struct, frozen=True):
    label: str
    kind: str
    fields: Mapping[str, Template]  # what is rendered before each attempt
    fixed: Mapping[str, Any]  # what is not: program text
    spec: Mapping[str, Any]  # runtime settings, already layered (PBK-035)
    pool: str = ""  # the pool whose workers run it; empty: the process that runs the execution
    queue_ttl: Instant = 0  # how long it may wait there for a worker
    policy: TaskPolicy | None = None
    result: ResultPolicy = ResultPolicy()
    place: str = ""  # in references to its result
    timeout: float | None = None  # in seconds
    may_be_sealed: bool = False  # it may need a secret

    @property
    def holds_effects(self) -> bool:
        """Whether effects in doubt wait for an operator."""
        return self.spec.get("effects_in_doubt") == "hold"


class KeychainEntry(msgspec.Struct, frozen=True):
    """An entry of the keychain: how a secret is obtained, never the secret (section 13)."""

    name: str
    kind: str
    scope: str
    lifetime: float  # seconds
    renews: bool
    fields: Template  # all other fields in the document


class Fanout(msgspec.Struct, frozen=True):
    """Settings of the shard mode of loops (PBK-131)."""

    fail_fast: bool = True
    allow_partial: bool = False
    max_job_retries: int = 0
    max_shards: int = 10_000


class LoopCursor(msgspec.Struct, frozen=True):
    """A loop that pulls its elements, frame by frame, until a claim returns no row (PBK-114)."""

    claim: Task
    max_rows: int = 1  # of one frame
    takes_frames: bool = False  # an iteration for each frame, not for each row
    row_concurrency: int = 1  # multiplies `max_in_flight`
    max_iterations: int = 100_000


class Loop(msgspec.Struct, frozen=True):
    over: Template  # of a cursor loop: an empty list
    iterator: str
    is_parallel: bool = False
    max_in_flight: Template | None = None
    is_best_effort: bool = False
    reduce: Mapping[str, str] = msgspec.field(default_factory=dict)
    fanout: Fanout | None = None
    result: ResultPolicy = ResultPolicy()
    cursor: LoopCursor | None = None

    @property
    def written_items(self) -> list[Any] | None:
        """Its elements, if they are written in the document; what a cursor returns is not known."""
        items = self.over.document if self.over.is_literal and self.cursor is None else None
        return items if isinstance(items, list) else None

    @property
    def mode(self) -> str:
        if self.cursor is not None:
            return "cursor"
        if self.fanout is not None:
            return "fanout"
        return "parallel" if self.is_parallel else "sequential"


class Arc(msgspec.Struct, frozen=True):
    step: str
    when: Guard | None = None  # None: always
    args: Template | None = None
    set: Mapping[str, Template] = msgspec.field(default_factory=dict)  # profile "io": assignments to ctx if it fires


class Router(msgspec.Struct, frozen=True):
    arcs: tuple[Arc, ...]
    is_inclusive: bool = False


class Join(msgspec.Struct, frozen=True):
    """Tokens from these steps leave as one, once `need` of them have arrived (PBK-130)."""

    branches: tuple[str, ...]
    need: int


class Step(msgspec.Struct, frozen=True):
    name: str
    tasks: tuple[Task, ...] = ()
    loop: Loop | None = None
    admission: Admission | None = None
    router: Router | None = None
    timeout: Instant | None = None  # of one step-run
    deadline: Instant | None = None  # counted from the token's creation
    join: Join | None = None
    restarts: bool = False  # a lost worker's pipeline starts again, not only its open task (PBK-195)
    set: Mapping[str, Template] = msgspec.field(default_factory=dict)  # profile "io": of ctx when it has succeeded
    is_plain: bool = False  # there is work, and nothing has to be known before it starts

    @property
    def all_tasks(self) -> tuple[Task, ...]:
        claim = None if self.loop is None else self.loop.cursor
        return self.tasks if claim is None else (*self.tasks, claim.claim)

    def task_at(self, position: int) -> Task:
        """The task at a position of the pipeline; at `CLAIM` the one that claims frames for the loop."""
        if position != CLAIM:
            return self.tasks[position]
        assert self.loop is not None and self.loop.cursor is not None
        return self.loop.cursor.claim


class Completion(msgspec.Struct, frozen=True):
    on_failure: OnFailure = OnFailure.FAIL_ON_UNHANDLED
    on_stranded: OnStranded = OnStranded.AUTO
    on_final_failure: OnFinalFailure = OnFinalFailure.FAIL
    wait_timeout: Instant | None = None


class Bounds(msgspec.Struct, frozen=True):
    """Limits on the work of a document."""

    max_payload_bytes: int = 1_048_576
    max_step_runs: int = 10_000
    max_task_visits: int = 10_000


class Program(msgspec.Struct, frozen=True, dict=True):
    name: str
    path: str
    steps: Mapping[str, Step]  # in document order
    entry: str
    workload: Template
    final_step: str | None = None
    no_next_is_error: bool = False
    completion: Completion = Completion()
    bounds: Bounds = Bounds()
    timeout: Instant | None = None  # of the whole execution
    keychain: Mapping[str, KeychainEntry] = msgspec.field(default_factory=dict)  # in document order
    missing: tuple[str, ...] = ()  # what the document requires and this executor lacks (PBK-008)
    is_io: bool = False  # bare names, `output`, `step` and `job` have a meaning (PBK-158)
    joins: Mapping[str, Mapping[str, frozenset[str]]] = msgspec.field(default_factory=dict)
    """Per join and step: which of the join's branches can be reached from the step, not passing the join itself."""
    reads_references: bool = False  # some task may need the body of an earlier result
    literal_texts: frozenset[str] = frozenset()  # texts of the document, which may be names of secrets
    secret_names: tuple[str, ...] = ()  # secrets of the host that the document names
    pool: str = ""  # of the executor: the keychain is resolved where its secrets are
