"""Runs as resources, where their language shows them so."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.engine.decision_threads import ShortTurns, done_aside
from perdure.engine.runs import run_views
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import Resource
from perdure.kernel.errors import RunNotFound
from perdure.kernel.events import RunDisowned
from perdure.kernel.execution import Execution
from perdure.kernel.instants import format_instant
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.protocol import RunFilter, RunRow, Store, StoredRun
from perdure.stores.run_removal import LastView

if TYPE_CHECKING:
    from perdure.engine.client import Client

View = tuple[RunRow, Resource]

MOST_KEPT = 256 << 10  # bytes of what a run showed last
PAGE = 200  # runs that are looked at together
FIRST = (2**62, RunId(""))


async def list_views(
    client: "Client",
    kind: ResourceKind,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> tuple[list[View], bool]:
    """Resources of the kind, those of the latest run first, and whether there may be more than `limit`."""
    views: list[View] = []
    async for view in views_behind(client, kind, namespace, labels):
        if len(views) == limit:
            return views, True
        views.append(view)
    return views, False


async def views_behind(
    client: "Client",
    kind: ResourceKind,
    namespace: str | None,
    labels: Mapping[str, str] | None,
    behind: tuple[Instant, RunId, str] | None = None,
) -> AsyncIterator[View]:
    """Resources of the kind, those of the latest run first. `behind` is a run, and the name of what it shows."""
    language = client.catalog.language_of(kind).name
    place, name = FIRST, ""
    if behind is not None:
        place, name = (behind[0], RunId(behind[1] + " ")), behind[2]  # that run again, and no run below it
    async for row in all_runs(client, RunFilter(language=language, namespaces=_only(namespace)), behind=place):
        is_first = behind is not None and row.id == behind[1]
        for view in await _views(client, kind, row):
            if is_first and name:
                name = "" if _name(view[1]) == name else name
            elif _is_in(view[1], namespace) and _has(view[1], labels or {}):
                yield view


async def find_views(client: "Client", kind: ResourceKind, name: str, namespace: str | None = None) -> list[View]:
    """Those called so, which are several only without a namespace; a run is also found by its id, or the beginning."""
    rows = await _holders(client, kind, name, namespace)
    views = [view for row in rows for view in await _views(client, kind, row)]
    matches = [view for view in views if _is_in(view[1], namespace) and _name(view[1]) == name]
    if matches:
        return matches
    if not rows:
        try:
            run = await client.resolve(name, _only(namespace))
            return (await _views(client, kind, await client.find(run)))[:1]
        except RunNotFound:
            pass
    if kind.is_request:  # the run itself: the store knows all its names
        return []
    return [view for view in (await list_views(client, kind, namespace))[0] if _name(view[1]) == name]


async def find_part(client: "Client", key: ResourceKey) -> Resource | None:
    """A resource that a run shows of a part of itself, by the names that such a run may have."""
    kind = client.catalog.kind(key.kind)
    rows = await _holders(client, kind, key.name, key.namespace)
    views = [view for row in rows for view in await _views(client, kind, row)]
    return next(
        (resource for _, resource in views if _is_in(resource, key.namespace) and _name(resource) == key.name), None
    )


async def _holders(client: "Client", kind: ResourceKind, name: str, namespace: str | None) -> list[RunRow]:
    """The runs that may show it, by their own names."""
    language = client.catalog.language_of(kind)
    label = client.languages[language.name].name_label
    if not label or not language.shows_resources:
        return []
    called = language.holders(kind.name, name)
    return [row for run_name in called for row in await client.named(label, run_name, _only(namespace))]


def _only(namespace: str | None) -> list[str] | None:
    return None if namespace is None else [namespace]


async def all_runs(
    client: "Client", filter: RunFilter, most: int | None = None, behind: tuple[Instant, RunId] | None = FIRST
) -> AsyncIterator[RunRow]:
    """Runs that match, the latest first, read page by page; others have their turn in between."""
    turns, count = ShortTurns(), 0
    while behind is not None:
        rows = await client.search(replace(filter, limit=PAGE, behind=behind))
        for row in rows:
            if count == most:
                return
            yield row
            count += 1
            await turns.pause()
        behind = (rows[-1].created_at, rows[-1].id) if len(rows) == PAGE else None


async def _views(client: "Client", kind: ResourceKind, row: RunRow) -> list[View]:
    language = client.languages[row.language]
    if not language.shows_resources:
        return []
    shown = await client.show(row.id)
    itself, *parts = language.resources(shown)
    if words := shown.get("pending"):  # what is recorded and not decided yet is told with the run, not with its parts
        itself = {**itself, "pending": words}
    return [(row, resource) for resource in (itself, *parts) if resource["kind"] == kind.name]


def _name(resource: Resource) -> str:
    return str(resource.get("metadata", {}).get("name", ""))


def _is_in(resource: Resource, namespace: str | None) -> bool:
    return namespace is None or resource.get("metadata", {}).get("namespace", namespace) == namespace


def _has(resource: Resource, labels: Mapping[str, str]) -> bool:
    run_labels = resource.get("metadata", {}).get("labels", {})
    return all(run_labels.get(name) == value for name, value in labels.items())


async def shown_resources(store: Store, execution: Execution, *, with_parts: bool = True) -> list[Resource]:
    """What a run shows as it is recorded: itself first, with when it was deleted if it goes once it has ended."""
    itself, *parts = execution.dialect.resources(await run_views.show(store, execution, with_parts=with_parts))
    if execution.state.disowned:
        deleted = {"deletionTimestamp": await _deleted_at(store, execution), "deletionGracePeriodSeconds": 0}
        itself = {**itself, "metadata": {**itself["metadata"], **deleted}}
    return [itself, *parts]


async def _deleted_at(store: Store, execution: Execution) -> str:
    turns = await run_views.turns(store, execution.dialect, execution.id)
    instants = (at for at, events in turns if any(isinstance(event, RunDisowned) for event in events))
    return format_instant(next(instants, execution.state.at))


async def last_view(store: Store, dialect: Dialect, stored: StoredRun) -> LastView:
    """What a run that is about to be removed shows, for the change feed."""
    program = await run_views.program_of(store, dialect, stored.row)
    execution = await run_views.fold_stored(store, stored, dialect, program)
    resources = await shown_resources(store, execution)
    return LastView(execution.state.seq, await done_aside(run_views.size_of(stored), lambda: shortened(resources)))


def shortened(resources: Sequence[Resource]) -> bytes:
    """As JSON. Of what does not fit only the metadata are kept: by these it is selected."""
    texts, size = list[bytes](), 0
    for resource in resources:
        text = jsontext.encode(resource)
        if size + len(text) > MOST_KEPT:
            text = jsontext.encode({name: resource[name] for name in ("apiVersion", "kind", "metadata")})
        size += len(text)
        texts.append(text)
    return b"[%b]" % b",".join(texts)
