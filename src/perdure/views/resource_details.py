"""One resource with everything that belongs to it, as JSON: its versions, its runs, what happened last (`describe`)."""

from typing import Any

from perdure.engine.catalog import ResourceNotFound
from perdure.engine.client import Client
from perdure.engine.resource_usage import with_usage
from perdure.engine.resource_views import find_views
from perdure.kernel.resource_kinds import ResourceKind
from perdure.kernel.validation import Resource
from perdure.stores.protocol import Edition, RunFilter, RunRow
from perdure.views.resource_names import ResourceName

RUNS_SHOWN = 10
RUNS_LOOKED_AT = 50
EVENTS_SHOWN = 10
EDITIONS_SHOWN = 10


async def resource_details_json(client: Client, name: ResourceName, namespace: str) -> dict[str, Any]:
    assert name.name is not None
    details = _run_details if name.kind.of_runs else _entry_details
    return await details(client, name.kind, name.name, namespace)


async def _entry_details(client: Client, kind: ResourceKind, name: str, namespace: str) -> dict[str, Any]:
    (resource,) = await with_usage(client, kind, [await client.catalog.get(kind, name, namespace)])
    editions = await client.catalog.editions(kind, name, namespace)
    return {
        "resource": resource,
        "versions": [_edition(edition) for edition in editions[-EDITIONS_SHOWN:]],
        "runs": [_run(row) for row in await _runs_of(client, kind, resource)],
        "events": [],
    }


async def _run_details(client: Client, kind: ResourceKind, name: str, namespace: str) -> dict[str, Any]:
    views = await find_views(client, kind, name, namespace or "default")
    if not views:
        raise ResourceNotFound(f"there is no {kind.title(name)}")
    row, resource = views[0]
    children = await client.search(RunFilter(parent=row.id, limit=RUNS_SHOWN))
    events = await client.history(row.id)
    return {
        "resource": resource,
        "versions": [],
        "runs": [_run(row), *map(_run, children)],
        "events": [event for event in events if _concerns(event, resource)][-EVENTS_SHOWN:],
        "log": await _log(client, row, resource),
    }


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


def _edition(edition: Edition) -> dict[str, Any]:
    return {"generation": edition.generation, "created_at": edition.created_at}


def _run(row: RunRow) -> dict[str, Any]:
    return {"id": row.id, "status": row.status, "created_at": row.created_at, "ended_at": row.ended_at}
