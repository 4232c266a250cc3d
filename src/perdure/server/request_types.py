"""Bodies and parameters of requests, and bodies of answers. What is not named here is refused."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from perdure.engine.decision_threads import SMALL, done_aside
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values import jsontext
from perdure.stores.protocol import RunFilter
from perdure.views.runs.run_pages import read_label, read_statuses
from perdure.views.times import read_time

Limit = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
Few = Annotated[dict[str, Any], msgspec.Meta(max_length=1_000)]
Wait = Annotated[float, msgspec.Meta(ge=0)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Texts = Annotated[list[str], msgspec.Meta(max_length=100)]
Text = str | dict[str, Any]
FileNames = Annotated[
    list[Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]], msgspec.Meta(max_length=1_000)
]
Documents = Annotated[list[Text], msgspec.Meta(max_length=1_000)]


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A body of a request, or its parameters."""


async def text_of(document: Text) -> bytes:
    """A document as text, whether it was sent as one or as an object."""
    if isinstance(document, str):
        return document.encode()
    size = SMALL + 1 if jsontext.is_large(document) else 0
    return await done_aside(size, lambda: jsontext.encode(document))


async def applied_texts(
    documents: list[Text], files: Sequence[str] = (), labels: Mapping[str, str] | None = None
) -> list[AppliedDocument]:
    """Each under the name of its file if that is given, else by its place."""
    if not documents:
        return []
    names = [*files, *(f"apply[{place}]" for place in range(len(files), len(documents)))]
    shared_labels = tuple((labels or {}).items())
    return [
        AppliedDocument(names[place], (await text_of(text)).decode(), shared_labels)
        for place, text in enumerate(documents)
    ]


class StartBody(Body):
    document: Text | None = None
    name: str | None = None  # of an entry of the catalog; beside a document: which of several is run
    namespace: str | None = None
    default_name: str | None = None  # of a document that has no name of its own
    input: Any = None
    arguments: Any = None
    target: str | None = None  # the step at which a Playbook begins
    env: dict[str, str] = {}  # variables that the document may read
    set: dict[str, Any] = {}
    token: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    labels: dict[str, str] = {}
    apply: Documents = []
    traceparent: str | None = None  # the trace that the run belongs to; else the header says so


class RunCriteria(Body):
    """What lists and batches choose runs by, besides status and labels."""

    language: str | None = None
    name: str | None = None
    namespace: str | None = None
    parent: str | None = None
    started_after: str | None = None
    started_before: str | None = None
    q: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class RunSelection(RunCriteria):
    status: Texts = []
    label: Texts = []


class RunQuery(RunSelection):
    limit: Limit = 100
    cursor: str | None = None


class ChangeQuery(RunSelection):
    after: Number | None = None
    limit: Limit = 100


class PictureQuery(Body):
    at: Annotated[int, msgspec.Meta(ge=1)] | None = None


class GraphQuery(PictureQuery):
    under: str = ""  # a node: what is in it, or its visits
    cursor: str | None = None


class ResultQuery(Body):
    wait: Wait = 0


class EventsQuery(Body):
    after: Number | None = None
    limit: Limit = 100
    raw: bool = False


class PageQuery(Body):
    limit: Limit = 100
    cursor: str | None = None


class DeliveryQuery(PageQuery):
    state: Literal["open", "delivered", "dead"] | None = None


class OverviewQuery(Body):
    limit: Limit = 50


class LogQuery(PageQuery):
    step: str | None = None


class CancelBody(Body):
    reason: str = ""
    cascade: bool = False
    by: str | None = None


class SignalBody(Body):
    value: Any = None
    key: str | None = None
    by: str | None = None


class GateBody(Body):
    state: Literal["Approved", "Rejected"]
    message: str = ""
    key: str | None = None
    by: str | None = None
    updatedBy: str | None = None  # noqa: N815  (as clients write it)
    updatedAt: str | None = None  # noqa: N815


class PatchBody(Body):
    ctx: dict[str, Any] = {}
    set: dict[str, Any] = {}
    kind: str | None = None  # with `patch`: the run as a resource
    patch: dict[str, Any] | None = None
    subresource: Literal["status"] | None = None
    reason: str = ""
    key: str | None = None
    by: str | None = None


class RedriveBody(Body):
    step: str = msgspec.field(default="", name="from")
    key: str | None = None
    by: str | None = None


class ForkBody(Body):
    at: Annotated[int, msgspec.Meta(ge=1)] | str | None = None  # an event: its number, its id, or a time
    at_failure: bool = False
    input: Any = msgspec.UNSET  # another input; with at_failure
    document: Text | None = None  # a newer document; with at_failure
    by: str | None = None


class PauseBody(Body):
    reason: str = ""
    key: str | None = None
    by: str | None = None


class SettleBody(Body):
    done: bool
    result: Any = None
    key: str | None = None
    by: str | None = None


class EvaluateBody(Body):
    step: str
    expression: str
    at: Annotated[int, msgspec.Meta(ge=1)] | str | None = None  # an event: its number, its id, or a time


