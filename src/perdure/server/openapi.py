"""The description of the API (OpenAPI 3.1), made from the table of routes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.server.problems import MEDIA_TYPE, TITLES
from perdure.server.request_reading import JSON, SSE

if TYPE_CHECKING:
    from perdure.server.route_table import Route

EVERY_REFUSAL = (400, 403, 406, 408, 413, 421, 431, 503)
"""What any request may be answered: by the checks before its handler, or while the store does not answer."""

_REF = "#/components/schemas/{name}"

PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "hint"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "hint": {"type": "string"},
        "request": {"type": "string"},
        "problems": {"type": "array", "items": {"type": "object"}},
    },
}


def describe(routes: "Sequence[Route]", version: str) -> dict[str, Any]:
    named = (kind for route in routes for kind in (route.body, route.answer, *route.answers.values()))
    kinds = [kind for kind in named if kind is not None]
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Perdure", "version": version},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: "Route") -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.verb,
        "summary": route.summary,
        "parameters": [*map(_path_parameter, route.parameters), *_query_parameters(route), *_header_parameters(route)],
        "responses": _responses(route),
    }
    if route.role is None:
        operation["security"] = []
    else:
        operation["x-role"] = route.role.value
    if route.takes_value:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": {}}}}
    elif route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_is_optional,
            "content": {JSON: {"schema": _schema(route.body)}},
        }
    elif route.is_raw:
        operation["requestBody"] = {"required": False, "content": {"*/*": {"schema": {}}}}
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(route: "Route") -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = msgspec.json.schema(route.query)
    properties = schema.get("$defs", {}).get(route.query.__name__, schema).get("properties", {})
    return [{"name": name, "in": "query", "schema": about} for name, about in properties.items()]


def _header_parameters(route: "Route") -> list[dict[str, Any]]:
    if not (route.takes_key and route.method == "POST"):
        return []
    schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
    return [{"name": "Idempotency-Key", "in": "header", "schema": schema}]


def _responses(route: "Route") -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in (route.status, *route.statuses):
        if status >= 400:
            continue
        responses[str(status)] = {"description": "the answer" if status != 204 else "nothing more will come"}
        if status != 204:
            answer = route.answers.get(status, route.answer)
            content: dict[str, Any] = {JSON: {"schema": {} if answer is None else _schema(answer)}}
            if route.is_text:
                content = {route.text_type: {"schema": {"type": "string"}}}
            if route.streams and status == 200:
                content[SSE] = {"schema": {"type": "string"}}
            responses[str(status)]["content"] = content
    refusals = set(route.refusals).union(EVERY_REFUSAL) - {route.status, *route.statuses}
    if route.status >= 400:
        refusals.add(route.status)
    if route.role is not None:
        refusals |= {401, 429}
    if route.names_run or "{" in route.path:
        refusals.add(404)
    if route.body is not None or route.is_raw:
        refusals |= {415, 422}
    if route.changes:
        refusals.add(409)
    for status in sorted(refusals):
        schema = {"$ref": "#/components/schemas/Problem"}
        responses[str(status)] = {"description": TITLES[status], "content": {MEDIA_TYPE: {"schema": schema}}}
    return responses


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return schema
