"""Resources in a list: entries of the catalog, and runs as their language shows them (`get`, `apply`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.documents import write_document
from perdure.engine.catalog import ResourceNotFound
from perdure.engine.catalog_changes import Change
from perdure.engine.client import Client
from perdure.engine.resource_usage import with_usage
from perdure.engine.resource_views import View, find_views, list_views
from perdure.kernel.resource_kinds import ResourceKind
from perdure.kernel.validation import Resource
from perdure.views.resource_names import ResourceName


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


def resource_yaml(value: Any) -> str:
    return write_document(value)
