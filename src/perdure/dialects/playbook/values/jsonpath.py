"""Paths into a value, as in `select` (PBK-173): `$.items[0].id`, `$['odd name']`, `$.items[*].id`, `$..id`.

A path without wildcard, slice or `..` is definite: its result is one value, or null. The result of any other is the
list of all matching values. Filters and scripts are not supported: computing is the work of tasks.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from perdure.kernel.lazy_regex import lazy_regex

Step = Callable[[Any], Iterator[Any]]

_TOKEN = lazy_regex(
    r"""(?P<deep>\.\.)(?=[\w*\[])            # then a name, a wildcard or a bracket
    | \.?\*                                   # .* and, after `..`, *
    | \.?(?P<name>[^\W\d][\w-]*)
    | \[\s*(?P<star>\*)\s*\]
    | \[\s*(?P<index>-?\d+)\s*\]
    | \[\s*(?P<slice>-?\d*\s*:\s*-?\d*(?:\s*:\s*-?\d*)?)\s*\]
    | \[\s*'(?P<single>[^']*)'\s*\]
    | \[\s*"(?P<double>[^"]*)"\s*\]""",
    re.VERBOSE,
)


class BadPath(ValueError):
    """The text is not a JSON path."""


class JsonPath:
    """A parsed path."""

    def __init__(self, text: str) -> None:
        self._steps: list[Step] = []
        self.is_definite = True
        rest = text.strip()
        rest = rest[1:] if rest.startswith("$") else rest
        place = 0
        while place < len(rest):
            match = _TOKEN.match(rest, place)
            if match is None or (place == 0 and match[0][0] == "." and len(match[0]) == 1):
                raise BadPath(f"{text!r} is not a JSON path at {rest[place:]!r}")
            self._steps.append(self._step(match))
            place = match.end()

    def _step(self, match: "re.Match[str]") -> Step:
        if match["deep"]:
            self.is_definite = False
            return _below
        name = next((match[kind] for kind in ("name", "single", "double") if match[kind] is not None), None)
        if name is not None:
            return lambda value: _member(value, name)
        if match["index"]:
            index = int(match["index"])
            return lambda value: _item(value, index)
        self.is_definite = False
        if match["slice"]:
            bounds = slice(*(int(part) if part.strip() else None for part in match["slice"].split(":")))
            return lambda value: iter(value[bounds] if isinstance(value, list) else ())
        return _children

    def read(self, value: Any) -> Any:
        """The value at the path, or null; a list of values where there may be several."""
        match: Iterable[Any] = (value,)
        for step in self._steps:
            match = [inner for outer in match for inner in step(outer)]
        listed = list(match)
        if self.is_definite:
            return listed[0] if listed else None
        return listed


def _member(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, dict) and name in value:
        yield value[name]


def _item(value: Any, index: int) -> Iterator[Any]:
    if isinstance(value, list) and -len(value) <= index < len(value):
        yield value[index]


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _below(value: Any) -> Iterator[Any]:
    """The value and everything inside it, outer before inner."""
    pending = [value]
    while pending:
        item = pending.pop()
        yield item
        pending.extend(reversed(list(_children(item))))
