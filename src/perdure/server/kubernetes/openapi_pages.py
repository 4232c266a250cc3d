"""What objects may say and which operations there are, as OpenAPI: for `kubectl explain`, `apply` and other tools."""

from hashlib import sha256
from typing import Any

from perdure.kernel.dialect import Dialect
from perdure.kernel.json_values import jsontext
from perdure.server.calls import Answer, ApiCall, Result
from perdure.server.kubernetes import patches
from perdure.server.kubernetes.discovery import CONFIG_MAP, EVENT, NAMESPACE, SECRET, ApiResource, resources_of
from perdure.views.api_errors import NotAcceptable, RouteNotFound

Page = dict[str, Any]
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}

OBJECT_META: Page = {
    "description": "What every object has: names, labels, annotations, and what the server says about it.",
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Name of the object, unique in its namespace."},
        "generateName": {"type": "string", "description": "Beginning of a name that the server completes."},
        "namespace": {"type": "string", "description": "Namespace of the object."},
        "labels": {**TEXTS, "description": "Labels, by which objects are selected."},
        "annotations": {**TEXTS, "description": "Notes that are not selected by."},
        "uid": {"type": "string", "description": "Identity of this object; another one of the same name has another."},
        "resourceVersion": {"type": "string", "description": "Changes with every write."},
        "generation": {"type": "integer", "format": "int64", "description": "Counts changes of what the object says."},
        "creationTimestamp": {"type": "string", "format": "date-time", "description": "When it was created."},
        "deletionTimestamp": {"type": "string", "format": "date-time", "description": "Set while it is being deleted."},
        "managedFields": {
            "type": "array",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "description": "Which field manager has set what.",
        },
        "ownerReferences": {
            "type": "array",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "description": "The run that it is a part of.",
        },
    },
}

CORE_SCHEMAS: dict[str, Page] = {
    NAMESPACE.name: {
        "description": "Where objects and runs belong.",
        "properties": {"status": {"type": "object", "properties": {"phase": {"type": "string"}}}},
    },
    CONFIG_MAP.name: {
        "description": "Settings, by name.",
        "properties": {"data": TEXTS, "binaryData": TEXTS, "immutable": {"type": "boolean"}},
    },
    SECRET.name: {
        "description": "Values that cannot be read back: answers contain only their names.",
        "properties": {
            "data": TEXTS,
            "stringData": TEXTS,
            "type": {"type": "string"},
            "immutable": {"type": "boolean"},
        },
    },
    EVENT.name: {
        "description": "Something that happened in a run.",
        "properties": {
            "involvedObject": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            **{name: {"type": "string"} for name in ("reason", "message", "type", "firstTimestamp", "lastTimestamp")},
            "count": {"type": "integer"},
        },
    },
}


def _name(resource: ApiResource) -> str:
    kind = resource.kind
    parts = reversed(kind.group.split(".")) if kind.group else ("perdure", "core")
    return ".".join((*parts, kind.version, kind.name))


def _schema(call: ApiCall, resource: ApiResource, prefix: str) -> Page:
    kind = resource.kind
    own = CORE_SCHEMAS[kind.name] if resource.is_core else _language(call, resource).resource_schema(kind.name)
    head = {
        "apiVersion": {"type": "string", "description": f"Always {kind.api_version}."},
        "kind": {"type": "string", "description": f"Always {kind.name}."},
        "metadata": {"allOf": [{"$ref": f"{prefix}{META}"}], "description": "Names, labels and annotations."},
    }
    return {
        "type": "object",
        "description": own.get("description", ""),
        "properties": {**head, **own.get("properties", {})},
        "x-kubernetes-group-version-kind": [_gvk(resource)],
    }


def _language(call: ApiCall, resource: ApiResource) -> Dialect:
    return call.engine.catalog.language_of(resource.kind)


def _gvk(resource: ApiResource) -> Page:
    return {"group": resource.kind.group, "version": resource.kind.version, "kind": resource.kind.name}


def _parameter(name: str, kind: str, text: str) -> Page:
    return {"name": name, "in": "query", "description": text, "schema": {"type": kind, "uniqueItems": True}}


WRITING = (
    _parameter("dryRun", "string", "All: nothing is stored."),
    _parameter("fieldManager", "string", "Who writes."),
    _parameter("fieldValidation", "string", "Unknown fields are refused, whatever this says."),
)


