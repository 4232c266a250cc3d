"""Objects as `Table`, which `kubectl get` prints; and lists, with what both say about themselves."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from perdure.kernel.documents.resource_kinds import PrinterColumn, ResourceKind
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.server.calls import ApiCall
from perdure.server.kubernetes.selectors import value_at
from perdure.views.errors import BadRequest

Object = dict[str, Any]
META = "meta.k8s.io/v1"
_TYPES = {"integer": "integer", "count": "string"}


def wants_table(call: ApiCall) -> bool:
    return any("as=Table" in part.replace(" ", "") for part in call.headers.get("accept", "").split(","))


def wants_metadata(call: ApiCall) -> bool:
    return "as=PartialObjectMetadata" in call.headers.get("accept", "").replace(" ", "")


def table(
    kind: ResourceKind, items: Sequence[Object], now: Instant, included: str, metadata: Object, *, header: bool = True
) -> Object:
    """`included`: what each row has of its object: Object, Metadata or None; without a word the metadata."""
    if included not in ("", "Object", "Metadata", "None"):
        raise BadRequest(f"includeObject: {included[:20]!r} is not one of Object, Metadata and None")
    is_told_by_name = kind.name != "Event"  # whose names only `-o wide` prints, as Kubernetes does
    name = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": int(not is_told_by_name)}
    columns = [
        name,
        *(
            {
                "name": column.title,
                "type": _TYPES.get(column.type, "string"),
                "format": "",
                "description": "",
                "priority": 0,
            }
            for column in kind.columns
        ),
    ]
    rows = [{"cells": _cells(kind, item, now), "object": _included(item, included)} for item in items]
    return {
        "kind": "Table",
        "apiVersion": META,
        "metadata": metadata,
        "columnDefinitions": columns if header else [],
        "rows": rows if included != "None" else [{"cells": row["cells"]} for row in rows],
    }


def _cells(kind: ResourceKind, item: Object, now: Instant) -> list[Any]:
    if "cells" in item:  # made without the object
        return list(item["cells"])
    return [value_at(item, "metadata.name"), *(cell(item, column, now) for column in kind.columns)]


def cell(item: Object, column: PrinterColumn, now: Instant) -> Any:
    value = value_at(item, column.path)
    match column.type:
        case "date":
            return age(value, now)
        case "integer":
            return value if isinstance(value, int) else None
        case "count":
            return str(len(value) if isinstance(value, dict) else 0)
        case "object":
            return f"{str(value_at(value, 'kind')).lower()}/{value_at(value, 'name')}"
        case _:
            return value if isinstance(value, str) else str(value)


def age(timestamp: Any, now: Instant) -> str:
    """`5m3s`, as people read it: two units at most."""
    try:
        since = datetime.fromisoformat(str(timestamp))
    except ValueError:
        return "<unknown>"
    seconds = max(0, int(now / SECOND - since.replace(tzinfo=since.tzinfo or UTC).timestamp()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y{days % 365}d"


def _included(item: Object, included: str) -> Object:
    return (
        {name: value for name, value in item.items() if name != "cells"}
        if included == "Object"
        else partial_object(item)
    )


def partial_object(item: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": item.get("metadata", {})}


def object_list(kind: ResourceKind, items: Sequence[Object], metadata: Object) -> Object:
    return {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata, "items": list(items)}


def partial_list(items: Sequence[Object], metadata: Object) -> Object:
    head = {"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": metadata}
    return {**head, "items": [partial_object(item) for item in items]}
