"""How much work a JSON Schema can make: references let a short one stand for a long one, as aliases do in YAML.

The library that validates follows every reference anew, and nothing stops it once it has begun. So a schema is unfolded
here first, up to a bound. One that refers to itself unfolds with the data: what it asks of one part of the data twice,
it asks twice as often at each level below.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

MOST_PARTS = 20_000
MOST_CHECKS = 10_000_000
DEEPEST = 200

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


class TooLarge(ValueError):
    """The schema unfolds too far."""


class SchemaSize:
    """`growth`: how often it may look at one part of the data, for every look at the part around it."""

    __slots__ = ("growth",)

    def __init__(self, schema: Any) -> None:
        """Raises `TooLarge`."""
        bases = list(_parts(schema))
        has_references = any(name in part for part in bases for name in _REFERENCES)
        self.growth = _Unfolding(schema, bases).growth() if has_references else 1

    def is_too_dear(self, value: Any) -> bool:
        """Whether to check the value would take too long."""
        return self.growth > 1 and self.growth ** depth_of(value) > MOST_CHECKS


def depth_of(value: Any) -> int:
    deepest, left = 0, [(value, 0)]
    while left:
        part, depth = left.pop()
        deepest = max(deepest, depth)
        if isinstance(part, dict | list):
            left += [(one, depth + 1) for one in (part.values() if isinstance(part, dict) else part)]
    return deepest


class _Unfolding:
    def __init__(self, schema: Any, parts: list[Mapping[str, Any]]) -> None:
        self._schema = schema
        self._roots = [schema, *(part for part in parts if "$id" in part or "id" in part)]
        self._anchors = [part for part in parts if "$anchor" in part or "$dynamicAnchor" in part]
        self._visited = 0
        self._path: dict[int, int] = {}  # a part that is being unfolded → how many labels led to it
        self._labels: list[str] = []
        self._returns: defaultdict[int, Counter[Label]] = defaultdict(Counter)

    def growth(self) -> int:
        self._visit(self._schema)
        return max((_most_alike(labels) for labels in self._returns.values()), default=1)

    def _visit(self, part: Any) -> None:
        if not isinstance(part, dict):
            return
        self._visited += 1
        if self._visited > MOST_PARTS or len(self._path) > DEEPEST:
            raise TooLarge(f"with its references written out it has more than {MOST_PARTS} parts, or is too deep")
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
                yield from ((label, one) for one in (value if isinstance(value, list) else [value]))
            elif name in _SAME_PART_MAPS and isinstance(value, dict):
                yield from ((None, one) for one in value.values())
            elif name in ("properties", "patternProperties") and isinstance(value, dict):
                yield from ((key if name == "properties" else _ANY, one) for key, one in value.items())

    def _targets(self, reference: str) -> list[Any]:
        """What it may mean: a path from any root, an anchor, a name. The library knows which; the most counts here."""
        name, _, fragment = reference.partition("#")
        if fragment.startswith("/"):
            found = [_at(root, fragment) for root in self._roots]
        elif fragment:
            found = [one for one in self._anchors if fragment in (one.get("$anchor"), one.get("$dynamicAnchor"))]
        elif name:
            found = self._roots[1:]
        else:
            found = self._roots
        return [one for one in found if isinstance(one, dict)]


def _at(root: Any, pointer: str) -> Any:
    from urllib.parse import unquote

    here = root
    for step in unquote(pointer).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = here.get(key)
        elif isinstance(here, list) and key.isdecimal() and int(key) < len(here):
            here = here[int(key)]
        else:
            return None
    return here


def _most_alike(labels: Counter[Label]) -> int:
    """Of the ways back to a part, how many may lead by the same part of the data."""
    ways = [way for way in labels if way]
    if len(ways) > DEEPEST:
        return sum(labels[way] for way in ways)
    return max((sum(labels[other] for other in ways if _may_meet(way, other)) for way in ways), default=1)


def _may_meet(one: Label, other: Label) -> bool:
    """One may go on where the other ends: by way of another part that refers to itself as well."""
    return all(a == b or _ANY in (a, b) for a, b in zip(one, other, strict=False))


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left += part.values()
        elif isinstance(part, list):
            left += part