def _operations(resource: ApiResource, reference: str) -> Page:
    """The paths of one resource."""
    kind = resource.kind
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.has_namespace else f"{root}/{kind.plural}"
    body = {"schema": {"$ref": reference}}
    accepted = [patches.MERGE, patches.JSON_PATCH, patches.APPLY, *([patches.STRATEGIC] if resource.is_core else [])]

    def operation(action: str, *media_types: str) -> Page:
        page: Page = {
            "operationId": f"{action}{kind.name}",
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _gvk(resource),
            "responses": {"200": {"description": "OK", "content": {"application/json": body}}},
        }
        if media_types:
            page["parameters"] = list(WRITING)
            page["requestBody"] = {"content": dict.fromkeys(media_types, body)}
        return page

    verbs = resource.verbs
    collection: Page = {"get": operation("list")}
    item: Page = {"get": operation("get")}
    if "create" in verbs:
        collection["post"] = operation("post", "application/json")
        item["put"] = operation("put", "application/json")
        item["patch"] = operation("patch", *accepted)
        item["delete"] = operation("delete")
    pages = {place: collection, f"{place}/{{name}}": item}
    if resource.has_status:
        pages[f"{place}/{{name}}/status"] = {name: page for name, page in item.items() if name != "delete"}
    if kind.has_namespace:
        pages[f"{root}/{kind.plural}"] = {"get": operation("list")}
    return pages


def _described(call: ApiCall, group: str, version: str) -> Page:
    served = [
        resource
        for (of_group, of_version, _), resource in resources_of(call).items()
        if (of_group, of_version) == (group, version)
    ]
    prefix = "#/components/schemas/"
    paths: Page = {}
    for resource in served:
        paths |= _operations(resource, f"{prefix}{_name(resource)}")
    schemas = {_name(resource): _schema(call, resource, prefix) for resource in served}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Perdure", "version": call.server.version},
        "paths": paths,
        "components": {"schemas": {**schemas, META: OBJECT_META}},
    }


def _places(call: ApiCall) -> dict[str, tuple[str, str]]:
    groups = dict.fromkeys((group, version) for group, version, _ in resources_of(call))
    return {f"apis/{group}/{version}" if group else f"api/{version}": (group, version) for group, version in groups}


async def list_openapi(call: ApiCall) -> Result:
    paths = {}
    for place, (group, version) in _places(call).items():
        digest = sha256(jsontext.encode(_described(call, group, version))).hexdigest()[:32].upper()
        paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={digest}"}
    return Answer({"paths": paths})


async def get_openapi_page(call: ApiCall) -> Result:
    served_group = _places(call).get(call.path["place"])
    if served_group is None:
        raise RouteNotFound("the server could not find the requested resource")
    return Answer(_described(call, *served_group))


async def get_swagger(call: ApiCall) -> Result:
    """Version 2, as JSON; who asks for protocol buffers alone is told that there are none."""
    accept = call.headers.get("accept", "*/*")
    if not any(part.partition(";")[0].strip() in ("application/json", "*/*") for part in accept.split(",")):
        raise NotAcceptable("this is answered as application/json", hint="Ask for /openapi/v3 instead.")
    paths: Page = {}
    definitions: Page = {META: OBJECT_META}
    for resource in resources_of(call).values():
        definitions[_name(resource)] = _schema(call, resource, "#/definitions/")
        paths |= _swagger_paths(_operations(resource, f"#/definitions/{_name(resource)}"))
    info = {"title": "Perdure", "version": call.server.version}
    return Answer({"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions})


def _swagger_paths(paths: Page) -> Page:
    return {
        path: {method: _swagger_operation(operation) for method, operation in operations.items()}
        for path, operations in paths.items()
    }


def _swagger_operation(operation: Page) -> Page:
    body = operation.get("requestBody", {}).get("content", {})
    page = {name: value for name, value in operation.items() if name not in ("requestBody", "responses", "parameters")}
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    parameters = [
        {"name": parameter["name"], "in": "query", "type": "string", "description": parameter["description"]}
        for parameter in operation.get("parameters", ())
    ]
    if body:
        parameters.append({"name": "body", "in": "body", "required": True, "schema": schema})
        page["consumes"] = list(body)
    return {**page, "parameters": parameters, "responses": {"200": {"description": "OK", "schema": schema}}}