class SandboxBody(Body):
    document: Text
    apply: Documents = []
    name: str = ""
    namespace: str | None = None
    input: Any = None
    arguments: Any = None
    mocks: Few = {}  # by provider or Engram: {"answer": …}, {"failure": {"code", "message"}}, or a list
    signals: Few = {}  # by name: sent at the start
    gates: Annotated[dict[str, str], msgspec.Meta(max_length=1_000)] = {}  # by step: Approved or Rejected at the start
    most: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 31_622_400.0  # seconds of virtual time


class BatchFilter(RunCriteria):
    status: str | Texts = []
    label: str | Texts = []
    children: bool = False
    all: bool = False


class BatchBody(Body):
    verb: Literal["cancel", "redrive", "pause", "resume", "signal", "delete"]
    filter: BatchFilter
    dry_run: bool = False
    cursor: str = ""
    reason: str = ""
    cascade: bool = False
    step: str = msgspec.field(default="", name="from")
    signal: str = ""
    value: Any = None


class CheckBody(Body):
    document: Text
    apply: Documents = []
    name: str = ""
    namespace: str | None = None


class ApplyBody(Body):
    documents: Documents
    files: FileNames = []  # where the documents come from, in their order: a Flow has the name of its file
    namespace: str = ""
    labels: dict[str, str] = {}  # for all that is applied, besides those of the documents
    dry_run: bool = False


class ResourcePageQuery(Body):
    label: Texts = []
    limit: Limit = 100
    cursor: str | None = None


class TokenBody(Body):
    name: str
    role: Literal["viewer", "operator", "author", "admin", "worker"]
    namespaces: list[str] = []
    pools: list[str] = []
    expires_in: Annotated[float, msgspec.Meta(gt=0, le=1e10)] | None = None  # seconds


class AuditQuery(Body):
    run: str | None = None
    limit: Limit = 100
    cursor: str | None = None


def run_filter(query: RunSelection | BatchFilter) -> RunFilter:
    """Without namespaces: those depend on who asks."""
    return RunFilter(
        statuses=read_statuses(_listed(query.status)),
        name=query.name,
        language=query.language,
        labels=dict(map(read_label, _listed(query.label))),
        created_after=read_time(query.started_after),
        created_before=read_time(query.started_before),
    )


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


# Answers.


class Tasks(msgspec.Struct):
    done: int
    open: int


class RunItem(msgspec.Struct):
    """A run in a list."""

    id: str
    language: str
    name: str
    namespace: str
    status: str
    parent: str | None
    labels: dict[str, str]
    started_at: str
    ended_at: str | None
    owner: str | None


class Who(msgspec.Struct):
    name: str
    via: str


class RunAnswer(RunItem):
    started_by: Who | None
    tasks: Tasks
    waits_for: list[str]
    pending: list[dict[str, Any]]
    error: dict[str, Any] | None = None
    stuck: str | None = None
    has_streams: bool = False  # it is a streaming Story whose topology has begun: it has figures of its own


class RunPage(msgspec.Struct, omit_defaults=True):
    items: list[RunItem]
    next: str = ""


class ChangePage(msgspec.Struct):
    items: list[dict[str, Any]]
    next: int  # the position to continue from


class ItemPage(msgspec.Struct, omit_defaults=True):
    items: list[dict[str, Any]]
    next: str | int = ""


class ResultAnswer(msgspec.Struct, omit_defaults=True):
    id: str
    status: str
    value: Any = msgspec.UNSET
    error: dict[str, Any] | None = None


class SentAnswer(msgspec.Struct):
    """What became of a control message."""

    id: str
    decided: bool
    pending: bool
    live: bool
    is_new: bool = msgspec.field(name="new")
    remarks: list[str]


class ForkAnswer(msgspec.Struct):
    id: str
    source: str


class DeletedAnswer(msgspec.Struct):
    deleted: list[str]


class TokenAnswer(msgspec.Struct):
    name: str
    role: str
    namespaces: list[str] | None
    pools: list[str]
    expires_at: str | None
    token: str


class WhoAnswer(msgspec.Struct):
    name: str
    role: str
    namespaces: list[str] | None
    pools: list[str]
    expires_at: str | None
    via: str
    csrf: str | msgspec.UnsetType = msgspec.UNSET  # of a browser's session: for the header X-CSRF-Token


class CheckAnswer(msgspec.Struct):
    language: str | None
    valid: bool
    problems: list[dict[str, Any]]
    warnings: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    graph: dict[str, Any] | None  # of a document without problems


class ApplyAnswer(msgspec.Struct):
    changes: list[dict[str, Any]]
    warnings: list[dict[str, Any]]


class BatchResult(msgspec.Struct, omit_defaults=True):
    count: int
    ids: list[str]
    failed: list[dict[str, Any]]
    dry_run: bool
    next: str = ""
    more: bool = False
    steered: list[dict[str, Any]] = []
