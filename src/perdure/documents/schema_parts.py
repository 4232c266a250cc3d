"""Parts of the JSON Schemas (2020-12) of documents: for editors, which complete members and mark mistakes.

A language makes its schema of the same tables that its documents are validated with (`Dialect.document_schema`). A
schema is the weaker of the two: names of steps, templates and references are judged by `check` alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
ANYTHING: Schema = {}
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
SWITCH: Schema = {"type": "boolean"}
TEMPLATE: Schema = {"type": "string", "pattern": r"\{[{%]"}
OPEN: Schema = {"type": "object"}
FACTS = "x-perdure"
"""Under this name a schema says what its values are to our own editor support; printed schemas are without it.

- `declares`: a text is the name of something (`step`); `declares_members`: so are the names of an object's members;
  `declares_label`: so is the name of the only member of an object; `declares_by`: what a text names is told by this
  member of the document.
- `refers`: a text names something that is declared. `path`: it is a path to it, such as `steps.name.output`.
- `scopes`: what is declared inside such an object is known there, and with `lexical` also in objects inside it.
- `words`: what each word means. `names_provider`: a text names a provider. `arguments_of`: an object has the arguments
  of the provider that the member of this name, beside it, names.
- Of the root: `provider`, the form in which providers are named; `workspace`, what is known in other files, too;
  `expressions`, the roots that expressions read, each with what it is, its members, and what they name.
"""


def document(language: str, title: str, schema: Schema, parts: Mapping[str, Schema] | None = None) -> Schema:
    """The schema of a language's documents. Its `$id` never changes."""
    shared = {"$defs": dict(parts)} if parts else {}
    return {"$schema": DRAFT, "$id": f"urn:perdure:schema:{language}", "title": title, **schema, **shared}


def members(
    names: Iterable[str],
    described: Mapping[str, Schema] | None = None,
    required: Sequence[str] = (),
    *,
    is_open: bool = False,
) -> Schema:
    """An object with these members. What is described must be one of the names: nothing is invented here."""
    listed = list(dict.fromkeys(names))
    if unknown := set(described or {}) - set(listed):
        raise ValueError(f"the reader knows no {', '.join(sorted(unknown))}")
    needed = {"required": list(required)} if required else {}
    closed = {} if is_open else {"additionalProperties": False}
    return {
        "type": "object",
        "properties": {name: (described or {}).get(name, {}) for name in listed},
        **needed,
    } | closed


def list_of(item: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": item, **({"minItems": least} if least else {})}


def map_of(member: Schema) -> Schema:
    return {"type": "object", "additionalProperties": member}


def choice(words: Iterable[str]) -> Schema:
    return {"type": "string", "enum": list(words)}


def whole(least: int) -> Schema:
    return {"type": "integer", "minimum": least}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def part(name: str) -> Schema:
    """A reference to a part that the schema shares."""
    return {"$ref": f"#/$defs/{name}"}


def described(text: str, schema: Schema) -> Schema:
    return {"description": text, **schema}


def field_text(path: Sequence[str], texts: Mapping[str, str]) -> str:
    """The text for the longest end of a path that has one; empty if none has."""
    ends = (".".join(path[start:]) for start in range(len(path)))
    return next((texts[end] for end in ends if end in texts), "")


def describe(schema: Schema, texts: Mapping[str, str]) -> None:
    """Adds descriptions to the members of a document's schema that have none (`field_text`).

    The path of a member begins with its shared part, if it is in one, and with the kind that a condition selects.
    """
    _describe(schema, (), texts)
    for name, shared in schema.get("$defs", {}).items():
        _describe(shared, (name,), texts)


def _describe(schema: Any, path: tuple[str, ...], texts: Mapping[str, str]) -> None:
    if not isinstance(schema, dict):
        return
    for name, member in schema.get("properties", {}).items():
        text = field_text((*path, name), texts)
        if "description" not in member and text:
            member = schema["properties"][name] = described(text, member)
        _describe(member, (*path, name), texts)
    for part_name in ("items", "additionalProperties", "then", "else"):
        _describe(schema.get(part_name), path, texts)
    for combination in ("anyOf", "oneOf", "allOf"):
        for alternative in schema.get(combination, ()):
            _describe(alternative, (*path, *_selected(alternative)), texts)


def _selected(alternative: Schema) -> tuple[str, ...]:
    """The kind for which an alternative holds: `{"if": {"properties": {"kind": {"const": …}}}}`."""
    members_of_condition = alternative.get("if", {}).get("properties", {}).values()
    return tuple(str(member["const"]) for member in members_of_condition if "const" in member)


def with_facts(schema: Schema, **facts: Any) -> Schema:
    return {**schema, FACTS: {**schema.get(FACTS, {}), **facts}}


def without_facts(schema: Any) -> Any:
    """As a schema is printed."""
    if isinstance(schema, list):
        return [without_facts(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_facts(member) for name, member in schema.items() if name != FACTS}
