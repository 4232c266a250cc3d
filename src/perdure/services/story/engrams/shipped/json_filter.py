"""`json-filter`: selects one item of a list in a JSON document, and a value of the item."""

from typing import Any

from perdure.expressions import json_decoding
from perdure.kernel.json_values import jsontext
from perdure.services.story.engrams.engram_resources import template
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.engrams.paths import MISSING, follow
from perdure.services.story.engrams.registry import as_provider
from perdure.services.story.engrams.shipped import VERSION

TEMPLATE = template(
    "json-filter",
    VERSION,
    description="Selects one item of a list in a JSON document, and a value of the item.",
    input_schema={
        "type": "object",
        "required": ["input", "select"],
        "properties": {
            "input": {},
            "select": {
                "type": "object",
                "properties": {
                    "itemsPath": {"type": "string"},
                    "matchField": {"type": "string"},
                    "matchValue": {"type": "string"},
                    "valuePath": {"type": "string"},
                    "outputKey": {"type": "string"},
                    "includeItem": {"type": "boolean"},
                    "requireMatch": {"type": "boolean"},
                },
            },
            "parseJSONText": {"type": "boolean"},
        },
    },
    output_keys=("resultSelected",),
)


def json_filter(inputs: dict[str, Any]) -> dict[str, Any]:
    select = inputs["select"]
    root = _parsed(inputs["input"]) if inputs.get("parseJSONText", True) else inputs["input"]
    item = _match(_items(root, select), select.get("matchField", "").strip(), select.get("matchValue", ""))
    if item is None:
        if select.get("requireMatch", True):
            message = f"no item has {select.get('matchField', '')} = {select.get('matchValue', '')!r}"
            raise EngramError(message, type="execution_error", exit_class="terminal")
        return {"resultSelected": {}}
    selected: dict[str, Any] = {(select.get("outputKey") or "value").strip() or "value": _value(item, select)}
    if select.get("includeItem"):
        selected["item"] = item
    return {"resultSelected": selected}


def _items(root: Any, select: dict[str, Any]) -> list[Any]:
    path = select.get("itemsPath", "").strip()
    items = follow(root, path)
    if items is MISSING:
        raise EngramError(f"itemsPath {path!r} does not exist", type="validation_error")
    if not isinstance(items, list):
        raise EngramError(f"itemsPath {path!r} is not a list", type="validation_error")
    return items


def _match(items: list[Any], field: str, value: str) -> dict[str, Any] | None:
    for item in items:
        if isinstance(item, dict) and (not field or _text(follow(item, field)) == value):
            return item
    return None


def _text(value: Any) -> str | None:
    if value is MISSING:
        return None
    return value if isinstance(value, str) else jsontext.encode(value).decode()


def _value(item: dict[str, Any], select: dict[str, Any]) -> Any:
    path = select.get("valuePath", "").strip()
    value = follow(item, path)
    if value is MISSING:
        raise EngramError(f"valuePath {path!r} does not exist in the selected item", type="validation_error")
    return value


def _parsed(value: Any) -> Any:
    """Parse JSON that arrives as text: the text itself, or `text` members in a `data` or `content` list."""
    match value:
        case str():
            parsed = _read(value)
        case {"data": list(pieces)} | {"content": list(pieces)} | {"content": {"data": list(pieces)}}:
            parsed = _joined(pieces)
        case {"text": str(text)}:
            parsed = _read(text)
        case list():
            parsed = _joined(value)
        case _:
            parsed = MISSING
    return value if parsed is MISSING else parsed


def _joined(pieces: list[Any]) -> Any:
    texts = [piece["text"] for piece in pieces if isinstance(piece, dict) and isinstance(piece.get("text"), str)]
    values = [value for value in map(_read, texts) if value is not MISSING]
    return MISSING if not values else values[0] if len(values) == 1 else values


def _read(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return MISSING
    try:
        return json_decoding.decode(text, jsontext.read_strict, lambda _: None, unique=True)
    except (jsontext.NotJson, json_decoding.MalformedJson):
        return MISSING


PROVIDER = as_provider(TEMPLATE, json_filter, computes=True)
