"""What the schema of a language says about a place of a document: members, words, and what names mean there."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.documents.schema_parts import FACTS, Schema
from perdure.editor.nodes import Node, NodeKind

DEEPEST = 20  # parts of a schema that include each other
MOST_WORDS = 200
MOST_KEPT = 5_000  # parts, by what decides them: a document may have any text there


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """A provider that documents may name."""

    name: str
    description: str = ""
    parameters: Schema = field(default_factory=dict)


class LanguageSchema:
    """One language: its schema, and the providers that its documents may name."""

    def __init__(self, name: str, schema: Schema, providers: Iterable[ProviderFacts] = ()) -> None:
        self.name = name
        self.root = schema
        self.facts: Mapping[str, Any] = schema.get(FACTS, {})
        self.deciding = frozenset(_deciding_members(schema))
        self.expanded: dict[tuple[int, frozenset[tuple[str, str]]], list[Schema]] = {}
        form = self.facts.get("provider", "")
        self.providers = {form.replace("{name}", provider.name): provider for provider in providers if form}

    @property
    def expressions(self) -> Mapping[str, Any]:
        """The roots that expressions read, and what their members name."""
        facts: Mapping[str, Any] = self.facts.get("expressions", {})
        return facts


class SchemaLookup:
    """What a language's schema says about the nodes of one tree."""

    def __init__(self, language: LanguageSchema) -> None:
        self.language = language
        self._at: dict[int, list[Schema]] = {}
        self._kept: list[Node] = []  # whose ids these are

    def parts_at(self, node: Node) -> list[Schema]:
        """All parts of the schema that are about a value."""
        if id(node) in self._at:
            return self._at[id(node)]
        if node.parent is None:
            parts = self._expand([self.language.root], node)
        else:
            assert node.step is not None
            parts = self._expand(self._inside(node.parent, node.step), node)
        self._at[id(node)] = parts
        self._kept.append(node)
        return parts

    def facts_at(self, node: Node) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        for part in self.parts_at(node):
            facts |= part.get(FACTS, {})
        return facts

    def _inside(self, parent: Node, step: str | int) -> list[Schema]:
        """The schemas of a member or an item."""
        parts = self.parts_at(parent)
        if isinstance(step, int):
            return [part["items"] for part in parts if isinstance(part.get("items"), dict)]
        named = [part["properties"][step] for part in parts if step in part.get("properties", {})]
        if not named:
            named = [
                part["additionalProperties"] for part in parts if isinstance(part.get("additionalProperties"), dict)
            ]
        return [*named, *(self._argument(parent, step) if parent.parent is not None else ())]

    def _argument(self, parent: Node, step: str) -> Iterator[Schema]:
        for schema in self.provider_schemas(parent):
            if step in schema.get("properties", {}):
                yield schema["properties"][step]

    def provider_schemas(self, node: Node) -> Iterator[Schema]:
        """The schema of the arguments of a provider, if the node has them."""
        beside = self.facts_at(node).get("arguments_of") if node.parent is not None else None
        if beside is not None and node.parent is not None:
            provider = node.parent.values().get(beside, "")
            if provider in self.language.providers:
                yield self.language.providers[provider].parameters

    def _expand(self, schemas: Iterable[Schema], node: Node) -> list[Schema]:
        values = node.values() if node.kind is NodeKind.MAPPING else {}
        decided = {name: values[name] for name in self.language.deciding if name in values}
        key = frozenset(decided.items())
        expanded: list[Schema] = []
        for schema in schemas:
            known = self.language.expanded.get((id(schema), key))
            if known is None:
                known = list(self._parts(schema, decided, 0))
                if len(self.language.expanded) < MOST_KEPT:
                    self.language.expanded[id(schema), key] = known
            expanded += known
        return expanded

    def _parts(self, schema: Schema, values: Mapping[str, str], depth: int) -> Iterator[Schema]:
        if not isinstance(schema, dict) or depth > DEEPEST:
            return
        yield schema
        if reference := schema.get("$ref"):
            yield from self._parts(self._referred(reference), values, depth + 1)
        for name in ("allOf", "anyOf", "oneOf"):
            for part in schema.get(name, ()):
                yield from self._parts(part, values, depth + 1)
        if "if" in schema:
            branch = "then" if _holds(schema["if"], values) else "else"
            yield from self._parts(schema.get(branch, {}), values, depth + 1)

    def _referred(self, reference: str) -> Schema:
        part: Schema = self.language.root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
        return part

    # For people.

    def members_at(self, node: Node) -> dict[str, Schema]:
        """The members that an object may have here, each with one of its schemas: the one that says most."""
        members: dict[str, Schema] = {}
        for part in [*self.parts_at(node), *self.provider_schemas(node)]:
            for name, schema in part.get("properties", {}).items():
                if isinstance(schema, dict) and (name not in members or not self.description(members[name])):
                    members[name] = schema
        return members

    def required_at(self, node: Node) -> set[str]:
        return {
            name for part in [*self.parts_at(node), *self.provider_schemas(node)] for name in part.get("required", ())
        }

    def words_at(self, node: Node) -> dict[str, str]:
        """The words that a scalar may be here, each with what it means."""
        meanings: dict[str, str] = {}
        words: dict[str, str] = {}
        for part in self.parts_at(node):
            meanings |= part.get(FACTS, {}).get("words", {})
            for word in (
                *part.get("enum", ()),
                *part.get("examples", ()),
                *((part["const"],) if "const" in part else ()),
            ):
                words.setdefault(str(word), "")
            if part.get("type") == "boolean":
                words |= {"true": "", "false": ""}
        return {word: meanings.get(word, "") for word in list({**words, **meanings})[:MOST_WORDS]}

    def description(self, schema: Schema) -> str:
        return next((str(part["description"]) for part in self._parts(schema, {}, 0) if part.get("description")), "")

    def types(self, schemas: Iterable[Schema]) -> str:
        """The kinds of values in a few words: `string or object`."""
        names: dict[str, None] = {}
        for schema in schemas:
            for part in self._parts(schema, {}, 0):
                kind = part.get("type", ())
                names |= dict.fromkeys([kind] if isinstance(kind, str) else kind)
        return " or ".join(names)


def _holds(condition: Schema, values: Mapping[str, str]) -> bool:
    """Whether a condition holds, which is about words that members may be."""
    required = condition.get("required", ())
    for name, schema in condition.get("properties", {}).items():
        if name not in values:
            if name in required:
                return False
        elif values[name] not in map(str, [schema["const"]] if "const" in schema else schema.get("enum", ())):
            return False
    return True


def _deciding_members(schema: Any) -> Iterator[str]:
    """The members that conditions of the schema are about."""
    if isinstance(schema, list):
        for item in schema:
            yield from _deciding_members(item)
    elif isinstance(schema, dict):
        condition = schema.get("if")
        if isinstance(condition, dict):
            yield from condition.get("properties", {})
        for member in schema.values():
            yield from _deciding_members(member)
