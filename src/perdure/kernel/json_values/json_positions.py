"""The positions of values in a JSON text. Needed only when there is a problem to report, so reading stays fast."""

import json
import re
from collections.abc import Sequence

from perdure.kernel.lazy_regex import lazy_regex

Step = str | int

_TOKEN = lazy_regex(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


def place_of(text: str, path: Sequence[Step]) -> tuple[int, int] | None:
    """Line and column (from 1) of the value at `path`; of its name, if it is a member."""
    offset = _offset_of(text, list(path))
    return None if offset is None else line_and_column(text, offset)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - start + 1


def repeated_member(text: str) -> tuple[str, int, int] | None:
    """Name, line and column of the first member that occurs twice in one object."""
    names: list[set[str] | None] = []
    before = ""
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "{":
            names.append(set())
        elif token == "[":
            names.append(None)
        elif token in "}]":
            if names:
                names.pop()
        elif token[0] == '"' and before in ("{", ",") and names and (seen := names[-1]) is not None:
            if token in seen:
                return (token[1:-1], *line_and_column(text, match.start()))
            seen.add(token)
        before = token
    return None


def _offset_of(text: str, path: list[Step]) -> int | None:
    # Iterative, so that depth costs no stack. A container is [is it an object, the member or index we are at].
    stack: list[list[Step | bool | None]] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in "}]":
            if stack:
                stack.pop()
        elif token == ",":
            if stack:
                is_object, at = stack[-1]
                stack[-1][1] = None if is_object or not isinstance(at, int) else at + 1
        elif token != ":":
            is_name = bool(stack) and stack[-1][0] is True and stack[-1][1] is None
            if is_name:
                stack[-1][1] = _name(token)
            if len(stack) == len(path) and [at for _, at in stack] == path:
                return match.start()
            if not is_name and token in "{[":
                stack.append([True, None] if token == "{" else [False, 0])
    return None


def _name(token: str) -> str:
    try:
        name = json.loads(token)
    except ValueError:
        return token
    return name if isinstance(name, str) else token
