"""How much work a JSON Schema can cause: references make a short schema equal to a long one, as aliases do in YAML.

The validation library follows every reference again, and a validation cannot be interrupted. So a schema is first
unfolded here, up to a limit. A schema that refers to itself unfolds with the data: if it checks one part of the data
twice, the checks double at each level below.

Validation is charged in advance: the size of the schema times that of the data. Large data are validated in batches
if the schema treats each part separately.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from perdure.kernel.json_values import jsontext
from perdure.kernel.turn_budget import STEPS_PER_MILLISECOND, begin_compiling, pay, rest

MOST_PARTS = 20_000
MOST_CHECKS = 20_000_000  # of parts of data against parts of a schema: about a second
DEEPEST = 200
BACKTRACKS = 20_000  # of one search for a pattern that looks ahead or back
MOST_AT_ONCE = 4_000_000  # checks where the data cannot be checked part by part
_AT_ONCE = 200_000  # checks by one call otherwise: ten milliseconds at most
_BATCH_SIZE = 4_000  # parts of data
_CHARACTERS_OF_A_PART = 8  # of an expression whose compiling takes as long as that of a part of a schema

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_SAME_PART = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else"})
_SAME_PART_MAPS = frozenset({"dependentSchemas", "dependencies"})
_ANY_PART = frozenset(
    [
        *("additionalProperties", "additionalItems", "items", "prefixItems", "contains", "propertyNames"),
        *("unevaluatedItems", "unevaluatedProperties"),
    ]
)
_ANY = "*"

Label = tuple[str, ...]


class SchemaTooLarge(ValueError):
    """The schema with its references expanded, or what it has to be compiled to, is too large."""


class SchemaSize:
    """`growth`: how many checks of one part of the data one check of the part around it can cause.

    `checks_per_part`: how often one part of the data is checked at most.
    """

    __slots__ = ("checks_per_part", "costs", "growth")

    def __init__(self, schema: Any) -> None:
        """Raises `SchemaTooLarge`."""
        from perdure.documents.schema_costs import SchemaCosts  # with the first schema, as the library

        begin_compiling(_CHARACTERS_OF_A_PART * jsontext.weigh(schema, sys.maxsize))
        bases = list(_parts(schema))
        self.costs = SchemaCosts(bases)
        if any(name in part for part in bases for name in _REFERENCES):
            unfolding = _UnfoldedSchema(schema, bases)
            self.growth = unfolding.growth()
            self.checks_per_part = unfolding.checks_per_part()
        else:
            self.growth = 1
            self.checks_per_part = max(_checks_by_level(schema, _no_targets))

    def refusal(self, value: Any, *, in_parts: bool = False) -> str | None:
        """Charge for validating the value, or return why that would take too long. `in_parts`: large data are split."""
        if self.growth > 1 and self.growth ** depth_of(value) > MOST_CHECKS:
            return f"nested too deeply for a schema that refers to itself {self.growth} times"
        size = 1 + jsontext.weigh(value, _BATCH_SIZE)
        if size > _BATCH_SIZE:
            pay(max(25 * _BATCH_SIZE, 6 * STEPS_PER_MILLISECOND))  # counting takes time, too: not on the event loop
            size = 1 + jsontext.weigh(value, MOST_CHECKS // self.checks_per_part)
        most = MOST_CHECKS if in_parts else MOST_AT_ONCE
        if size * self.checks_per_part > most:
            return f"too large for its schema, which would take more than {most} checks"
        pay(size * self.checks_per_part)
        return self.costs.refusal(value, self.checks_per_part)

    def tells_all(self, value: Any) -> bool:
        """Whether all that does not fit can be told; otherwise only the first problem can."""
        return self.costs.tells_all(value, self.checks_per_part)


Targets = Callable[[Any], list[Any]]


def _no_targets(part: Any) -> list[Any]:
    return []


def _checks_by_level(part: Any, targets: Targets) -> list[int]:
    """How often one part of the data is checked at most: at the level of the schema, and at each level below."""
    if not isinstance(part, dict):
        return [1]
    counts = [1 + _own_checks(part)]
    of_properties: list[int] = []  # only one of several properties concerns a given part
    for name, value in part.items():
        if name in _SAME_PART or name in _ANY_PART:
            for inner in value if isinstance(value, list) else [value]:
                _add(counts, _checks_by_level(inner, targets), 0 if name in _SAME_PART else 1)
        elif isinstance(value, dict) and (name in _SAME_PART_MAPS or name == "patternProperties"):
            for inner in value.values():
                _add(counts, _checks_by_level(inner, targets), 0 if name in _SAME_PART_MAPS else 1)
        elif name == "properties" and isinstance(value, dict):
            for inner in value.values():
                below = _checks_by_level(inner, targets)
                of_properties += [0] * (len(below) - len(of_properties))
                of_properties[: len(below)] = map(max, of_properties, below)
    _add(counts, of_properties, 1)
    for inner in targets(part):
        _add(counts, _checks_by_level(inner, targets), 0)
    return counts


def _add(counts: list[int], more: list[int], level: int) -> None:
    counts += [0] * (level + len(more) - len(counts))
    for at, count in enumerate(more, level):
        counts[at] += count


def _own_checks(part: Mapping[str, Any]) -> int:
    """The checks of a part of the data by the schema's own keywords."""
    patterns = [part.get("pattern"), *_keys(part.get("patternProperties"))]
    listed = part.get("enum")
    return (len(listed) // 4 if isinstance(listed, list) else 0) + sum(
        BACKTRACKS // 4 if _LOOKAROUND.search(pattern) else 1 for pattern in patterns if isinstance(pattern, str)
    )


