"""`json-filter`: picks one item out of a list in a JSON document, and a value out of the item."""

from typing import Any

from perdure.expressions import json_decoding
from perdure.kernel import jsontext
from perdure.services.story.engrams.catalog_entries import template
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.engrams.paths import NOT_THERE, follow
from perdure.services.story.engrams.registry import as_provider
from perdure.services.story.engrams.shipped import VERSION

TEMPLATE = template(
    "json-filter",
    VERSION,
    description="Picks one item out of a list in a JSON document, and a value out of it.",
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
    if items is NOT_THERE:
        raise EngramError(f"itemsPath {path!r} leads nowhere", type="validation_error")
    if not isinstance(items, list):
        raise EngramError(f"itemsPath {path!r} leads to no list", type="validation_error")
    return items


def _match(items: list[Any], field: str, wanted: str) -> dict[str, Any] | None:
    for item in items:
        if isinstance(item, dict) and (not field or _text(follow(item, field)) == wanted):
            return item
    return None


def _text(value: Any) -> str | None:
    if value is NOT_THERE:
        return None
    return value if isinstance(value, str) else jsontext.encode(value).decode()


def _value(item: dict[str, Any], select: dict[str, Any]) -> Any:
    path = select.get("valuePath", "").strip()
    value = follow(item, path)
    if value is NOT_THERE:
        raise EngramError(f"valuePath {path!r} leads nowhere in the item that was found", type="validation_error")
    return value


def _parsed(value: Any) -> Any:
    """JSON that arrives as text is read: the text itself, or `text` members in a `data` or `content` list."""
    match value:
        case str():
            found = _read(value)
        case {"data": list(pieces)} | {"content": list(pieces)} | {"content": {"data": list(pieces)}}:
            found = _joined(pieces)
        case {"text": str(text)}:
            found = _read(text)
        case list():
            found = _joined(value)
        case _:
            found = NOT_THERE
    return value if found is NOT_THERE else found


def _joined(pieces: list[Any]) -> Any:
    texts = [piece["text"] for piece in pieces if isinstance(piece, dict) and isinstance(piece.get("text"), str)]
    found = [value for value in map(_read, texts) if value is not NOT_THERE]
    return NOT_THERE if not found else found[0] if len(found) == 1 else found


def _read(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return NOT_THERE
    try:
        return json_decoding.decode(text, jsontext.read_strict, lambda _: None, unique=True)
    except (jsontext.NotJson, json_decoding.MalformedJson):
        return NOT_THERE


PROVIDER = as_provider(TEMPLATE, json_filter, computes=True)
