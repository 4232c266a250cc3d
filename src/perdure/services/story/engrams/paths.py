"""Paths into JSON data, as the shipped Engrams take them: `$.items[0].name`, `items[0].name`."""

import re
from typing import Any

from perdure.services.story.engrams.failure import EngramError


class _NotThere:
    """What a path that leads nowhere leads to."""


NOT_THERE = _NotThere()

_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[[\"']([^\"']*)[\"']\]")


def follow(root: Any, path: str) -> Any:
    """The value at the path, or `NOT_THERE`."""
    rest = path.removeprefix("$").removeprefix(".")
    at, here = 0, root
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            raise EngramError(f"{path!r} is not a path such as `items[0].name`", type="validation_error")
        at = part.end()
        name, index = part.group(1) or part.group(3), part.group(2)
        if index is not None:
            here = here[int(index)] if isinstance(here, list) and int(index) < len(here) else NOT_THERE
        else:
            here = here.get(name, NOT_THERE) if isinstance(here, dict) else NOT_THERE
        if here is NOT_THERE:
            return NOT_THERE
    return here
