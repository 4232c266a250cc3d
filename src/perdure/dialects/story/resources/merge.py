"""Objects laid over objects: members merge by key, everything else is replaced (STY-010)."""

from typing import Any


def merged(base: Any, over: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{name: merged(base[name], value) if name in base else value for name, value in over.items()}}
