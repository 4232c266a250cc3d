"""Resources as the API reads and changes them: with a version that a change can be bound to."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.engine.client import Client
from perdure.engine.resources.catalog import Catalog, ResourceNotFound, key_of
from perdure.engine.resources.catalog_changes import Change, Entry, Finding, Rejected
from perdure.engine.resources.lookup_answers import read_document
from perdure.engine.resources.resource_views import find_views, views_behind
from perdure.engine.runs.message_sending import SendResult
from perdure.engine.runs.retention import DeletedResources, delete_resources
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import AppliedDocument, Resource
from perdure.kernel.errors import RunNotFound
from perdure.kernel.inputs import Cancel, Input, Reopen, Signal, Steer
from perdure.kernel.json_values.values import RunId
from perdure.views.errors import BadRequest
from perdure.views.resources.document_check import NotApplied
from perdure.views.resources.resource_list import ResourceQuery, list_resources
from perdure.views.resources.resource_names import ResourceName
from perdure.views.runs.run_pages import page_mark, read_page_cursor, write_page_cursor

NO_NAMESPACE = "-"
"""Stands in a path where a kind has no namespaces."""

Sees = Callable[[str], bool]
Place = tuple[Any, ...]


def check_place(kind: ResourceKind, namespace: str) -> str:
    """The namespace of a path, as the catalog has it."""
    if kind.has_namespace or namespace in (NO_NAMESPACE, "default"):
        return namespace if kind.has_namespace else ""
    raise ResourceNotFound(f"a {kind.name} has no namespace; write {NO_NAMESPACE!r} in its place")


async def read_resource(client: Client, kind: ResourceKind, namespace: str, name: str) -> tuple[Resource, int | None]:
    """The resource, and its version if it is an entry of the catalog."""
    resources, _ = await list_resources(client, ResourceName(kind, name), ResourceQuery(namespace, counts_usage=True))
    if kind.of_runs:
        return resources[0].resource, None
    return resources[0].resource, (await client.catalog.row(kind, name, namespace)).version


async def resource_page(
    client: Client,
    kind: ResourceKind,
    namespace: str | None,
    labels: Mapping[str, str],
    sees: Sees,
    *,
    limit: int,
    cursor: str | None,
) -> tuple[list[Resource], str]:
    """Those of a kind that whoever asks may see, in one namespace or in all, and where the next page begins.

    Entries come in order of namespace and name, what runs show in order of the runs, the latest first.
    """
    mark = page_mark([kind.name, namespace, sorted(labels.items())])
    pages = _views_behind if kind.of_runs else _entries_behind
    parts = (int, str, str) if kind.of_runs else (str, str)
    places = () if cursor is None else read_page_cursor(cursor, mark, parts)
    resources: list[Resource] = []
    last: Place = ()
    async with aclosing(pages(client, kind, namespace, labels, places, limit + 1)) as visible_places:
        async for place, resource in visible_places:
            if kind.has_namespace and not sees(namespace_of_resource(resource)):
                continue
            if len(resources) == limit:
                return resources, write_page_cursor(last, mark)
            resources.append(resource)
            last = place
    return resources, ""


async def _entries_behind(
    client: Client,
    kind: ResourceKind,
    namespace: str | None,
    labels: Mapping[str, str],
    place: Place,
    at_once: int,
) -> AsyncGenerator[tuple[Place, Resource], None]:
    behind = (place[0], place[1]) if place else ("", "")
    within = namespace if kind.has_namespace else None
    while True:
        rows = await client.store.list_resources(kind.name, within, labels, (behind, at_once))
        for row in rows:
            yield (row.key.namespace, row.key.name), await read_document(row)
        if len(rows) < at_once:
            return
        behind = (rows[-1].key.namespace, rows[-1].key.name)


async def _views_behind(
    client: Client,
    kind: ResourceKind,
    namespace: str | None,
    labels: Mapping[str, str],
    place: Place,
    at_once: int,
) -> AsyncGenerator[tuple[Place, Resource], None]:
    """A place is the time and id of a run, and the name of what it shows."""
    behind = (place[0], RunId(place[1]), place[2]) if place else None
    async for row, resource in views_behind(client, kind, namespace, labels, behind):
        name = str(resource.get("metadata", {}).get("name", ""))
        yield (row.created_at, row.id, name), resource


def namespace_of_resource(resource: Resource) -> str:
    return str(resource.get("metadata", {}).get("namespace") or "default")


async def declared_entries(catalog: Catalog, texts: Sequence[AppliedDocument], namespace: str) -> list[Entry]:
    """What these texts declare; refused if the catalog cannot take it."""
    entries, findings = await catalog.declared(texts, namespace)
    if findings:
        raise NotApplied(findings)
    return entries


async def put_resource(
    client: Client, key: ResourceKey, text: bytes, version: int | None, *, namespace: str
) -> tuple[list[Change], list[Finding]]:
    """Write one entry, which the text declares under this very name."""
    texts = [AppliedDocument(key.name, text.decode())]  # some kinds are called like their file
    entries = await declared_entries(client.catalog, texts, namespace)
    if [entry.key for entry in entries] != [key]:
        raise BadRequest(f"the document must declare {key.kind} {key.name!r} in its namespace, and nothing else")
    try:
        done = await client.catalog.apply(texts, namespace, versions={} if version is None else {key: version})
    except Rejected as rejected:
        raise NotApplied(rejected.findings) from None
    if client.runtime is not None:
        await client.runtime.read_inbox()
    return done


async def apply_documents(
    client: Client, texts: Sequence[AppliedDocument], namespace: str, *, dry_run: bool = False
) -> tuple[list[Change], list[Finding]]:
    """All of them or nothing."""
    try:
        if dry_run:
            return await client.catalog.apply(texts, namespace, dry_run=True)
        return await client.apply(texts, namespace)
    except Rejected as rejected:
        raise NotApplied(rejected.findings) from None


async def delete_resource(
    client: Client, kind: ResourceKind, namespace: str, name: str, version: int | None
) -> DeletedResources:
    key = key_of(kind, name, namespace)
    if version is None or kind.of_runs:
        return await delete_resources(client, {key: kind})
    await client.catalog.row(kind, name, namespace)
    return DeletedResources(await client.catalog.delete([key], {key: version}), [])


def entry_tag(version: int) -> str:
    return f'"{version}"'


async def matched_version(
    client: Client, kind: ResourceKind, namespace: str, name: str, tags: str | None
) -> int | None:
    """The version that an `If-Match` header binds a change to; None without one; -1: the entry has none of these."""
    if tags is None or kind.of_runs:
        return None
    try:
        version = (await client.catalog.row(kind, name, namespace)).version
    except ResourceNotFound:
        return -1
    accepted = {tag.strip().removeprefix("W/").strip('"') for tag in tags.split(",")}
    return version if accepted & {"*", str(version)} else -1


class ResourcePatch(msgspec.Struct, frozen=True):
    """A merge patch of a run that its language shows as a resource; `part` is the subresource that it changes."""

    kind: str
    members: dict[str, Any]
    part: str | None = None


def check_parts(patch: ResourcePatch) -> None:
    """A patch of one part may touch nothing else; a patch of the whole does not touch the status."""
    if patch.part is not None and set(patch.members) - {patch.part}:
        raise BadRequest(f"--subresource {patch.part} changes {patch.part} only")
    if patch.part is None and "status" in patch.members:
        raise BadRequest("the status is changed with --subresource status")


async def patch_run(client: Client, run: RunId, patch: ResourcePatch, by: str = "") -> SendResult:
    """Send what the language makes of the patch, in order."""
    check_parts(patch)
    kind = client.catalog.kind(patch.kind)
    language = client.catalog.language_of(kind)
    if not kind.of_runs or not language.shows_resources:
        raise BadRequest(f"a {kind.name} is changed with `perdure apply`")
    if not await find_views(client, kind, run):
        raise RunNotFound(f"run {run} is not a {kind.name}")
    try:
        messages = language.patched(await client.execution(run), kind.name, patch.members)
    except ValueError as error:
        raise BadRequest(f"{kind.name.lower()} {run}: {error}") from None
    results = [await client.tell(run, sent_by(message, by)) for message in messages]
    return SendResult(
        all(result.is_decided for result in results),
        all(result.is_live for result in results),
        any(result.is_new for result in results),
        tuple(dict.fromkeys(remark for result in results for remark in result.remarks)),
    )


def sent_by(message: Input, who: str) -> Input:
    """The same message with who has sent it."""
    return replace(message, by=who) if who and isinstance(message, Signal | Steer | Reopen | Cancel) else message
