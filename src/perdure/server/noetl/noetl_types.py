"""Bodies and parameters that NoETL's clients send. Members that are not named here are ignored, as its servers do."""

from typing import Annotated, Any

import msgspec

PAGE_SIZE = 1_000

Page = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Text = Annotated[str, msgspec.Meta(max_length=4_096)]


class NoetlBody(msgspec.Struct, kw_only=True):
    """A body or the parameters of a request of NoETL's surface."""


class NoQuery(NoetlBody):
    """Parameters of a request that knows none: clients of NoETL send some all the same."""


class RegisterBody(NoetlBody):
    content: str  # plain, or Base64
    resource_type: str | None = None


class RegisterBatchBody(NoetlBody):
    items: Annotated[list[RegisterBody], msgspec.Meta(max_length=1_000)]


class CatalogListBody(NoetlBody):
    resource_type: str | None = None
    path: Text | None = None
    agent_only: bool = False
    capability: str | None = None
    capabilities: list[str] | None = None

    @property
    def wants_agents(self) -> bool:
        return self.agent_only or bool(self.capability or self.capabilities)


class CatalogResourceBody(NoetlBody):
    catalog_id: Text | None = None
    path: Text | None = None
    version: int | str | None = None


class VersionQuery(NoetlBody):
    version: str | None = None


class PlaybookIdQuery(NoetlBody):
    playbook_id: Text  # its path, or a `catalog_id`


class ContentBody(NoetlBody):
    content: str


class ExecuteBody(NoetlBody):
    path: Text | None = None
    catalog_id: Text | None = None
    version: int | str | None = None
    workload: dict[str, Any] | None = None
    payload: dict[str, Any] | None = None  # an older name of it
    resource_kind: str | None = None
    parent_execution_id: int | str | None = None
    dedup: dict[str, Any] | None = None


class ExecuteBatchBody(NoetlBody):
    executions: Annotated[list[ExecuteBody], msgspec.Meta(max_length=100)]


class ExecutionsQuery(NoetlBody):
    page: Page = 1
    page_size: Page = 100
    limit: Page | None = None
    offset: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    status: str | None = None
    path: Text | None = None
    catalog_id: Text | None = None


class ExecutionQuery(NoetlBody):
    page: Page = 1
    page_size: Page = 100
    since_event_id: Number = 0
    event_type: str | None = None
    include_events: bool = True


class CancelExecutionBody(NoetlBody):
    reason: str | None = None
    cascade: bool = True


class CleanupBody(NoetlBody):
    older_than_minutes: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 5
    dry_run: bool = False


class FinalizeBody(NoetlBody):
    status: str | None = None
    error: Any = None
    reason: str | None = None


class VariablesBody(NoetlBody):
    variables: dict[str, Any]
    reason: str = ""


class ContextBody(NoetlBody):
    ctx: dict[str, Any]
    reason: str = ""


class ReplayQuery(NoetlBody):
    execution_id: Text
    as_of_event_id: Number | None = None
    as_of_position: Number | None = None
    as_of_time: str | None = None


class ResolveQuery(NoetlBody):
    ref: Text


Word = Annotated[str, msgspec.Meta(max_length=200)]


class CredentialBody(NoetlBody):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    type: Word | None = None
    credential_type: Word | None = None
    data: dict[str, Any] = {}
    meta: Any = None
    tags: Annotated[list[Word], msgspec.Meta(max_length=100)] | Text | None = None
    description: Text | None = None


class CredentialQuery(NoetlBody):
    type: str | None = None
    q: str | None = None
