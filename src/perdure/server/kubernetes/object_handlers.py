"""The verbs of the API, the same for every kind: get, list, create, update, patch, delete."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from perdure.engine.decision_threads import SMALL, done_aside
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.catalog_changes import VersionConflict, version_conflict
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.errors import PerdureError, UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.server.calls import Answer, ApiCall, Result
from perdure.server.kubernetes import patches
from perdure.server.kubernetes.catalog_objects import (
    CatalogObjects,
    already_exists,
    warning_header,
)
from perdure.server.kubernetes.core_objects import CoreObjects, NamespaceObjects
from perdure.server.kubernetes.discovery import EVENT, NAMESPACE, ApiResource, find_resource
from perdure.server.kubernetes.event_objects import EventObjects
from perdure.server.kubernetes.object_bodies import check_object, read_json, read_version, read_yaml
from perdure.server.kubernetes.printed_tables import (
    object_list,
    partial_list,
    partial_object,
    table,
    wants_metadata,
    wants_table,
)
from perdure.server.kubernetes.run_objects import RunObjects
from perdure.server.kubernetes.run_resources import without_version
from perdure.server.kubernetes.selectors import (
    FIRST_POSITION,
    NAMED,
    OF_EVENTS,
    ListPlace,
    ObjectQuery,
    ObjectSelection,
    check_match,
    check_place,
    check_policy,
    is_dry,
    list_version,
    read_place,
    split_version,
    write_place,
)
from perdure.server.kubernetes.statuses import AlreadyExists, status_object
from perdure.server.kubernetes.watches import Watch
from perdure.server.request_reading import read_json_text
from perdure.stores.feed_changes import RUN, SHOWN
from perdure.views.administration.access_tokens import check_namespace
from perdure.views.api_errors import MethodNotAllowed, RouteNotFound, UnsupportedMediaType
from perdure.views.errors import BadRequest

Object = dict[str, Any]
NAME_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"  # without vowels and easily confused characters
TRIES = 10  # of generated names, and of patches that others overtake
DELETED_AT_ONCE = 1_000  # objects of a collection


class Objects(Protocol):
    """The objects of one kind, for one request."""

    async def get(self, namespace: str, name: str) -> Object: ...

    async def page(
        self, namespace: str | None, selection: ObjectSelection, limit: int, behind: Sequence[Any]
    ) -> tuple[list[Object], list[Any] | None]: ...

    async def create(self, body: Object, *, dry: bool) -> tuple[Object, list[str]]: ...

    async def replace(
        self, before: Object, body: Object, *, part: str, dry: bool, version: int | None
    ) -> tuple[Object, list[str]]: ...

    async def delete(self, item: Object, *, version: int | None) -> Object | None: ...


def objects_of(call: ApiCall, resource: ApiResource) -> Objects:
    if resource.kind is EVENT:
        return EventObjects(call, resource)
    if resource.kind is NAMESPACE:
        return NamespaceObjects(call, resource)
    if resource.is_core:
        return CoreObjects(call, resource)
    if resource.kind.of_runs:
        return RunObjects(call, resource, call.server.facade.run_views)
    return CatalogObjects(call, resource)


def check_reading(call: ApiCall) -> None:
    _check(call, writes=False)


def check_writing(call: ApiCall) -> None:
    _check(call, writes=True)


def _check(call: ApiCall, *, writes: bool) -> None:
    """What the caller may see, then what the role allows, then what is possible."""
    if "plural" not in call.path:  # a Namespace is under its own name
        call.path = (
            {"plural": NAMESPACE.plural, "name": call.path["namespace"]} if call.path else {"plural": "namespaces"}
        )
        if "name" in call.path:
            call.caller.need_namespace(call.path["name"])
    resource = find_resource(call)
    if _part(call) not in (("", "status") if resource.has_status else ("",)):
        raise RouteNotFound("the server could not find the requested resource")
    if namespace := call.path.get("namespace"):
        check_namespace(namespace)
        call.caller.need_namespace(namespace)
    elif resource.kind.has_namespace and "name" in call.path:
        raise RouteNotFound(f"{resource.kind.name} objects are in a namespace, and the path names none")
    if not writes:
        return
    call.caller.need(resource.writer)
    if not resource.kind.has_namespace:
        call.caller.need_all_namespaces()
    if "update" not in resource.verbs:
        raise MethodNotAllowed(
            f"{resource.kind.name} objects are written by the engine, and can only be read", allow="GET"
        )


def _part(call: ApiCall) -> str:
    return call.path.get("part", "")


def _place(call: ApiCall, resource: ApiResource) -> str:
    return call.path.get("namespace", "") if resource.kind.has_namespace else ""


async def get_object(call: ApiCall) -> Result:
    resource = find_resource(call)
    item = await objects_of(call, resource).get(_place(call, resource), call.path["name"])
    return _told(call, resource.kind, item)


def _told(call: ApiCall, kind: ResourceKind, item: Object, status: int = 200, warnings: Sequence[str] = ()) -> Answer:
    headers = warning_header(warnings)
    if wants_table(call):
        query: ObjectQuery = call.query
        metadata = {"resourceVersion": item.get("metadata", {}).get("resourceVersion", "")}
        item = table(kind, [item], call.engine.clock.wall(), query.include_object, metadata)
    elif wants_metadata(call):
        item = partial_object(item)
    return Answer(item, status, headers)


async def list_objects(call: ApiCall) -> Result:
    """A page of a list; or a watch."""
    query: ObjectQuery = call.query
    resource = find_resource(call)
    if query.limit < 0:
        raise BadRequest("limit: must not be negative")
    selection = ObjectSelection(query, (*NAMED, *OF_EVENTS) if resource.kind is EVENT else NAMED)
    if query.watch:
        return Watch(call, resource, objects_of(call, resource), call.server.facade.feed_tail, selection).stream()
    page = await call.engine.store.read_feed(0, 1)
    place = read_place(query.continue_) if query.continue_ else ListPlace(page.last, [])
    check_place(place, page.floor)
    check_match(query, page.last)
    namespace = call.path.get("namespace") if resource.kind.has_namespace else None
    items, behind = await objects_of(call, resource).page(namespace, selection, query.limit, place.behind)
    metadata: Object = {"resourceVersion": str(list_version(place.position))}
    if behind is not None:
        metadata["continue"] = write_place(ListPlace(place.position, behind))
    if wants_table(call):
        return Answer(table(resource.kind, items, call.engine.clock.wall(), query.include_object, metadata))
    if wants_metadata(call):
        return Answer(partial_list(items, metadata))
    return Answer(object_list(resource.kind, items, metadata))


async def _seen_version(call: ApiCall, resource: ApiResource, metadata: Mapping[str, Any]) -> int | None:
    """The same as the store has it: an object of a watch has the version of its event, or of the list before it.

    That one stands for the present version, if the object has not changed since; otherwise for none.
    """
    version = read_version(metadata)
    if version is None:
        return None
    objects, place, name = objects_of(call, resource), _place(call, resource), call.path["name"]
    if version < FIRST_POSITION:
        return await objects.renewed_version(place, name, version) if isinstance(objects, RunObjects) else version
    position, store = split_version(version)[0], call.engine.store
    item = (await objects.get(place, name))["metadata"]
    kinds, key = ((RUN, SHOWN), item["uid"]) if resource.kind.of_runs else ((resource.kind.name,), name)
    if not (await store.read_feed(position, 1)).continues(position):
        return -1
    return -1 if await store.has_changed(position, kinds, place, key) else int(item["resourceVersion"])


# Writing.


async def create_object(call: ApiCall) -> Result:
    resource = find_resource(call)
    if resource.kind.has_namespace and "namespace" not in call.path:
        raise MethodNotAllowed(
            f"{resource.kind.name} objects are created in a namespace, and the path names none", allow="GET"
        )
    query: ObjectQuery = call.query
    body = check_object(call, resource, await read_json(call))
    metadata = body["metadata"]
    if read_version(metadata) is not None:
        raise BadRequest("metadata.resourceVersion: must not be set of an object that is to be created")
    prefix = metadata.pop("generateName", "")
    if not metadata["name"] and not prefix:
        raise UnfitInput("metadata.name: required, or metadata.generateName")
    objects, dry = objects_of(call, resource), is_dry(query)
    for tries in range(TRIES):
        name = metadata["name"] or _generated(prefix)
        call.audit(resource.kind.title(name), namespace=metadata.get("namespace", ""))
        try:
            with _named(resource, name):
                item, warnings = await objects.create({**body, "metadata": {**metadata, "name": name}}, dry=dry)
            return _told(call, resource.kind, item, 201, warnings)
        except AlreadyExists:
            if metadata["name"] or tries == TRIES - 1:
                raise
    raise already_exists(resource, prefix)


@contextmanager
def _named(resource: ApiResource, name: str) -> Iterator[None]:
    """Refusals inside name what was to be written, as kubectl words it: `The Story "x" is invalid`."""
    try:
        yield
    except PerdureError as refusal:
        refusal.facts["written"] = {"name": name, "kind": resource.kind.name}
        raise


def _generated(prefix: Any) -> str:
    if not isinstance(prefix, str):
        raise UnfitInput("metadata.generateName: must be a string")
    return prefix[:58] + "".join(secrets.choice(NAME_CHARACTERS) for _ in range(5))


async def replace_object(call: ApiCall) -> Result:
    resource = find_resource(call)
    body = check_object(call, resource, await read_json(call))
    if read_version(body["metadata"]) is None:
        raise UnfitInput("metadata.resourceVersion: must be specified for an update")
    objects = objects_of(call, resource)
    _audit(call, resource)
    with _named(resource, call.path["name"]):
        return await _write(call, resource, objects, lambda before: body)


def _audit(call: ApiCall, resource: ApiResource) -> None:
    call.audit(resource.kind.title(call.path["name"]), namespace=_place(call, resource))


async def patch_object(call: ApiCall) -> Result:
    resource = find_resource(call)
    objects = objects_of(call, resource)
    if _media_type(call) == patches.APPLY:
        with _named(resource, call.path["name"]):
            return await _apply(call, resource, objects)
    change = await _read_patch(call, resource)
    _audit(call, resource)
    with _named(resource, call.path["name"]):
        return await _write(call, resource, objects, change)


async def _write(call: ApiCall, resource: ApiResource, objects: Objects, change: Callable[[Object], Object]) -> Result:
    """Have the object changed, as it is when that is decided: again, if it was changed meanwhile by somebody else."""
    query: ObjectQuery = call.query
    for tries in range(TRIES):
        before = await objects.get(_place(call, resource), call.path["name"])
        weight = SMALL + 1 if jsontext.is_large(before) else len(call.raw_body)
        body = check_object(call, resource, await done_aside(weight, partial(change, before)))
        if body["metadata"].get("uid") not in (None, before["metadata"].get("uid")):
            raise version_conflict(resource.kind, call.engine.catalog.key(resource.kind, call.path["name"]))
        version = await _seen_version(call, resource, body["metadata"])
        is_bound = version is not None and str(version) != before["metadata"].get("resourceVersion")
        try:
            item, warnings = await objects.replace(before, body, part=_part(call), dry=is_dry(query), version=version)
            return _told(call, resource.kind, item, 200, warnings)
        except VersionConflict:
            if is_bound or tries == TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _media_type(call: ApiCall) -> str:
    return call.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _apply(call: ApiCall, resource: ApiResource, objects: Objects) -> Result:
    """Server-side apply: creates what is not there; runs have no field managers."""
    query: ObjectQuery = call.query
    if not query.field_manager:
        raise BadRequest("fieldManager: is required for an apply")
    body = check_object(call, resource, await read_yaml(call))
    if body["metadata"].get("managedFields"):
        raise BadRequest("metadata.managedFields: must not be applied")
    body["metadata"].pop("managedFields", None)
    _audit(call, resource)
    if isinstance(objects, CatalogObjects | CoreObjects) and not _part(call):
        version = await _seen_version(call, resource, body["metadata"])
        if version is not None:
            before = await objects.get(_place(call, resource), call.path["name"])
            if str(version) != before["metadata"].get("resourceVersion"):
                raise version_conflict(resource.kind, call.engine.catalog.key(resource.kind, call.path["name"]))
        item, warnings, is_new = await objects.apply(body, dry=is_dry(query), force=query.force)
        return _told(call, resource.kind, item, 201 if is_new else 200, warnings)
    try:
        before = await objects.get(_place(call, resource), call.path["name"])
    except ResourceNotFound:
        item, warnings = await objects.create(body, dry=is_dry(query))
        return _told(call, resource.kind, item, 201, warnings)
    merged = patches.merged(before, body)
    item, warnings = await objects.replace(before, merged, part=_part(call), dry=is_dry(query), version=None)
    return _told(call, resource.kind, item, 200, warnings)


async def _read_patch(call: ApiCall, resource: ApiResource) -> Any:
    """What the patch makes of an object."""
    media_type = _media_type(call)
    accepted = [patches.MERGE, patches.JSON_PATCH, patches.APPLY, *([patches.STRATEGIC] if resource.is_core else [])]
    if media_type not in accepted:
        raise UnsupportedMediaType(f"a patch of a {resource.kind.name} is one of {', '.join(accepted)}")
    value = await done_aside(len(call.raw_body), partial(read_json_text, call.raw_body))
    if media_type == patches.JSON_PATCH:
        return lambda item: patches.patched(item, value)
    if not isinstance(value, dict):
        raise BadRequest("a merge patch is a JSON object")
    if media_type == patches.STRATEGIC:
        patches.check_strategic(value)
    if resource.kind.of_runs:  # members of a run that are merged depend on no other: nothing has to stay as it was
        return lambda item: patches.merged(without_version(item), value)
    return lambda item: patches.merged(item, value)


# Removing.


async def delete_object(call: ApiCall) -> Result:
    resource = find_resource(call)
    query: ObjectQuery = call.query
    options = await read_json(call) if call.raw_body.strip() else {}
    if not isinstance(options, dict):
        raise BadRequest("the options of a delete are an object")
    objects = objects_of(call, resource)
    item = await objects.get(_place(call, resource), call.path["name"])
    _audit(call, resource)
    version = await _check_preconditions(call, resource, item, options)
    check_policy(query, options)
    if is_dry(query, options):
        return _told(call, resource.kind, item)
    left = await objects.delete(item, version=version)
    if left is not None:
        return _told(call, resource.kind, left, 202)
    details = {"name": call.path["name"], "group": resource.kind.group, "kind": resource.kind.plural}
    return Answer(status_object(200, "", "", {**details, "uid": item["metadata"].get("uid", "")}))


async def _check_preconditions(
    call: ApiCall, resource: ApiResource, item: Object, options: Mapping[str, Any]
) -> int | None:
    """What must still be so; the version that must not have changed."""
    asked = options.get("preconditions") or {}
    if not isinstance(asked, dict):
        raise BadRequest("preconditions: must be an object")
    metadata = item["metadata"]
    key = call.engine.catalog.key(resource.kind, call.path["name"], _place(call, resource))
    if asked.get("uid") not in (None, "", metadata.get("uid")):
        raise version_conflict(resource.kind, key)
    version = await _seen_version(call, resource, asked)
    if version is not None and str(version) != metadata.get("resourceVersion"):
        raise version_conflict(resource.kind, key)
    return version


async def delete_collection(call: ApiCall) -> Result:
    resource = find_resource(call)
    query: ObjectQuery = call.query
    if "deletecollection" not in resource.verbs:
        raise MethodNotAllowed(f"{resource.kind.name} objects are deleted by their names", allow="GET, POST")
    options = await read_json(call) if call.raw_body.strip() else {}
    objects, selection = objects_of(call, resource), ObjectSelection(query)
    namespace = call.path.get("namespace") if resource.kind.has_namespace else None
    items, behind = await objects.page(namespace, selection, query.limit or DELETED_AT_ONCE, [])
    while behind is not None and not query.limit:
        more, behind = await objects.page(namespace, selection, DELETED_AT_ONCE, behind)
        items += more
    call.audit(f"{len(items)} {resource.title}", namespace=namespace or "")
    if not is_dry(query, options if isinstance(options, dict) else {}):
        for item in items:
            await objects.delete(item, version=None)
    return Answer(object_list(resource.kind, items, {"resourceVersion": ""}))
