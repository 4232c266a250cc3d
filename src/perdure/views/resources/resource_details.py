"""One resource with everything that belongs to it, as JSON: its versions, its runs, what happened last (`describe`)."""

from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.resource_usage import with_usage
from perdure.engine.resources.resource_views import find_views
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import Resource
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Status
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.access import Query, Question, Scope
from perdure.views.errors import BadRequest
from perdure.views.resources.resource_list import check_visible, meant_namespace
from perdure.views.resources.resource_names import full_resource_names

RUNS_SHOWN = 10
RUNS_LOOKED_AT = 50
EVENTS_SHOWN = 10
EDITIONS_SHOWN = 10


class EditionFacts(msgspec.Struct):
    generation: int
    created_at: Instant


class RunFacts(msgspec.Struct):
    id: RunId
    status: Status
    created_at: Instant
    ended_at: Instant | None


class ResourceDetails(msgspec.Struct):
    resource: dict[str, Any]
    versions: list[EditionFacts]
    runs: list[RunFacts]
    events: list[dict[str, Any]]
    log: list[dict[str, Any]] | None = None


class DescriptionQuery(Query):
    what: list[str] = msgspec.field(default_factory=list)
    namespace: str | None = None


class Description(msgspec.Struct):
    items: list[ResourceDetails]
    now: Instant


async def read_description(client: Client, scope: Scope, query: DescriptionQuery) -> Description:
    if not query.what:
        raise BadRequest("a name is required: KIND NAME or KIND/NAME")
    namespace = meant_namespace(scope, query.namespace)
    items = []
    for name in full_resource_names(client.catalog, query.what):
        assert name.name is not None
        if name.kind.has_namespace:
            check_visible(scope, namespace)
        details = _run_details if name.kind.of_runs else _entry_details
        items.append(await details(client, name.kind, name.name, namespace))
    return Description(items, client.clock.now())


def details_json(details: ResourceDetails) -> dict[str, Any]:
    """For programs; only runs have a log."""
    return {
        "resource": details.resource,
        "versions": msgspec.to_builtins(details.versions),
        "runs": msgspec.to_builtins(details.runs),
        "events": details.events,
        **({} if details.log is None else {"log": details.log}),
    }


DESCRIPTION = Question(
    "describe_resources",
    "/resources:description",
    "resources with their versions, runs and last events",
    DescriptionQuery,
    Description,
    read_description,
)


async def _entry_details(client: Client, kind: ResourceKind, name: str, namespace: str) -> ResourceDetails:
    (resource,) = await with_usage(client, kind, [await client.catalog.get(kind, name, namespace)])
    editions = await client.catalog.editions(kind, name, namespace)
    versions = [EditionFacts(edition.generation, edition.created_at) for edition in editions[-EDITIONS_SHOWN:]]
    return ResourceDetails(resource, versions, [_run(row) for row in await _runs_of(client, kind, resource)], [])


async def _run_details(client: Client, kind: ResourceKind, name: str, namespace: str) -> ResourceDetails:
    views = await find_views(client, kind, name, namespace or "default")
    if not views:
        raise ResourceNotFound(f"there is no {kind.title(name)}")
    row, resource = views[0]
    children = await client.search(RunFilter(parent=row.id, limit=RUNS_SHOWN))
    events = await client.history(row.id)
    recent = [event for event in events if _concerns(event, resource)][-EVENTS_SHOWN:]
    return ResourceDetails(resource, [], [_run(row), *map(_run, children)], recent, await _log(client, row, resource))


def _concerns(event: dict[str, Any], resource: Resource) -> bool:
    """Of a StepRun only what its step did."""
    step = resource.get("spec", {}).get("stepId")
    return step is None or event.get("step") == step


async def _log(client: Client, row: RunRow, resource: Resource) -> list[dict[str, Any]]:
    """What the executions of a step have logged, by attempt."""
    references = resource.get("status", {}).get("logs")
    if not isinstance(references, dict) or len(references) != 1:
        return []
    (address,) = references.values()
    log: list[dict[str, Any]] = await client.body(row.id, address)
    return log


async def _runs_of(client: Client, kind: ResourceKind, resource: Resource) -> list[RunRow]:
    """Runs that were started from the entry, or from a document of its name."""
    if not kind.can_run:
        return []
    metadata = resource["metadata"]
    names = {
        str(metadata.get("name")),
        str(metadata.get("path")),
        f"{metadata.get('namespace')}/{metadata.get('name')}",
    }
    language = client.catalog.language_of(kind).name
    queries = [RunFilter(name=name, language=language, limit=RUNS_LOOKED_AT) for name in sorted(names)]
    rows = [row for query in queries for row in await client.search(query)]
    runs: list[RunRow] = []
    for row in sorted(rows, key=lambda row: row.created_at, reverse=True):
        if len(runs) < RUNS_SHOWN and await _is_in_namespace(client, row, metadata.get("namespace")):
            runs.append(row)
    return runs


async def _is_in_namespace(client: Client, row: RunRow, namespace: str | None) -> bool:
    """Whether a run is one of this namespace, where its program knows of any."""
    program = (await client.execution(row.id)).program
    return getattr(program, "namespace", row.namespace) == namespace


def _run(row: RunRow) -> RunFacts:
    return RunFacts(row.id, row.status, row.created_at, row.ended_at)
