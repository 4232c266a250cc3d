"""Whether two specs are equivalent (STY-020), ignoring the order of members, nulls and the spelling of numbers."""

from typing import Any


def same(first: Any, second: Any) -> bool:
    if isinstance(first, dict) and isinstance(second, dict):
        names = {name for pair in (first, second) for name in pair if pair[name] is not None}
        return all(same(first.get(name), second.get(name)) for name in names)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    return isinstance(first, bool) is isinstance(second, bool) and bool(first == second)
