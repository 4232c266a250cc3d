"""Paths into values that lie in storage: `a.b[0]`, `items[*].id` (STY-219)."""

import re
from typing import Any

_PART = re.compile(r"[^.\[\]]+|\[(?:\d+|\*)\]")


class PathNotFound(LookupError):
    """There is nothing at the end of `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is nothing at {path!r}")
        self.path = path


def follow(value: Any, path: str) -> Any:
    """What stands there. Raises `NothingAt`."""
    steps = _PART.findall(path)
    for at, step in enumerate(steps):
        if step == "[*]":
            rest = "".join(one if one.startswith("[") else f".{one}" for one in steps[at + 1 :]).lstrip(".")
            if not isinstance(value, list):
                raise PathNotFound(path)
            return [follow(step_text, rest) for step_text in value]
        try:
            value = value[int(step[1:-1])] if step.startswith("[") else value[step]
        except (IndexError, KeyError, TypeError):
            raise PathNotFound(path) from None
    return value
