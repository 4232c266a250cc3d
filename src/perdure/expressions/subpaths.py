"""Paths into values in storage: `a.b[0]`, `items[*].id` (STY-219)."""

import re
from typing import Any

_PART = re.compile(r"[^.\[\]]+|\[(?:\d+|\*)\]")


class PathNotFound(LookupError):
    """There is nothing at the end of `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is nothing at {path!r}")
        self.path = path


def follow(value: Any, path: str) -> Any:
    """The value at the path. Raises `PathNotFound`."""
    steps = _PART.findall(path)
    for at, step in enumerate(steps):
        if step == "[*]":
            rest = "".join(
                rest_step if rest_step.startswith("[") else f".{rest_step}" for rest_step in steps[at + 1 :]
            ).lstrip(".")
            if not isinstance(value, list):
                raise PathNotFound(path)
            return [follow(step_text, rest) for step_text in value]
        try:
            value = value[int(step[1:-1])] if step.startswith("[") else value[step]
        except (IndexError, KeyError, TypeError):
            raise PathNotFound(path) from None
    return value