_LOOKAROUND = re.compile(r"\(\?<?[=!>]|\\[1-9k]")


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


_SHARED = ("$defs", "definitions")
_SPLITTABLE = frozenset(
    [
        *("type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
        *(
            "allOf",
            "minProperties",
            "maxProperties",
            "title",
            "description",
            "default",
            "examples",
            "$comment",
            "$schema",
        ),
        *_SHARED,
    ]
)
"""Keywords of a schema whose data can be checked part by part."""


class PartwiseValidator:
    """Validates data against a schema, large data in batches; `compile` makes a validator of a part of the schema."""

    __slots__ = ("_around", "_batch_size", "_compile", "_schema", "_shared", "_validators", "can_split")

    def __init__(self, schema: Any, compile: Callable[[Any], Any], checks_per_part: int) -> None:
        self._schema = schema
        self._compile = compile
        self._batch_size = max(1, min(_BATCH_SIZE, _AT_ONCE // checks_per_part))
        self._shared = {}
        if isinstance(schema, dict):
            self._shared = {name: schema[name] for name in ("$schema", *_SHARED) if name in schema}
        self._validators: dict[tuple[int, str], Any] = {}  # by parts of the schema, which live as long as this
        self._around: dict[int, Any] = {}  # likewise: what a part says besides its `allOf`
        self.can_split = all(_is_self_contained(part) for part in _parts(schema))

    def is_valid(self, value: Any) -> bool:
        try:
            return self._fits(self._schema, value)
        except RecursionError:  # the library can recurse deeper
            return bool(self._validator(self._schema, "", self._schema).is_valid(value))

    def _fits(self, schema: Any, value: Any) -> bool:
        if not self._splits(schema, value):
            rest()
            return bool(self._validator(schema, "", schema).is_valid(value))
        if "$ref" in schema:
            return self._fits(_resolve_pointer(self._schema, schema["$ref"].removeprefix("#")), value)
        if "allOf" in schema:
            around = self._around.setdefault(id(schema), {name: schema[name] for name in schema if name != "allOf"})
            return all(self._fits(inner, value) for inner in (around, *schema["allOf"]))
        if not _fits_around(schema, value):
            return False
        if isinstance(value, list):
            items = schema.get("items", True)
            together = self._validator(schema, "items", {"items": items})
            return all(
                self._fits(items, batch) if is_alone else together.is_valid(batch)
                for _, batch, is_alone in _batches(value, self._batch_size)
            )
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        together = self._validator(schema, "members", {"properties": properties, "additionalProperties": others})
        return all(
            self._fits(properties.get(name, others), batch) if is_alone else together.is_valid(batch)
            for name, batch, is_alone in _batches(value, self._batch_size)
        )

    def _splits(self, schema: Any, value: Any) -> bool:
        if not self.can_split or not isinstance(schema, dict) or not isinstance(value, dict | list):
            return False
        if not (schema.keys() <= _SPLITTABLE or schema.keys() == {"$ref"}) or isinstance(schema.get("items"), list):
            return False
        return jsontext.weigh(value, self._batch_size) > self._batch_size

    def _validator(self, schema: Any, part: str, schema_of_part: Any) -> Any:
        key = id(schema), part
        if key not in self._validators:
            alone = schema_of_part is self._schema or not isinstance(schema_of_part, dict)
            self._validators[key] = self._compile(schema_of_part if alone else {**self._shared, **schema_of_part})
        return self._validators[key]


def pattern_limits(schema: Any) -> dict[str, int]:
    """Options of the library for the patterns of a schema."""
    from perdure.documents.schema_costs import SchemaCosts

    return {"backtrack_limit": BACKTRACKS, "size_limit": SchemaCosts(list(_parts(schema))).pattern_bytes}


def _is_self_contained(part: Mapping[str, Any]) -> bool:
    """Whether it means the same in another schema with the same definitions."""
    reference = part.get("$ref", "#/$defs/")
    is_known = isinstance(reference, str) and reference.startswith(("#/$defs/", "#/definitions/"))
    return is_known and not any(name in part for name in ("$id", "id", "$anchor", "$dynamicRef", "$recursiveRef"))


def _fits_around(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether the value fits, apart from its items or members."""
    kind, least, most = ("array", "minItems", "maxItems")
    if isinstance(value, dict):
        kind, least, most = ("object", "minProperties", "maxProperties")
    types = schema.get("type", kind)
    if kind != types and not (isinstance(types, list) and kind in types):
        return False
    if not schema.get(least, 0) <= len(value) <= schema.get(most, len(value)):
        return False
    return not isinstance(value, dict) or all(name in value for name in schema.get("required", ()))


def _batches(value: Any, batch_size: int) -> Iterator[tuple[Any, Any, bool]]:
    """Items or members in batches; a large one alone, with its place."""
    batch: Any = type(value)()
    weight = 0
    for place, item in value.items() if isinstance(value, dict) else enumerate(value):
        more = 1 + jsontext.weigh(item, batch_size)
        if more > batch_size:
            yield place, item, True
            continue
        if isinstance(batch, dict):
            batch[place] = item
        else:
            batch.append(item)
        weight += more
        if weight > batch_size:
            yield None, batch, False
            rest()
            batch, weight = type(value)(), 0
    yield None, batch, False


def depth_of(value: Any) -> int:
    deepest, pending = 0, [(value, 0)]
    while pending:
        part, depth = pending.pop()
        deepest = max(deepest, depth)
        if isinstance(part, dict | list):
            pending += [(item, depth + 1) for item in (part.values() if isinstance(part, dict) else part)]
    return deepest


class _UnfoldedSchema:
    def __init__(self, schema: Any, parts: list[Mapping[str, Any]]) -> None:
        self._schema = schema
        self._roots = [schema, *(part for part in parts if "$id" in part or "id" in part)]
        self._anchors = [part for part in parts if "$anchor" in part or "$dynamicAnchor" in part]
        self.visited = 0
        self._path: dict[int, int] = {}  # a part that is being unfolded → how many labels led to it
        self._labels: list[str] = []
        self._returns: defaultdict[int, Counter[Label]] = defaultdict(Counter)

    def growth(self) -> int:
        self._visit(self._schema)
        return max((_most_alike(labels) for labels in self._returns.values()), default=1)

    def checks_per_part(self) -> int:
        """A schema that refers to itself checks a part at most with all of its own parts."""
        if self._returns:
            return self.visited
        return max(_checks_by_level(self._schema, self._referred))

    def _referred(self, part: Any) -> list[Any]:
        references = [part[name] for name in _REFERENCES if isinstance(part.get(name), str)]
        return [target for reference in references for target in self._targets(reference)]

    def _visit(self, part: Any) -> None:
        if not isinstance(part, dict):
            return
        self.visited += 1
        if self.visited > MOST_PARTS or len(self._path) > DEEPEST:
            raise SchemaTooLarge(
                f"with its references expanded it has more than {MOST_PARTS} parts, or is nested too deeply"
            )
        if id(part) in self._path:
            self._returns[id(part)][tuple(self._labels[self._path[id(part)] :])] += 1
            return
        self._path[id(part)] = len(self._labels)
        for label, inner in self._inner(part):
            if label is None:
                self._visit(inner)
                continue
            self._labels.append(label)
            self._visit(inner)
            self._labels.pop()
        del self._path[id(part)]

    def _inner(self, part: Mapping[str, Any]) -> Iterator[tuple[str | None, Any]]:
        """Parts of a schema, with the name of the part of the data that they are about; None: the same."""
        for name, value in part.items():
            if name in _REFERENCES and isinstance(value, str):
                yield from ((None, target) for target in self._targets(value))
            elif name in _SAME_PART or name in _ANY_PART:
                label = None if name in _SAME_PART else _ANY
                yield from ((label, inner) for inner in (value if isinstance(value, list) else [value]))
            elif name in _SAME_PART_MAPS and isinstance(value, dict):
                yield from ((None, inner) for inner in value.values())
            elif name in ("properties", "patternProperties") and isinstance(value, dict):
                yield from ((key if name == "properties" else _ANY, inner) for key, inner in value.items())

    def _targets(self, reference: str) -> list[Any]:
        """What a reference may mean: a path from any root, an anchor, a name. All of them are counted."""
        name, _, fragment = reference.partition("#")
        if fragment.startswith("/"):
            targets = [_resolve_pointer(root, fragment) for root in self._roots]
        elif fragment:
            targets = [
                inner for inner in self._anchors if fragment in (inner.get("$anchor"), inner.get("$dynamicAnchor"))
            ]
        elif name:
            targets = self._roots[1:]
        else:
            targets = self._roots
        return [target for target in targets if isinstance(target, dict)]


def _resolve_pointer(root: Any, pointer: str) -> Any:
    from urllib.parse import unquote

    part = root
    for step in unquote(pointer).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(part, dict):
            part = part.get(key)
        elif isinstance(part, list) and key.isdecimal() and int(key) < len(part):
            part = part[int(key)]
        else:
            return None
    return part


def _most_alike(labels: Counter[Label]) -> int:
    """Of the ways back to a part, how many may lead through the same part of the data."""
    ways = [way for way in labels if way]
    if len(ways) > DEEPEST:
        return sum(labels[way] for way in ways)
    return max((sum(labels[other] for other in ways if _may_meet(way, other)) for way in ways), default=1)


def _may_meet(way: Label, other: Label) -> bool:
    """One way may be longer than the other, through another part that refers to itself too."""
    return all(a == b or _ANY in (a, b) for a, b in zip(way, other, strict=False))


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            yield part
            pending += part.values()
        elif isinstance(part, list):
            pending += part
