"""Whether two specs mean the same (STY-020): order of members, nulls and the spelling of numbers do not count."""

from typing import Any


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        names = {name for pair in (one, other) for name in pair if pair[name] is not None}
        return all(same(one.get(name), other.get(name)) for name in names)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
