"""Runs as resources, where their language shows them so."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perdure.kernel.dialect import Resourceful
from perdure.kernel.errors import RunNotFound
from perdure.kernel.judging import Resource
from perdure.kernel.kinds import Kind
from perdure.stores.protocol import Filter, RunRow

if TYPE_CHECKING:
    from perdure.engine.client import Client

View = tuple[RunRow, Resource]


async def list_views(
    client: "Client", kind: Kind, namespace: str | None = None, labels: Mapping[str, str] | None = None
) -> list[View]:
    """Every resource of the kind, those of the latest run first."""
    rows = [row for row in await client.search(Filter()) if row.language == client.catalog.language_of(kind).name]
    views = [view for row in rows for view in await _views(client, kind, row)]
    return [view for view in views if _is_in(view[1], namespace) and _has(view[1], labels or {})]


async def find_views(client: "Client", kind: Kind, name: str, namespace: str | None = None) -> list[View]:
    """Those called so; a run is also found by its id, or the beginning of it."""
    try:
        row = await client.find(await client.resolve(name))
    except RunNotFound:
        row = None
    views = await _views(client, kind, row) if row is not None else []
    if views and views[0][1]["kind"] == kind.name:
        return views[:1]
    found = await list_views(client, kind, namespace)
    return [view for view in found if view[1].get("metadata", {}).get("name") == name]


async def _views(client: "Client", kind: Kind, row: RunRow) -> list[View]:
    language = client.languages[row.language]
    if not isinstance(language, Resourceful):
        return []
    return [(row, one) for one in language.resources(await client.show(row.id)) if one["kind"] == kind.name]


def _is_in(resource: Resource, namespace: str | None) -> bool:
    return namespace is None or resource.get("metadata", {}).get("namespace", namespace) == namespace


def _has(resource: Resource, labels: Mapping[str, str]) -> bool:
    own = resource.get("metadata", {}).get("labels", {})
    return all(own.get(name) == value for name, value in labels.items())
