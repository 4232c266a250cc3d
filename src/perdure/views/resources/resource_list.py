"""Resources in a list: entries of the catalog, and runs as their language shows them (`get`, `apply`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from perdure.documents import UnreadableText, read_document, write_document
from perdure.engine.client import Client
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.catalog_changes import Change
from perdure.engine.resources.resource_usage import with_usage
from perdure.engine.resources.resource_views import View, find_views, list_views
from perdure.kernel.documents.resource_kinds import STEP_LINES, ResourceKind
from perdure.kernel.documents.validation import Resource
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant
from perdure.stores.protocol import ResourceRow
from perdure.views.access import Query, Question, Scope
from perdure.views.errors import BadRequest
from perdure.views.resources.resource_names import ResourceName, resource_names
from perdure.views.runs.run_pages import read_label


@dataclass(frozen=True, slots=True)
class NamedResource:
    """A resource under the name by which it can be asked for."""

    kind: ResourceKind
    name: str
    resource: Resource


@dataclass(frozen=True, slots=True)
class ResourceQuery:
    namespace: str = ""  # "": the default one
    all_namespaces: bool = False
    labels: Mapping[str, str] | None = None
    limit: int = 500  # of runs
    counts_usage: bool = False  # as whole resources have it, and tables do not


async def list_resources(client: Client, name: ResourceName, query: ResourceQuery) -> tuple[list[NamedResource], bool]:
    """The resources of a kind, or the one of that name; and whether there are more."""
    labels = dict(query.labels or {})
    namespace = None if query.all_namespaces else query.namespace or "default"
    if name.kind.of_runs:
        views, is_more = await _run_views(client, name, namespace, labels, query.limit)
        return [_named_view(name.kind, view) for view in views], is_more
    if name.name is None:
        entries = await client.catalog.search(name.kind, namespace, labels)
    else:
        entries = [(name.name, await client.catalog.get(name.kind, name.name, query.namespace))]
    resources = [resource for _, resource in entries]
    if query.counts_usage:
        resources = await with_usage(client, name.kind, resources)
    named = zip(entries, resources, strict=True)
    return [NamedResource(name.kind, entry[0], resource) for entry, resource in named], False


async def _run_views(
    client: Client, name: ResourceName, namespace: str | None, labels: dict[str, str], limit: int
) -> tuple[list[View], bool]:
    if name.name is None:
        return await list_views(client, name.kind, namespace, labels, limit)
    views = await find_views(client, name.kind, name.name, namespace)
    if not views:
        raise ResourceNotFound(f"there is no {name.kind.title(name.name)}")
    return views, False


def _named_view(kind: ResourceKind, view: View) -> NamedResource:
    row, resource = view
    return NamedResource(kind, str(resource.get("metadata", {}).get("name", row.id)), resource)


class ResourceListQuery(Query):
    """`what`: words as `KIND`, `KIND NAME…`, `KIND/NAME…`; `usage`: as whole resources have it."""

    what: list[str] = msgspec.field(default_factory=list)
    namespace: str | None = None
    all_namespaces: bool = False
    label: list[str] = msgspec.field(default_factory=list)
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 500
    usage: bool = False


class ResourceListing(msgspec.Struct):
    resources: list[NamedResource]
    is_cut: bool  # there are more
    is_alone: bool  # one resource was asked for by name
    has_namespaces: bool  # of the kinds
    now: Instant


async def read_resources(client: Client, scope: Scope, query: ResourceListQuery) -> ResourceListing:
    if not query.what:
        raise BadRequest("name a kind of resources")
    names = resource_names(client.catalog, query.what)
    namespace = meant_namespace(scope, query.namespace)
    asked = ResourceQuery(namespace, query.all_namespaces, dict(map(read_label, query.label)), query.limit, query.usage)
    visible: list[NamedResource] = []
    is_cut = False
    for name in names:
        is_filtered = name.kind.has_namespace and query.all_namespaces
        if name.kind.has_namespace and not is_filtered:
            check_visible(scope, namespace)
        more, is_more = await list_resources(client, name, asked)
        visible += [resource for resource in more if not is_filtered or _is_visible(scope, resource)]
        is_cut = is_cut or is_more
    is_alone = len(names) == 1 and names[0].name is not None
    has_namespaces = any(name.kind.has_namespace for name in names)
    return ResourceListing(visible, is_cut, is_alone, has_namespaces, client.clock.now())


def meant_namespace(scope: Scope, named: str | None) -> str:
    """The namespace that is asked for, or the only one that the asker sees; empty: the default one."""
    return named or (scope.namespaces[0] if scope.namespaces is not None and len(scope.namespaces) == 1 else "")


def check_visible(scope: Scope, namespace: str) -> None:
    """What the asker may not see is not there."""
    if scope.namespaces is not None and (namespace or "default") not in scope.namespaces:
        raise ResourceNotFound(f"there is nothing in namespace {namespace or 'default'!r}")


def _is_visible(scope: Scope, named: NamedResource) -> bool:
    place = str(named.resource.get("metadata", {}).get("namespace") or "default")
    return scope.namespaces is None or place in scope.namespaces


RESOURCES = Question(
    "list_resources_at_a_glance",
    "/resources:listing",
    "resources as `get` lists them",
    ResourceListQuery,
    ResourceListing,
    read_resources,
)


def kind_json(kind: ResourceKind) -> dict[str, Any]:
    return {
        "kind": kind.name,
        "plural": kind.plural,
        "short": list(kind.short),
        "group": kind.group,
        "namespaced": kind.has_namespace,
    }


def change_json(change: Change) -> dict[str, Any]:
    """What `apply` did with one resource."""
    return {
        "kind": change.kind.name,
        "namespace": change.key.namespace or None,
        "name": change.key.name,
        "result": change.outcome.value,
        "generation": change.generation,
        "file": change.file,
    }


def written_text(row: ResourceRow) -> bytes:
    """An entry as it was written. One that is kept as data is written as YAML, without what the catalog has added."""
    if row.source:
        return row.source
    resource = jsontext.decode(row.body)
    metadata = resource.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("annotations"), dict):
        return write_document(resource).encode()
    own = {name: note for name, note in metadata["annotations"].items() if name != STEP_LINES}
    kept = {name: value for name, value in metadata.items() if name != "annotations"}
    resource["metadata"] = {**kept, "annotations": own} if own else kept
    return write_document(resource).encode()


def resource_yaml(value: Any) -> str:
    return write_document(value)


def read_resource_yaml(text: bytes) -> Any:
    try:
        return read_document(text).data
    except UnreadableText as unreadable:
        raise BadRequest(f"the body cannot be read: {unreadable.problems[0].message}") from None
