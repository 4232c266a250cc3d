"""A request as handlers see it, who sent it, and what they answer."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from perdure.engine.decision_threads import WORK_OF_TEXT, done_aside
from perdure.engine.runs.document_start import StartRequest
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.inputs import Sender
from perdure.kernel.json_values.values import Instant, RunId, digest
from perdure.stores.access import Act, AuditRow
from perdure.stores.protocol import RunRow
from perdure.views.administration.access_tokens import AccessRole, check_namespace
from perdure.views.administration.audit_log import TOOL_HEADER, AuditEntry, audit_row
from perdure.views.api_errors import AccessDenied, NamespaceNotFound

if TYPE_CHECKING:
    from perdure.views.runs.live_events import LiveEvents
    from perdure.wiring import Engine

ALL_NAMESPACES = None
MCP = "mcp"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request, and what the token allows."""

    name: str
    role: AccessRole
    via: str = "token"
    namespaces: tuple[str, ...] | None = ALL_NAMESPACES
    pools: tuple[str, ...] = ()
    expires_at: Instant | None = None
    issuer: str = ""  # the identity provider that answers for the name
    csrf: str = ""  # of a browser's session: what its pages must send with what they change
    session: bytes = b""  # its digest

    @property
    def identity(self) -> str:
        """The name as histories have it: a subject of an identity provider is not taken for a token of that name."""
        return f"oidc:{self.name}" if self.via == "oidc" else self.name

    @property
    def owner_of_keys(self) -> str:
        """Among whose Idempotency-Keys those of its requests are."""
        return f"{self.via} {self.name}"

    def as_recorded(self, headers: Mapping[str, str]) -> "Caller":
        """Who the audit log says it was: a tool of a language model acts for its user, whoever that is."""
        return replace(self, name=self.identity, via=MCP) if TOOL_HEADER in headers else self

    def sees(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces

    def need_namespace(self, namespace: str) -> None:
        if not self.sees(namespace):
            raise NamespaceNotFound(f"there is no namespace {namespace!r}")

    def narrowed(self, namespace: str | None) -> tuple[str, ...] | None:
        """The namespaces that a list is about: the one that is asked for, or all that the token has; None: all."""
        if namespace is None:
            return self.namespaces
        check_namespace(namespace)
        self.need_namespace(namespace)
        return (namespace,)

    def need(self, role: AccessRole) -> None:
        if not self.role.includes(role):
            raise AccessDenied(f"this needs a token with the role {role.value}; {self.name!r} has {self.role.value}")

    def need_all_namespaces(self) -> None:
        if self.namespaces is not None:
            raise AccessDenied("this needs a token for all namespaces", hint="Use a token without --namespace.")

    @property
    def only_namespace(self) -> str:
        """Where a request belongs that names no namespace, if the token has exactly one; otherwise empty."""
        return self.namespaces[0] if self.namespaces is not None and len(self.namespaces) == 1 else ""

    def place_of_documents(self, meant: str) -> str:
        """Where a document is looked at that names no namespace: one that the token sees."""
        if meant or self.namespaces is None or self.sees(DEFAULT_NAMESPACE):
            return meant or DEFAULT_NAMESPACE
        return next(iter(self.namespaces), DEFAULT_NAMESPACE)

    def meant_namespace(self, asked: str | None) -> str:
        """The namespace of a request, which the token sees; empty: it names none, and none follows from the token."""
        namespace = asked or self.only_namespace
        if namespace:
            check_namespace(namespace)
            self.need_namespace(namespace)
        return namespace


async def _stays() -> bool:
    return False


@dataclass(slots=True)
class ApiCall:
    """One request, read and checked against its route."""

    engine: "Engine"
    engine_of_documents: "Engine"  # the same, for documents that come with requests
    caller: Caller
    path: Mapping[str, str]
    headers: Mapping[str, str]
    query: Any = None
    body: Any = None
    raw_body: bytes = b""
    key: str | None = None  # the Idempotency-Key, told apart from those of other tokens
    row: RunRow | None = None
    body_digest: bytes = b""  # of method, path and body, beside such a key
    request_id: str = ""
    source: str = ""  # the address that the request came from
    is_secret: bool = False  # the answer is told once, and not kept
    live: "LiveEvents" = field(init=False)
    server: Any = None  # `ApiServer`: facts about the process
    is_gone: Callable[[], Awaitable[bool]] = _stays  # whether the caller has hung up
    act: Act | None = None  # of a request that changes something

    async def check_caller(self, *, has_waited: bool = False) -> None:
        """Before something is done or told that was waited for: a token may have been revoked meanwhile."""
        await self.server.authentication.check_known(self.caller, has_waited=has_waited)

    @property
    def documents(self) -> "Engine":
        """The engine for documents that come with the request."""
        return self.engine_of_documents if self.act is None else self.engine_of_documents.acting(self.act)

    @property
    def run(self) -> RunRow:
        """The run that the path names; the caller may see it."""
        assert self.row is not None, "the path of the route names a run"
        return self.row

    def start_request(self, namespace: str) -> StartRequest | None:
        """The Idempotency-Key as the key of a new run; like a start's token it counts in one namespace."""
        if self.key is None:
            return None
        key = self.key if namespace == DEFAULT_NAMESPACE else digest(f"{namespace}\0{self.key}".encode()).hex()[:32]
        return StartRequest(key, self.body_digest)

    async def check_documents(self, texts: Sequence[AppliedDocument]) -> None:
        """Documents of a request are in namespaces of its sender: others are not there for it."""
        if self.caller.namespaces is None:
            return
        size = WORK_OF_TEXT * sum(len(document.text) for document in texts)
        for declared in await done_aside(size, lambda: self.documents.validator.declared(texts, "")):
            named = declared.body.get("metadata", {}).get("namespace")
            kind = self.engine.catalog.kind(declared.kind)
            if isinstance(named, str) and kind.has_namespace and not declared.source:
                self.caller.need_namespace(named)

    def audit(self, object: str, *, run: RunId | None = None, namespace: str = "") -> None:
        """What the audit log says that this request was about."""
        if self.act is not None:
            self.act.about(object, run=run, namespace=namespace)

    def begin_act(self, verb: str) -> None:
        """What the handler changes is recorded in its own transaction."""

        def write(act: Act) -> AuditRow:
            who = self.caller.as_recorded(self.headers)
            about = (act.object, act.namespace, self.source, self.request_id)
            claimed_name = getattr(self.body, "by", None) or getattr(self.body, "updatedBy", None) or ""
            given_by = "" if claimed_name == who.name else claimed_name[:200]
            entry = AuditEntry(who.name, who.via, verb, "ok", *about, given_by=given_by)
            return audit_row(entry, self.engine.clock.now(), act.run)

        self.act = Act(write)
        self.act.sender = Sender(self.caller.via, self.caller.issuer)
        self.act.starter = (self.caller.name, self.caller.via)

    def end_act(self) -> None:
        """The record refers to this call, and the call to it: without an end both would keep the request's body."""
        if self.act is not None:
            self.act = self.body = None
            self.raw_body = b""
            self.engine = self.server.engine


@dataclass(frozen=True, slots=True)
class Answer:
    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventStream:
    """Server-Sent Events, or lines of JSON, as they come."""

    events: AsyncGenerator[bytes, None]
    headers: Mapping[str, str] = field(default_factory=dict)


Result = Answer | EventStream


async def visible_run(engine: "Engine", caller: Caller, name: str) -> RunRow:
    """The run of this id, name or beginning of an id, among those that the caller may see."""
    row = await engine.store.find(RunId(name))
    if row is not None and caller.sees(row.namespace):
        return row
    return await engine.find(await engine.resolve(name, caller.namespaces))


def check_body(caller: Caller, value: Any) -> None:
    """A namespace in the body that the caller may not see is not there: that is said before what the role lacks."""
    if isinstance(value, dict):
        several = value.get("namespaces")
        parts = [value, *(part for name in ("filter", "plan") if isinstance(part := value.get(name), dict))]
        named = [part.get("namespace") for part in parts]
        for namespace in [*named, *(several if isinstance(several, list) else ())]:
            if isinstance(namespace, str) and namespace:
                caller.need_namespace(namespace)


@dataclass(slots=True)
class SeenRequest:
    """What is known of a request when it is refused."""

    address: str
    verb: str
    caller: Caller | None = None
    changes: bool = False
    is_kubernetes: bool = False
    path: Mapping[str, str] = field(default_factory=dict)  # its parameters

    def must_audit(self, status: int) -> bool:
        return status in (401, 403) or (self.changes and status != 429)
