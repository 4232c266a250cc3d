"""Paths into JSON data for the shipped Engrams: `$.items[0].name`, `items[0].name`."""

import re
from typing import Any

from perdure.services.story.engrams.failure import EngramError


class _Missing:
    """The result of a path that leads to nothing."""


MISSING = _Missing()

_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[[\"']([^\"']*)[\"']\]")


def follow(root: Any, path: str) -> Any:
    """The value at the path, or `MISSING`."""
    remaining = path.removeprefix("$").removeprefix(".")
    position, value = 0, root
    while position < len(remaining):
        part = _PART.match(remaining, position)
        if part is None:
            raise EngramError(f"{path!r} is not a path (expected e.g. items[0].name)", type="validation_error")
        position = part.end()
        name, index = part.group(1) or part.group(3), part.group(2)
        if index is not None:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else MISSING
        else:
            value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
        if value is MISSING:
            return MISSING
    return value
